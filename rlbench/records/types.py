"""Records of a run as frozen dataclasses of plain numbers."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from rlbench.config.names import printable

METRIC: Final = re.compile(r"[a-z_]{1,40}")
MAX_RETURN: Final = 1e50  # absolute raw points of an episode; the fourth power of more is no float

# In a record of others any number may stand; NaN is in no range.
Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e15)]
Points = Annotated[float, Field(ge=-MAX_RETURN, le=MAX_RETURN)]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCounts:
    """Steps of a run so far."""

    env_steps: Count  # agent steps; frames = steps × frame skip
    updates: Count  # gradient steps

    @property
    def steps(self) -> int:
        """Unit of the budget: agent steps, or gradient steps in offline training."""
        return self.env_steps or self.updates


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress(StepCounts):
    """Progress of a run after a vector step, after offline updates, or during an evaluation; never stored."""

    last_return: float | None  # raw points of the last training game
    evaluated: int | None = None  # ended games of the running evaluation; None while training


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """Training games of an epoch."""

    episodes: Count  # games that ended
    steps: Count  # agent steps, of ended and unended games
    returns: tuple[Points, ...]  # raw points per ended game, over all its lives
    lengths: tuple[Count, ...]  # agent steps per ended game
    steps_per_second: Seconds  # of the whole epoch: acting, emulating and learning


@dataclass(frozen=True, kw_only=True, slots=True)
class Updated:
    """Means over an epoch's gradient steps of a learner; its module in ``algorithms`` says of which metrics."""

    count: int  # gradient steps
    means: dict[str, float]  # by metric


def _updated(line: object) -> object:
    """The means of a line, beside their count; those of older lines of ICM in a branch ``learned`` too."""
    if not isinstance(line, dict):
        return line
    branch = line["learned"] if isinstance(line.get("learned"), dict) else {}
    numbers = {name: value for name, value in {**branch, **line}.items() if value is not branch}
    count = numbers.pop("count", None)
    for name, value in [("count", count), *numbers.items()]:
        if not METRIC.fullmatch(name) or type(value) not in {int, float} or not abs(value) <= sys.float_info.max:
            raise ValueError(f"{printable(name, 40)!r} is no metric with a number")
    return Updated(count=count, means={name: float(value) for name, value in numbers.items()})


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """One evaluation: every game, env by env."""

    returns: Annotated[tuple[Points, ...], Field(min_length=1)]  # raw points per game
    lengths: tuple[Count, ...]  # agent steps per game
    seeds: tuple[int, ...]  # seed of the env of each game
    seconds: Seconds  # wall clock

    @property
    def mean(self) -> float:
        """The score of this evaluation."""
        return sum(self.returns) / len(self.returns)


@dataclass(frozen=True, kw_only=True, slots=True)
class Epoch(StepCounts):
    """Record of an epoch; number 0 is the untrained policy."""

    number: Count
    seconds: Seconds  # wall clock so far, over all attempts
    collected: Collected | None  # None in offline training
    updated: Annotated[Updated | None, BeforeValidator(_updated)]  # None before the first update
    evaluated: Evaluated | None


def plain(epoch: Epoch) -> dict[str, object]:
    """An epoch as JSON has it: the means of its updates stand beside their count."""
    updated = epoch.updated
    return {**asdict(epoch), "updated": updated and {"count": updated.count, **updated.means}}


Status = Literal["done", "failed", "interrupted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome(StepCounts):
    """End of a run, or its interruption."""

    status: Status
    reason: str
    epochs: Count
    seconds: Seconds  # wall clock
    final: Points | None  # mean return of the last evaluation
    best: Points | None  # highest mean return of any evaluation
    best_epoch: Count | None
    weights: str | None  # SHA-256 of the policy's parameters
    inexact: tuple[Count, ...] = ()  # steps, in units of the budget, of each resume that was not bit for bit
    environments_sha256: str | None = None  # of the environments in spec.json; None of older code
    epochs_sha256: str | None = None  # of the lines of epochs.jsonl; None of older code


Estimator = Literal[
    "best-of-run", "max-of-mean", "max-of-iqm", "final", "final-iqm", "raw", "as-printed", "normalized",
    "normalized-best", "normalized-final", "normalized-last-ten", "normalized-best-of-last-two",
]  # fmt: skip
"""The estimator of a score from a run's evaluations; see ``data/README.md``."""
