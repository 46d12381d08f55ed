"""Deterministic policies of Stable-Baselines3, from the zips of its ``save``, without unpickling: layers as arrays.

Networks are those of ``MlpPolicy`` and ``CnnPolicy`` (``stable_baselines3/common/torch_layers.py``, ``*/policies.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.sb3_import import KINDS, Kind, activation_of, layers_of, read_zip
from rlbench.datasets.torchfile import Array, describe, tensors
from rlbench.errors import RefusedFile

VALUES: Final = Kind("q_net.q_net", None, None, "none", "ReLU")
"""DQN's layers; the greedy action is the argmax."""

EXTRACTORS: Final = {"q_net.q_net": "q_net.features_extractor", "mlp_extractor.policy_net": "features_extractor"}
"""Prefix of the convolutions, by ``Kind.hidden``; of other kinds the actor's."""

CONVOLUTIONS: Final = ("cnn.0", "cnn.2", "cnn.4")
"""NatureCNN: 32@8/4, 64@4/2, 64@3/1."""


class Layer(NamedTuple):
    """Weight and bias of one layer."""

    weight: NDArray[np.float32]  # [outputs, inputs], or of a convolution [outputs, inputs, side, side]
    bias: NDArray[np.float32]  # [outputs]


class SB3Policy(NamedTuple):
    """A deterministic policy."""

    algorithm: str  # as the suites call it
    convolutions: tuple[Layer, ...]  # none for vectors; frames are divided by 255
    features: Layer | None  # from the convolutions to the layers
    layers: tuple[Layer, ...]  # the last one gives the action, or a number for each
    activation: str  # relu or tanh, between the layers
    squash: str  # tanh: actions in [−1, 1]; clip: in the environment's units; none: values
    normalized: bool  # trained within VecNormalize, whose statistics the zip lacks; not known of off-policy algorithms


def read_policy(path: Path) -> SB3Policy:
    """Read the policy of a zip.

    Raises:
        RefusedFile: it is no zip of PPO, A2C, SAC, TD3, DDPG or DQN, or has networks of its own.
    """
    data, weights = read_zip(path)
    arrays = tensors(weights, f"{path}/policy.pth")
    kind = next((kind for kind in (VALUES, *KINDS.values()) if f"{_head(kind)}.weight" in arrays), None)
    if kind is None:
        raise RefusedFile(f"{path}: holds {describe(arrays)} …; expected a policy of PPO, A2C, SAC, TD3, DDPG or DQN")
    prefix = EXTRACTORS.get(kind.hidden, "actor.features_extractor")
    convolutions, features = _extractor(arrays, prefix, path)
    return SB3Policy(
        algorithm=_algorithm(kind, data),
        convolutions=convolutions,
        features=features,
        layers=tuple(Layer(layer["weight"], layer["bias"]) for layer in layers_of(arrays, kind, path)),
        activation=activation_of(data, kind, path),
        squash=kind.squash,
        normalized="mlp_extractor" in kind.hidden and data.get("_last_original_obs") is not None,
    )


def _head(kind: Kind) -> str:
    return kind.mean or f"{kind.hidden}.0"


def _algorithm(kind: Kind, data: Mapping[str, object]) -> str:
    """Algorithm of a zip, by the settings that only it has."""
    match kind.hidden:
        case "q_net.q_net":
            return "dqn"
        case "actor.latent_pi":
            return "sac"
        case "actor.mu":
            return "ddpg" if data.get("policy_delay") == 1 and data.get("target_noise_clip") == 0 else "td3"
        case _:
            return "ppo" if "clip_range" in data else "trpo" if "cg_max_steps" in data else "a2c"


def _extractor(arrays: Mapping[str, Array], prefix: str, path: Path) -> tuple[tuple[Layer, ...], Layer | None]:
    names = {name.removeprefix(f"{prefix}.") for name in arrays if name.startswith(f"{prefix}.")}
    if not names:
        return (), None
    expected = {f"{layer}.{part}" for layer in (*CONVOLUTIONS, "linear.0") for part in ("weight", "bias")}
    if names != expected:
        raise RefusedFile(f"{path}: has a features extractor of its own; only MlpPolicy and CnnPolicy are read")
    *convolutions, features = (
        Layer(*(arrays[f"{prefix}.{name}.{part}"].astype(np.float32) for part in ("weight", "bias")))
        for name in (*CONVOLUTIONS, "linear.0")
    )
    return tuple(convolutions), features
