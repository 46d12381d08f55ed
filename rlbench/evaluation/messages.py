"""Messages between a run and its evaluation workers: JSON and safetensors, neither of which can run code.

A worker reads frames of two lengths, JSON and tensors; it writes lines of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from struct import Struct
from typing import BinaryIO, Final, TypeAlias

from safetensors.torch import load, save
from torch import Tensor

from rlbench.records.types import Evaluated

LENGTHS: Final = Struct("<QQ")  # bytes of JSON and of tensors


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Configuration of a worker; its tensors are mean and std of observations, where these are normalized."""

    spec: str  # as JSON
    threads: int  # threads of torch, as many as in evaluation within the run, for equal numbers


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """Evaluate a policy, whose parameters are the tensors."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """Number of ended games of the running evaluation."""

    games: int


@dataclass(frozen=True, slots=True)
class EvaluationFailure:
    """Error that ended the evaluation."""

    kind: str  # class of the error
    message: str
    trace: str


Reply: TypeAlias = EvaluationProgress | Evaluated | EvaluationFailure


def frame(message: WorkerConfig | EvaluationRequest, tensors: Mapping[str, Tensor]) -> bytes:
    """Serialize a message and its tensors ``[...]`` by name."""
    text, arrays = json.dumps(asdict(message)).encode(), save(dict(tensors))
    return LENGTHS.pack(len(text), len(arrays)) + text + arrays


def read_config(source: BinaryIO) -> tuple[WorkerConfig, dict[str, Tensor]] | None:
    """Read the first frame, with its tensors ``[D]``; None at the end of the pipe."""
    parts = _read_frame(source)
    return None if parts is None else (WorkerConfig(**json.loads(parts[0])), load(parts[1]))


def read_request(source: BinaryIO) -> tuple[EvaluationRequest, dict[str, Tensor]] | None:
    """Read the next request, with its tensors ``[...]``; None at the end of the pipe."""
    parts = _read_frame(source)
    return None if parts is None else (EvaluationRequest(**json.loads(parts[0])), load(parts[1]))


def _read_frame(source: BinaryIO) -> tuple[bytes, bytes] | None:
    """Wait for both parts of a frame; None at the end of the pipe, also within a frame."""
    head = source.read(LENGTHS.size)
    if len(head) < LENGTHS.size:
        return None
    text, arrays = LENGTHS.unpack(head)
    parts = source.read(text), source.read(arrays)
    return parts if len(parts[0]) == text and len(parts[1]) == arrays else None


def to_line(reply: Reply) -> bytes:
    """Serialize a reply as a line of JSON."""
    return (json.dumps({"type": type(reply).__name__, **asdict(reply)}) + "\n").encode()


def from_line(line: str) -> Reply:
    """Parse a line of a worker."""
    content = json.loads(line)
    match content.pop("type"):
        case "EvaluationProgress":
            return EvaluationProgress(**content)
        case "EvaluationFailure":
            return EvaluationFailure(**content)
        case _:
            games = {name: tuple(content[name]) for name in ("returns", "lengths", "seeds")}
            return Evaluated(**games, seconds=content["seconds"])
