"""Read actors of Stable-Baselines3 from the zips of its ``save``, without unpickling.

Networks are those of ``MlpPolicy`` and ``CnnPolicy`` (``stable_baselines3/common/torch_layers.py``, ``*/policies.py``).
A zip does not hold the statistics of ``VecNormalize``, so an actor that was trained with it plays badly.
"""

from __future__ import annotations

import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench import disk
from rlbench.config.names import printable
from rlbench.datasets.policies import serialize
from rlbench.datasets.torchfile import Array, member, tensors
from rlbench.errors import RefusedFile

TEXT: Final = 16 * 2**20  # bytes of ``data``: settings, spaces and the last observations, as text
MAX_BOUNDS: Final = 10_000  # letters of the bounds of actions
VALUES: Final = 2**20  # JSON values of ``data``
WEIGHTS: Final = 512 * 2**20  # bytes of ``policy.pth``
BOUNDS: Final = ("-20", "2")  # of log_std of SAC and TQC
UNREAD_REMEDY: Final = "`rlbench eval` plays such a policy as a TorchScript or ONNX file"

ACTIVATIONS: Final = {"torch.nn.modules.activation.ReLU": "relu", "torch.nn.modules.activation.Tanh": "tanh"}

READ: Final = {
    "normalize_images": ("True", "1"),
    "squash_output": ("False", "0"),
    "features_extractor_class": tuple(
        f"stable_baselines3.common.torch_layers.{name}" for name in ("FlattenExtractor", "NatureCNN")
    ),
}
"""Settings of a policy that change its actions, with the values under which it is read; the first is the default."""

CONVOLUTIONS: Final = ("cnn.0", "cnn.2", "cnn.4")
"""NatureCNN: 32@8/4, 64@4/2, 64@3/1."""


class Kind(NamedTuple):
    """Names of the actor's layers in a family of algorithms."""

    family: str
    hidden: str  # of hidden layers, followed by ``.N.weight``; N counts activations too
    mean: str | None  # of the last layer; None is the last of ``hidden``
    log_std: str | None
    squash: str
    activation: str  # default
    extractor: str  # prefix of the convolutions


ACTORS: Final = (
    Kind("SAC or TQC", "actor.latent_pi", "actor.mu", "actor.log_std", "tanh", "ReLU", "actor.features_extractor"),
    Kind("TD3 or DDPG", "actor.mu", None, None, "tanh", "ReLU", "actor.features_extractor"),
    Kind("PPO, A2C or TRPO", "mlp_extractor.policy_net", "action_net", "log_std", "clip", "Tanh", "features_extractor"),
)
OTHER_NETWORKS: Final = (
    *("critic", "critic_target", "actor_target", "q_net_target", "value_net", "mlp_extractor.value_net"),
    *("pi_features_extractor", "vf_features_extractor"),  # the former is ``features_extractor`` again
)
"""Networks that take no part in a deterministic action."""

VALUES_OF_ACTIONS: Final = Kind("DQN", "q_net.q_net", None, None, "none", "ReLU", "q_net.features_extractor")
"""DQN's layers; the greedy action is the argmax."""


class Layer(NamedTuple):
    """Weight and bias of one layer."""

    weight: NDArray[np.float32]  # [outputs, inputs], or of a convolution [outputs, inputs, side, side]
    bias: NDArray[np.float32]  # [outputs]


class SB3Policy(NamedTuple):
    """A deterministic policy."""

    algorithm: str  # as the suites call it; empty: none of theirs
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
    file = _read(path, (VALUES_OF_ACTIONS, *ACTORS), "a policy of PPO, A2C, SAC, TD3, DDPG or DQN")
    convolutions, features = file.extractor()
    return SB3Policy(
        algorithm=file.algorithm(),
        convolutions=convolutions,
        features=features,
        layers=file.layers(),
        activation=file.activation(),
        squash=file.kind.squash,
        normalized="mlp_extractor" in file.kind.hidden and file.data.get("_last_original_obs") is not None,
    )


def convert_sb3(path: Path, *, task: str) -> bytes:
    """Convert the actor of a zip to a policy file for ``task``, which the zip does not name.

    Raises:
        RefusedFile: it is no zip of Stable-Baselines3, or its actor cannot be converted.
    """
    file = _read(path, ACTORS, f"an actor of plain layers of {'; '.join(kind.family for kind in ACTORS)}")
    if any(name.startswith(("features_extractor.", "actor.features_extractor.")) for name in file.arrays):
        raise RefusedFile(f"{path}: has a features extractor; only plain layers are converted")
    layers, log_std = file.layers(), file.log_std()
    file.refuse_other_bounds()
    names = [*(f"layers.{i}" for i in range(len(layers) - 1)), "mean"]
    arrays = {
        f"{name}.{part}": array
        for name, layer in zip(names, layers, strict=True)
        for part, array in layer._asdict().items()
    }
    bounded = file.kind.squash == "tanh" and log_std
    facts = {
        "format": "actor-v1",
        "name": path.stem,
        "algorithm": file.kind.family,
        "env_evaluated": task,
        "input_dim": str(layers[0].weight.shape[-1]),
        "action_dim": str(len(layers[-1].bias)),
        "hidden_layers": str(len(layers) - 1),
        "activation": file.activation(),
        "squash": file.kind.squash,
        "log_std": "none" if not log_std else "vector" if "log_std" in log_std else "layer",
        "log_std_min": BOUNDS[0] if bounded else "",
        "log_std_max": BOUNDS[1] if bounded else "",
        "source": "Stable-Baselines3",
    }
    return serialize(arrays | log_std, facts)


@dataclass(frozen=True, slots=True)
class _Zip:
    path: Path
    data: Mapping[str, object]
    arrays: Mapping[str, Array]
    kind: Kind

    def layers(self) -> tuple[Layer, ...]:
        """Layers of the actor; the last one is the mean."""
        pattern = re.compile(re.escape(self.kind.hidden) + r"\.([0-9]{1,9})\.weight")
        numbers = sorted(int(match[1]) for name in self.arrays if (match := pattern.fullmatch(name)))
        names = [f"{self.kind.hidden}.{number}" for number in numbers] + ([self.kind.mean] if self.kind.mean else [])
        missing = [f"{name}.{part}" for name in names for part in Layer._fields if f"{name}.{part}" not in self.arrays]
        if missing:
            raise RefusedFile(f"{self.path}: {missing[0]} is missing; only layers with a bias are converted")
        return tuple(map(self._layer, names))

    def _layer(self, name: str) -> Layer:
        layer = Layer(*(self.arrays[f"{name}.{part}"].astype(np.float32) for part in Layer._fields))
        if layer.weight.ndim < 2 or layer.bias.ndim != 1:
            shapes = f"{list(layer.weight.shape)} and {list(layer.bias.shape)}"
            raise RefusedFile(f"{self.path}: {name} has the shapes {shapes}; expected a layer's weight and bias")
        return layer

    def extractor(self) -> tuple[tuple[Layer, ...], Layer | None]:
        """Convolutions and the layer behind them."""
        prefix = f"{self.kind.extractor}."
        names = {name.removeprefix(prefix) for name in self.arrays if name.startswith(prefix)}
        if not names:
            return (), None
        expected = (*CONVOLUTIONS, "linear.0")
        if names != {f"{layer}.{part}" for layer in expected for part in Layer._fields}:
            raise RefusedFile(
                f"{self.path}: has a features extractor of its own; only MlpPolicy and CnnPolicy are read"
            )
        *convolutions, features = (self._layer(prefix + name) for name in expected)
        return tuple(convolutions), features

    def log_std(self) -> dict[str, NDArray[np.float32]]:
        """log_std as a vector, as a layer, or none."""
        key = self.kind.log_std
        if key is None:
            return {}
        names = [name for name in self.arrays if name == key or name.startswith(f"{key}.")]
        parts = {name[name.index("log_std") :]: self.arrays[name].astype(np.float32) for name in names}
        layer = parts.keys() == {"log_std.weight", "log_std.bias"}
        if layer or (parts.keys() == {"log_std"} and parts["log_std"].ndim == 1):
            return parts
        raise RefusedFile(
            f"{self.path}: has no plain log_std of continuous actions; gSDE and discrete actions are not converted"
        )

    def activation(self) -> str:
        """Activation between the layers, by the text of the zip's settings."""
        name = self._setting("activation_fn", f"torch.nn.modules.activation.{self.kind.activation}")
        if name not in ACTIVATIONS:
            short = printable(name.rpartition(".")[2], 40)
            raise RefusedFile(f"{self.path}: has the activation {short}; only torch's ReLU and Tanh are converted")
        return ACTIVATIONS[name]

    def _setting(self, name: str, default: str) -> str:
        """A setting of the policy as text; of a class, its module and name."""
        settings = self.data.get("policy_kwargs")
        text = str(settings.get(name, default)) if isinstance(settings, dict) else default
        return text.removeprefix("<class '").removesuffix("'>")

    def refuse_other_settings(self) -> None:
        """Refuse a policy whose settings change its actions and are not read."""
        for name, values in READ.items():
            if (value := self._setting(name, values[0])) not in values:
                setting = printable(f"{name}={value}", 80)
                raise RefusedFile(f"{self.path}: its actions depend on {setting}, which is not read; {UNREAD_REMEDY}")

    def refuse_other_networks(self) -> None:
        """Refuse a policy with arrays that no network of its kind has, such as those of an LSTM."""
        parts = (self.kind.hidden, self.kind.mean, self.kind.log_std, self.kind.extractor, *OTHER_NETWORKS)
        prefixes = tuple(f"{part}." for part in parts if part)
        if unread := [name for name in self.arrays if not f"{name}.".startswith(prefixes)]:
            raise RefusedFile(f"{self.path}: holds {printable(unread[0], 80)}, which is not read; {UNREAD_REMEDY}")

    def algorithm(self) -> str:
        """Algorithm, by the settings that only it has."""
        match self.kind.hidden:
            case "q_net.q_net":
                return "dqn"
            case "actor.latent_pi":
                return "" if "top_quantiles_to_drop_per_net" in self.data else "sac"  # of TQC no suite has a score
            case "actor.mu":
                ddpg = self.data.get("policy_delay") == 1 and self.data.get("target_noise_clip") == 0
                return "ddpg" if ddpg else "td3"
            case _:
                return "ppo" if "clip_range" in self.data else "trpo" if "cg_max_steps" in self.data else "a2c"

    def refuse_other_bounds(self) -> None:
        """Refuse an actor that clips its actions to bounds other than ±1."""
        space = self.data.get("action_space")
        if self.kind.squash == "clip" and isinstance(space, dict):
            text = f"{space.get('low', '')} {space.get('high', '')}"
            if len(text) > MAX_BOUNDS or any(abs(float(edge)) != 1.0 for edge in re.findall(r"-?\d+(?:\.\d*)?", text)):
                raise RefusedFile(f"{self.path}: has actions outside [−1, 1] ({printable(text, 80)}); not converted")


def _read(path: Path, kinds: tuple[Kind, ...], expected: str) -> _Zip:
    """Read a zip whose actor is of one of the ``kinds``; refuse any other file as not ``expected``."""
    try:
        with disk.open_regular(path, links=True) as raw, zipfile.ZipFile(raw) as file:
            text = member(file, "data", TEXT, str(path))
            values = sum(map(text.count, (b"[", b"{", b",")))  # a replay buffer is one long text
            if values > VALUES:
                raise RefusedFile(f"{path}: data holds {values:,} values, {VALUES:,} are allowed; check the file")
            data = json.loads(text)
            weights = member(file, "policy.pth", WEIGHTS, str(path))
    except OSError as error:
        reason = error.strerror or error  # bz2 raises it without a number
        raise RefusedFile(f"{path}: cannot be read ({reason}); check the file and its permissions") from None
    except (
        *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
        *(NotImplementedError, EOFError, RuntimeError, ValueError),
    ) as error:
        raise RefusedFile(f"{path}: not a zip of Stable-Baselines3 ({error}); restore it") from None
    if not isinstance(data, dict):
        raise RefusedFile(f"{path}: data is no dictionary; expected a zip of Stable-Baselines3")
    arrays = tensors(weights, f"{path}/policy.pth")
    for kind in kinds:
        if any(f"{name}.weight" in arrays for name in (kind.mean, f"{kind.hidden}.0")):
            content = _Zip(path, data, arrays, kind)
            content.refuse_other_settings()
            content.refuse_other_networks()
            return content
    names = ", ".join(printable(name, 40) for name in sorted(arrays)[:4])
    raise RefusedFile(f"{path}: holds {names} …; expected {expected}")
