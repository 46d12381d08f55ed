"""Trained actors as files, computed by numpy.

The format is ``actor-v1``: safetensors with ``layers.N``, ``mean`` and ``log_std``, and metadata strings. Actions are
computed in float64 and rounded once, so that the summation order of a BLAS almost never changes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load

from rlbench import disk
from rlbench.config.overrides import one_line
from rlbench.errors import RefusedFile, UsageError

Real: TypeAlias = NDArray[np.float64]
Arrays: TypeAlias = Mapping[str, NDArray[np.generic]]
DTYPES: Final = {"float32": "F32", "float64": "F64"}
ACTIVATIONS: Final[Mapping[str, Callable[[Real], Real]]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "none": lambda x: x,
}
MAX_BYTES: Final = 64 * 2**20  # bytes of a file; typical actors have some hundred thousand
MAX_NUMBER: Final = 10**9


class Metadata(BaseModel):
    """Metadata strings of a policy file; an empty string is the default."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["actor-v1"] = "actor-v1"
    name: str
    env_evaluated: str  # the task it acts in
    input_dim: int = Field(ge=1, le=MAX_NUMBER)  # of the first layer
    action_dim: int = Field(ge=1, le=MAX_NUMBER)
    hidden_layers: int = Field(ge=0, le=16)
    activation: Literal["relu", "tanh", "none"]
    squash: Literal["tanh", "clip"]  # map of an action to [−1, 1]
    log_std: Literal["none", "vector", "layer"]
    log_std_min: float = -inf
    log_std_max: float = inf
    obs_pad_zeros: int = Field(default=0, ge=0, le=MAX_NUMBER)  # number of zeros appended to an observation
    time_feature: bool = False  # 1 − t/T is appended
    time_feature_max_steps: int = Field(default=1, ge=1, le=MAX_NUMBER)  # T
    obs_norm: bool = False
    obs_epsilon: float = Field(default=0.0, ge=0)  # added to the variance
    obs_clip: float = Field(default=inf, gt=0)  # of the normalised observation
    obs_keys: Literal[""] = ""  # dictionary observations are not supported


class Dense(NamedTuple):
    """One linear layer."""

    weight: Real  # [outputs, inputs]
    bias: Real  # [outputs]

    def __call__(self, x: Real) -> Real:
        """``[N, inputs]`` to ``[N, outputs]``."""
        y: Real = x @ self.weight.T + self.bias
        return y


@dataclass(frozen=True, slots=True)
class Policy:
    """Actor of a policy file."""

    metadata: Metadata
    sha256: str  # of the file it came from
    hidden: tuple[Dense, ...]
    mean: Dense
    log_std: Dense | Real | None
    scale: tuple[Real, Real] | None  # mean and std of the first layer's input

    @property
    def obs_size(self) -> int:
        """Size of an observation of its task."""
        return self.metadata.input_dim - self.metadata.obs_pad_zeros - self.metadata.time_feature

    def __call__(
        self, obs: NDArray[np.float32], elapsed: NDArray[np.int64], noise: Real | None = None
    ) -> NDArray[np.float32]:
        """Actions ``[N, A]`` in [−1, 1] at ``obs`` ``[N, F]``, ``elapsed`` ``[N]`` steps after the reset.

        ``noise`` ``[N, A]`` is standard normal; without it the action is deterministic.
        """
        x = self._input(obs, elapsed)
        for layer in self.hidden:
            x = ACTIVATIONS[self.metadata.activation](layer(x))
        action = self.mean(x)
        if noise is not None:
            action = action + np.exp(self._log_std(x)) * noise
        return (np.tanh(action) if self.metadata.squash == "tanh" else np.clip(action, -1, 1)).astype(np.float32)

    def fits(self, task: str, *, features: int, actions: int) -> None:
        """Check that the policy fits a task.

        Raises:
            UsageError: it was trained for another task, or has other sizes.
        """
        metadata = self.metadata
        if metadata.env_evaluated != task:
            raise UsageError(f"{metadata.name}: plays {metadata.env_evaluated}, not {task}; name its own task")
        if (self.obs_size, metadata.action_dim) != (features, actions):
            raise UsageError(
                f"{metadata.name}: maps {self.obs_size} numbers to {metadata.action_dim}, but {task} shows {features} "
                f"and takes {actions}; choose another policy"
            )

    def _input(self, obs: NDArray[np.float32], elapsed: NDArray[np.int64]) -> Real:
        """Input of the first layer, ``[N, input_dim]``."""
        metadata, x = self.metadata, np.asarray(obs, np.float64)
        columns = [x, np.zeros((len(x), metadata.obs_pad_zeros))]
        if metadata.time_feature:
            columns.append(1.0 - elapsed[:, None] / metadata.time_feature_max_steps)
        x = np.concatenate(columns, axis=1)
        if self.scale is None:
            return x
        mean, std = self.scale
        return np.clip((x - mean) / std, -metadata.obs_clip, metadata.obs_clip)

    def _log_std(self, x: Real) -> Real:
        if self.log_std is None:
            raise UsageError(f"{self.metadata.name}: is deterministic, nothing can be sampled; use --deterministic")
        log_std = self.log_std(x) if isinstance(self.log_std, Dense) else self.log_std
        return np.clip(log_std, self.metadata.log_std_min, self.metadata.log_std_max)


def read_policy_file(path: Path) -> Policy:
    """Read the policy of a file.

    Raises:
        RefusedFile: the file is no policy; the message names the fault.
    """
    try:
        with disk.open_regular(path, max_bytes=MAX_BYTES, links=True) as file:
            raw = file.read()
    except OSError as error:
        raise RefusedFile(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from None
    return parse_policy(raw, str(path))


def parse_policy(raw: bytes, where: str) -> Policy:
    """Parse the policy in the bytes of a file.

    Raises:
        RefusedFile: they are damaged, newer, or no policy.
    """
    try:
        arrays = load(raw)
        head = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise RefusedFile(f"{where}: not safetensors ({error}); expected an actor of the format actor-v1") from None
    try:
        strings = {name: value for name, value in (head.get("__metadata__") or {}).items() if value != ""}
        metadata = Metadata.model_validate(strings)
    except ValidationError as error:
        raise RefusedFile(f"{where}: not an actor of the format actor-v1 ({one_line(error)})") from None
    shapes = _shapes(metadata, arrays)
    for name in sorted(shapes.keys() | arrays.keys()):
        _check(name, arrays.get(name), shapes.get(name), where)
    real = {name: array.astype(np.float64) for name, array in arrays.items()}
    layers = [Dense(real[f"{name}.weight"], real[f"{name}.bias"]) for name in _dense(metadata)]
    hidden = metadata.hidden_layers
    return Policy(
        metadata=metadata,
        sha256=sha256(raw).hexdigest(),
        hidden=tuple(layers[:hidden]),
        mean=layers[hidden],
        log_std=real.get("log_std", layers[-1] if metadata.log_std == "layer" else None),
        scale=_scale(real, metadata, where),
    )


def serialize(arrays: Arrays, metadata: Mapping[str, str]) -> bytes:
    """Bytes of a policy file; equal contents give equal bytes, unlike safetensors' own writer."""
    head: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
    blocks, start = [], 0
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0])):  # aligned
        block = array.tobytes()
        head[name] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": [start, start + len(block)],
        }
        blocks.append(block)
        start += len(block)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(blocks)


def _dense(metadata: Metadata) -> list[str]:
    hidden = [f"layers.{number}" for number in range(metadata.hidden_layers)]
    return [*hidden, "mean", *(["log_std"] if metadata.log_std == "layer" else [])]


def _shapes(metadata: Metadata, arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """Shapes of the required arrays; a hidden layer has the width of its bias."""
    widths = [metadata.input_dim]
    shapes: dict[str, tuple[int, ...]] = {}
    for name in _dense(metadata):
        hidden = name.startswith("layers.")
        outputs = arrays[f"{name}.bias"].size if hidden and f"{name}.bias" in arrays else metadata.action_dim
        shapes |= {f"{name}.weight": (outputs, widths[-1]), f"{name}.bias": (outputs,)}
        widths += [outputs] if hidden else []
    if metadata.log_std == "vector":
        shapes["log_std"] = (metadata.action_dim,)
    if metadata.obs_norm:
        shapes |= {"obs_mean": (metadata.input_dim,), "obs_var": (metadata.input_dim,)}
    return shapes


def _check(name: str, array: NDArray[np.generic] | None, shape: tuple[int, ...] | None, where: str) -> None:
    """Refuse an array that is missing, unknown, of another shape, or not finite."""
    if array is None:
        raise RefusedFile(f"{where}: {name} is missing; restore the file")
    if shape is None:
        raise RefusedFile(f"{where}: {name} is unknown to the format actor-v1; convert the file again")
    if array.shape != shape or array.dtype.name not in DTYPES:
        raise RefusedFile(f"{where}: {name} is {array.dtype} {array.shape}; expected real numbers of shape {shape}")
    if not array.size:  # then the bytes of the file bound no other size
        raise RefusedFile(f"{where}: {name} has no elements; convert the file again")
    if not np.isfinite(array).all():
        raise RefusedFile(f"{where}: {name} holds NaN or infinity; convert the file again")


def _scale(real: Mapping[str, Real], metadata: Metadata, where: str) -> tuple[Real, Real] | None:
    if not metadata.obs_norm:
        return None
    variance = real["obs_var"] + metadata.obs_epsilon
    if (variance <= 0).any():
        raise RefusedFile(f"{where}: obs_var holds a variance that is not positive; convert the file again")
    return real["obs_mean"], np.sqrt(variance)
