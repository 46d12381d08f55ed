"""What a run in another process tells of itself, and how such a run can end.

A line of JSON a record, through a pipe. Nothing that is told this way is needed to go on: the record on disk is the
truth, and a line that is lost loses a movement of a bar.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rlbench.records.types import Outcome, Progress
from rlbench.sweep.plan import Job

Status = Literal["done", "failed", "halted", "crashed", "refused", "running", "interrupted"]


@dataclass(frozen=True, slots=True)
class Begun:
    """The process holds the run's folder and goes on from so many steps."""

    steps: int  # live agent steps


@dataclass(frozen=True, slots=True)
class Said:
    """A line for people."""

    text: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The process is gone."""

    code: int  # minus the signal's number where one ended it
    reason: str  # the last line of its log
    lost: bool = False  # with the machine it ran on, through no fault of the run


Told: TypeAlias = Begun | Progress | Said
News: TypeAlias = Told | Exited


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """What became of one run."""

    job: Job
    status: Status
    reason: str
    outcome: Outcome | None
    log: Path | None  # of all its processes; None where this sweep started none
    attempts: int  # processes that have begun it, ever


def to_line(told: Told) -> str:
    """One line of JSON."""
    return json.dumps({"kind": type(told).__name__, **asdict(told)}, allow_nan=False)


def from_line(line: str) -> Told | None:
    """What a line tells; None where it is none of ours, or torn."""
    try:
        content = json.loads(line)
        match content.pop("kind"):
            case "Begun":
                return Begun(**content)
            case "Progress":
                return Progress(**content)
            case "Said":
                return Said(**content)
            case _:
                return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
