"""What passes between a run and the processes that judge its policies: facts in JSON, tensors as safetensors.

To a judge go frames, two lengths before their two parts; from it come lines. Nothing that is read can run code.
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

LENGTHS: Final = Struct("<QQ")  # bytes of the facts and of the tensors


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a judge is told once; with it go the mean and deviation of observations, where there are any."""

    spec: str  # as JSON
    threads: int  # of torch, as many as judge within the training, for equal numbers


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """A policy to be judged, whose parameters go with it."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """An evaluation is under way, and so many of its games have ended."""

    games: int


@dataclass(frozen=True, slots=True)
class EvaluationFailure:
    """It cannot be judged."""

    kind: str  # of error
    message: str
    trace: str


Reply: TypeAlias = EvaluationProgress | Evaluated | EvaluationFailure


def packed(facts: WorkerConfig | EvaluationRequest, tensors: Mapping[str, Tensor]) -> bytes:
    """A frame of facts and of tensors ``[...]`` by name."""
    words, numbers = json.dumps(asdict(facts)).encode(), save(dict(tensors))
    return LENGTHS.pack(len(words), len(numbers)) + words + numbers


def terms_of(source: BinaryIO) -> tuple[WorkerConfig, dict[str, Tensor]] | None:
    """The frame that comes first, with its tensors ``[D]``; None where nobody writes any more."""
    found = _frame(source)
    return None if found is None else (WorkerConfig(**json.loads(found[0])), load(found[1]))


def question_of(source: BinaryIO) -> tuple[EvaluationRequest, dict[str, Tensor]] | None:
    """The next one, with its tensors ``[...]``."""
    found = _frame(source)
    return None if found is None else (EvaluationRequest(**json.loads(found[0])), load(found[1]))


def _frame(source: BinaryIO) -> tuple[bytes, bytes] | None:
    """Both parts of a frame, waited for; one that is torn is none."""
    head = source.read(LENGTHS.size)
    if len(head) < LENGTHS.size:
        return None
    words, numbers = LENGTHS.unpack(head)
    found = source.read(words), source.read(numbers)
    return found if len(found[0]) == words and len(found[1]) == numbers else None


def to_line(told: Reply) -> bytes:
    """A line of JSON."""
    return (json.dumps({"told": type(told).__name__, **asdict(told)}) + "\n").encode()


def from_line(line: str) -> Reply:
    """What a judge has told."""
    content = json.loads(line)
    match content.pop("told"):
        case "EvaluationProgress":
            return EvaluationProgress(**content)
        case "EvaluationFailure":
            return EvaluationFailure(**content)
        case _:
            games = {name: tuple(content[name]) for name in ("returns", "lengths", "seeds")}
            return Evaluated(**games, seconds=content["seconds"])
