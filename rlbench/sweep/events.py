"""Events of a running job, and the ending of a job.

A worker process sends its events through a pipe, one line of JSON each. The record on disk holds everything that a
resume needs; a lost line costs one movement of a progress bar.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from rlbench.records.types import Epoch, Outcome, Progress
from rlbench.sweep.plan import Job

Status = Literal["done", "failed", "halted", "crashed", "refused", "running", "interrupted"]


@dataclass(frozen=True, slots=True)
class Begun:
    """The process holds the run's folder and trains from ``steps`` on."""

    steps: int  # of the budget


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochEnd:
    """Summary of an epoch."""

    number: int
    steps: int  # of the budget
    seconds: float  # wall clock of the run
    evaluation: float | None  # mean return
    episodes: int  # of the evaluation
    steps_per_second: float | None  # of collecting and learning; None offline


@dataclass(frozen=True, slots=True)
class Exited:
    """The process, or the run in this process, has ended."""

    code: int  # exit code; minus the signal's number after a signal
    reason: str  # last line of its log, or the error's text in this process
    lost: bool = False  # with its machine, through no fault of the run
    status: Status | None = None  # where the executor knows it


Message: TypeAlias = Begun | Progress | EpochEnd
Event: TypeAlias = Message | Exited

MESSAGES: Final = {kind.__name__: kind for kind in (Begun, Progress, EpochEnd)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """Result of one job."""

    job: Job
    status: Status
    reason: str
    outcome: Outcome | None
    started: bool  # by this sweep
    log: Path | None  # of the job's worker processes; None where this sweep started none
    attempts: int | None  # worker processes that have ever begun the run; None in this process
    is_paused: bool = False  # an evaluation has reached the step of ``--until``
    starts_over: bool = False  # it has not begun, and the folder holds the record that ``--force`` puts aside


def epoch_end(epoch: Epoch) -> EpochEnd:
    """Summarize an epoch's record."""
    evaluated, collected = epoch.evaluated, epoch.collected
    return EpochEnd(
        number=epoch.number,
        steps=epoch.steps,
        seconds=epoch.seconds,
        evaluation=evaluated.mean if evaluated else None,
        episodes=len(evaluated.returns) if evaluated else 0,
        steps_per_second=collected.steps_per_second if collected is not None and collected.steps else None,
    )


def to_line(message: Message) -> str:
    """Encode a message as one line of JSON."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}, allow_nan=False)


def from_line(line: str) -> Message | None:
    """Decode a line; None where it is torn or no message."""
    try:
        content = json.loads(line)
        return MESSAGES[content.pop("kind")](**content)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
