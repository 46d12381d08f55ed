"""Trained actors as files: a policy is read whole or refused, and answers in numpy.

The format is ``actor-v1``: safetensors with ``layers.N``, ``mean`` and ``log_std``, and strings that say the rest. All
is computed in float64 and rounded once, at the action, so that the order in which a BLAS adds up almost never shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
LARGEST: Final = 64 * 2**20  # bytes of a file; a real actor has some hundred thousand


class Facts(BaseModel):
    """What the strings of a policy file say; an empty string is the default."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["actor-v1"] = "actor-v1"
    name: str
    env_evaluated: str  # the task it plays
    input_dim: int = Field(ge=1)  # of what the first layer sees
    action_dim: int = Field(ge=1)
    hidden_layers: int = Field(ge=0, le=16)
    activation: Literal["relu", "tanh", "none"]
    squash: Literal["tanh", "clip"]  # how an action is brought into [−1, 1]
    log_std: Literal["none", "vector", "layer"]
    log_std_min: float = -inf
    log_std_max: float = inf
    obs_pad_zeros: int = Field(default=0, ge=0)  # appended to an observation
    time_feature: bool = False  # then 1 − t/T is
    time_feature_max_steps: int = Field(default=1, ge=1)  # T
    obs_norm: bool = False
    obs_epsilon: float = Field(default=0.0, ge=0)  # added to the variance
    obs_clip: float = Field(default=inf, gt=0)  # of the normalised observation
    obs_keys: Literal[""] = ""  # of a dictionary of observations: no task here shows one


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
    """A function of observations."""

    facts: Facts
    sha256: str  # of the file it came from
    hidden: tuple[Dense, ...]
    mean: Dense
    log_std: Dense | Real | None
    scale: tuple[Real, Real] | None  # mean and deviation of what the first layer sees

    @property
    def observed(self) -> int:
        """Numbers in an observation of its task."""
        return self.facts.input_dim - self.facts.obs_pad_zeros - self.facts.time_feature

    def __call__(
        self, obs: NDArray[np.float32], elapsed: NDArray[np.int64], noise: Real | None = None
    ) -> NDArray[np.float32]:
        """Actions ``[N, A]`` in [−1, 1] at ``obs`` ``[N, F]``, ``elapsed`` ``[N]`` steps after the reset.

        ``noise`` ``[N, A]`` is standard normal; without it the policy's preferred action is given.
        """
        x = self._seen(obs, elapsed)
        for layer in self.hidden:
            x = _bent(layer(x), self.facts.activation)
        action = self.mean(x)
        if noise is not None:
            action = action + np.exp(self._log_std(x)) * noise
        return (np.tanh(action) if self.facts.squash == "tanh" else np.clip(action, -1, 1)).astype(np.float32)

    def fits(self, task: str, *, features: int, actions: int) -> None:
        """Refuse a task that the policy was not made for.

        Raises:
            UsageError: it was made for another task, or other widths.
        """
        known = self.facts
        if known.env_evaluated != task:
            raise UsageError(f"{known.name}: plays {known.env_evaluated}, not {task}; name its own task")
        if (self.observed, known.action_dim) != (features, actions):
            raise UsageError(
                f"{known.name}: maps {self.observed} numbers to {known.action_dim}, but {task} shows {features} "
                f"and takes {actions}; choose another policy"
            )

    def _seen(self, obs: NDArray[np.float32], elapsed: NDArray[np.int64]) -> Real:
        """What the first layer sees, ``[N, input_dim]``."""
        known, x = self.facts, np.asarray(obs, np.float64)
        columns = [x, np.zeros((len(x), known.obs_pad_zeros))]
        if known.time_feature:
            columns.append(1.0 - elapsed[:, None] / known.time_feature_max_steps)
        x = np.concatenate(columns, axis=1)
        if self.scale is None:
            return x
        mean, deviation = self.scale
        return np.clip((x - mean) / deviation, -known.obs_clip, known.obs_clip)

    def _log_std(self, x: Real) -> Real:
        if self.log_std is None:
            raise UsageError(f"{self.facts.name}: is deterministic, nothing can be sampled; use --deterministic")
        spread = self.log_std(x) if isinstance(self.log_std, Dense) else self.log_std
        return np.clip(spread, self.facts.log_std_min, self.facts.log_std_max)


def read(path: Path) -> Policy:
    """The policy in a file.

    Raises:
        RefusedFile: it is none; the message says what is wrong.
    """
    try:
        with disk.opened(path, largest=LARGEST, links=True) as file:
            raw = file.read()
    except OSError as error:
        raise RefusedFile(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from None
    return parsed(raw, str(path))


def parsed(raw: bytes, where: str) -> Policy:
    """The policy in the bytes of a file.

    Raises:
        RefusedFile: they are damaged, newer, or no policy.
    """
    try:
        arrays = load(raw)
        head = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise RefusedFile(f"{where}: not safetensors ({error}); expected an actor of the format actor-v1") from None
    try:
        told = {name: value for name, value in (head.get("__metadata__") or {}).items() if value != ""}
        facts = Facts.model_validate(told)
    except ValidationError as error:
        raise RefusedFile(f"{where}: not an actor of the format actor-v1 ({one_line(error)})") from None
    due = _shapes(facts, arrays)
    for name in sorted(due.keys() | arrays.keys()):
        _check(name, arrays.get(name), due.get(name), where)
    real = {name: array.astype(np.float64) for name, array in arrays.items()}
    layers = [Dense(real[f"{name}.weight"], real[f"{name}.bias"]) for name in _dense(facts)]
    hidden = facts.hidden_layers
    return Policy(
        facts=facts,
        sha256=sha256(raw).hexdigest(),
        hidden=tuple(layers[:hidden]),
        mean=layers[hidden],
        log_std=real.get("log_std", layers[-1] if facts.log_std == "layer" else None),
        scale=_scale(real, facts, where),
    )


def serialized(arrays: Arrays, facts: Mapping[str, str]) -> bytes:
    """The bytes of a file; equal contents give equal bytes, which safetensors' own writer does not promise."""
    head: dict[str, object] = {"__metadata__": dict(sorted(facts.items()))}
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


def _dense(facts: Facts) -> list[str]:
    """The names of the layers, first to last."""
    hidden = [f"layers.{number}" for number in range(facts.hidden_layers)]
    return [*hidden, "mean", *(["log_std"] if facts.log_std == "layer" else [])]


def _shapes(facts: Facts, arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """Every array that must be there; a hidden layer is as wide as its bias is long."""
    widths = [facts.input_dim]
    found: dict[str, tuple[int, ...]] = {}
    for name in _dense(facts):
        hidden = name.startswith("layers.")
        outputs = arrays[f"{name}.bias"].size if hidden and f"{name}.bias" in arrays else facts.action_dim
        found |= {f"{name}.weight": (outputs, widths[-1]), f"{name}.bias": (outputs,)}
        widths += [outputs] if hidden else []
    if facts.log_std == "vector":
        found["log_std"] = (facts.action_dim,)
    if facts.obs_norm:
        found |= {"obs_mean": (facts.input_dim,), "obs_var": (facts.input_dim,)}
    return found


def _check(name: str, array: NDArray[np.generic] | None, due: tuple[int, ...] | None, where: str) -> None:
    """Refuse an array that is missing, unknown, misshapen, or holds what is no number."""
    if array is None:
        raise RefusedFile(f"{where}: {name} is missing; restore the file")
    if due is None:
        raise RefusedFile(f"{where}: {name} is unknown to the format actor-v1; convert the file again")
    if array.shape != due or array.dtype.name not in DTYPES:
        raise RefusedFile(f"{where}: {name} is {array.dtype} {array.shape}; expected real numbers of shape {due}")
    if not np.isfinite(array).all():
        raise RefusedFile(f"{where}: {name} holds NaN or infinity; convert the file again")


def _scale(real: Mapping[str, Real], facts: Facts, where: str) -> tuple[Real, Real] | None:
    if not facts.obs_norm:
        return None
    variance = real["obs_var"] + facts.obs_epsilon
    if (variance <= 0).any():
        raise RefusedFile(f"{where}: obs_var holds a variance that is not positive; convert the file again")
    return real["obs_mean"], np.sqrt(variance)


def _bent(x: Real, activation: Literal["relu", "tanh", "none"]) -> Real:
    if activation == "none":
        return x
    return np.tanh(x) if activation == "tanh" else np.maximum(x, 0)
