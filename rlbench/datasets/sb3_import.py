"""Import actors of Stable-Baselines3 from the zips of its ``save``, without unpickling.

A zip does not hold the statistics of ``VecNormalize``, so an actor that was trained with it plays badly.
"""

from __future__ import annotations

import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench import disk
from rlbench.datasets.policies import serialize
from rlbench.datasets.torchfile import Array, describe, member, tensors
from rlbench.errors import RefusedFile

TEXT: Final = 256 * 2**20  # bytes of ``data``, which may hold a replay buffer as text
VALUES: Final = 2**20  # JSON values of ``data``
WEIGHTS: Final = 512 * 2**20  # bytes of ``policy.pth``
BOUNDS: Final = ("-20", "2")  # of log_std of SAC and TQC

ACTIVATIONS: Final = {"ReLU": "relu", "Tanh": "tanh"}


class Kind(NamedTuple):
    """Names of the actor's layers in a family of algorithms."""

    hidden: str  # of hidden layers, followed by ``.N.weight``; N counts activations too
    mean: str | None  # of the last layer; None is the last of ``hidden``
    log_std: str | None
    squash: str
    activation: str  # default


KINDS: Final = {
    "SAC or TQC": Kind("actor.latent_pi", "actor.mu", "actor.log_std", "tanh", "ReLU"),
    "TD3 or DDPG": Kind("actor.mu", None, None, "tanh", "ReLU"),
    "PPO, A2C or TRPO": Kind("mlp_extractor.policy_net", "action_net", "log_std", "clip", "Tanh"),
}


def convert_sb3(path: Path, *, task: str) -> bytes:
    """Convert the actor of a zip to a policy file for ``task``, which the zip does not name.

    Raises:
        RefusedFile: it is no zip of Stable-Baselines3, or its actor cannot be converted.
    """
    data, weights = read_zip(path)
    modules = tensors(weights, f"{path}/policy.pth")
    family, kind = _family(modules, path)
    layers = layers_of(modules, kind, path)
    log_std = _log_std(modules, kind, path)
    _refuse_other_bounds(data, kind, path)
    hidden = len(layers) - 1
    layer_arrays = {f"layers.{i}": layer for i, layer in enumerate(layers[:-1])} | {"mean": layers[-1]}
    arrays = {
        f"{name}.{part}": array for name, layer in layer_arrays.items() for part, array in layer.items()
    } | log_std
    facts = {
        "format": "actor-v1",
        "name": path.stem,
        "algorithm": family,
        "env_evaluated": task,
        "input_dim": str(layers[0]["weight"].shape[-1]),
        "action_dim": str(len(layers[-1]["bias"])),
        "hidden_layers": str(hidden),
        "activation": activation_of(data, kind, path),
        "squash": kind.squash,
        "log_std": "none" if not log_std else "vector" if "log_std" in log_std else "layer",
        "log_std_min": BOUNDS[0] if kind.squash == "tanh" and log_std else "",
        "log_std_max": BOUNDS[1] if kind.squash == "tanh" and log_std else "",
        "source": "Stable-Baselines3",
    }
    return serialize(arrays, facts)


def read_zip(path: Path) -> tuple[dict[str, object], bytes]:
    """Read settings and weights of a zip.

    Raises:
        RefusedFile: it is no zip of Stable-Baselines3.
    """
    try:
        with disk.open_regular(path, links=True) as raw, zipfile.ZipFile(raw) as file:
            data = json.loads(_bounded_text(member(file, "data", TEXT, str(path)), path))
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
    return data, weights


def _bounded_text(raw: bytes, path: Path) -> bytes:
    """Refuse JSON of more values than fit into memory; a replay buffer is one long text."""
    values = sum(raw.count(sign) for sign in (b"[", b"{", b","))
    if values > VALUES:
        raise RefusedFile(f"{path}: data holds {values:,} values, {VALUES:,} are allowed; check the file")
    return raw


def _family(arrays: Mapping[str, Array], path: Path) -> tuple[str, Kind]:
    if any(name.startswith(("features_extractor.", "actor.features_extractor.")) for name in arrays):
        raise RefusedFile(f"{path}: has a features extractor; only plain layers are converted")
    for family, kind in KINDS.items():
        if f"{kind.mean or kind.hidden + '.0'}.weight" in arrays:
            return family, kind
    families = "; ".join(KINDS)
    raise RefusedFile(f"{path}: holds {describe(arrays)} …; expected an actor of plain layers of {families}")


def layers_of(arrays: Mapping[str, Array], kind: Kind, path: Path) -> list[dict[str, NDArray[np.float32]]]:
    """Weight ``[outputs, inputs]`` and bias ``[outputs]`` of every layer; the last one is the mean.

    Raises:
        RefusedFile: a layer has no bias.
    """
    pattern = re.compile(re.escape(kind.hidden) + r"\.(\d+)\.weight")
    numbers = sorted(int(match[1]) for name in arrays if (match := pattern.fullmatch(name)))
    names = [f"{kind.hidden}.{number}" for number in numbers] + ([kind.mean] if kind.mean else [])
    missing = [f"{name}.{part}" for name in names for part in ("weight", "bias") if f"{name}.{part}" not in arrays]
    if missing:
        raise RefusedFile(f"{path}: {missing[0]} is missing; only layers with a bias are converted")
    return [{part: arrays[f"{name}.{part}"].astype(np.float32) for part in ("weight", "bias")} for name in names]


def _log_std(arrays: Mapping[str, Array], kind: Kind, path: Path) -> dict[str, NDArray[np.float32]]:
    """log_std as a vector, as a layer, or none."""
    if kind.log_std is None:
        return {}
    names = [name for name in arrays if name == kind.log_std or name.startswith(f"{kind.log_std}.")]
    parts = {name[name.index("log_std") :]: arrays[name].astype(np.float32) for name in names}
    if parts.keys() == {"log_std.weight", "log_std.bias"} or (
        parts.keys() == {"log_std"} and parts["log_std"].ndim == 1
    ):
        return parts
    raise RefusedFile(
        f"{path}: has no plain log_std of continuous actions; gSDE and discrete actions are not converted"
    )


def activation_of(data: Mapping[str, object], kind: Kind, path: Path) -> str:
    """Activation between the layers, by the text of the zip's settings.

    Raises:
        RefusedFile: it is neither ReLU nor Tanh.
    """
    settings = data.get("policy_kwargs")
    text = str(settings.get("activation_fn", kind.activation)) if isinstance(settings, dict) else kind.activation
    name = text.removesuffix("'>").rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise RefusedFile(f"{path}: has the activation {name}; only {' and '.join(ACTIVATIONS)} are converted")
    return ACTIVATIONS[name]


def _refuse_other_bounds(data: Mapping[str, object], kind: Kind, path: Path) -> None:
    """Refuse an actor that clips its actions to bounds other than ±1."""
    space = data.get("action_space")
    if kind.squash == "clip" and isinstance(space, dict):
        edges = {
            number for side in ("low", "high") for number in re.findall(r"-?\d+(?:\.\d*)?", str(space.get(side, "")))
        }
        if any(abs(float(edge)) != 1.0 for edge in edges):
            raise RefusedFile(
                f"{path}: has actions outside [−1, 1] ({space.get('low')} to {space.get('high')}); not converted"
            )
