"""Choose runs within a budget of hours so that most verdicts are decided.

A cell that was never run needs the fewest seeds of a verdict. An inconclusive one needs as many as its verdict says, a
decided one none. Verdicts have equal weight, so the cheapest comes first: no other choice gives more verdicts in the
time. Three seeds may turn out to be too few; the next plan then says how many more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rlbench.errors import UsageError
from rlbench.report.equal_steps import AtStep
from rlbench.report.reference_table import CellKey
from rlbench.report.remaining_work import RemainingRuns
from rlbench.report.verdict import FEWEST, MOST, Verdict

HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The runs that fit into a budget."""

    rows: tuple[RemainingRuns, ...]  # the cheapest verdict first, with the seeds it takes
    after: RemainingRuns | None  # the next row, which can begin in the remaining time and resume later
    hours: float  # of all rows, one after another
    beyond: int  # cells whose verdict takes more than the remaining hours
    unknown: int  # cells of unknown length


def parse_budget(text: str) -> float:
    """Hours, from ``90m``, ``2h``, ``1.5d``.

    Raises:
        UsageError: it is no length of time.
    """
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([mhd])", text)
    if match is None:
        raise UsageError(f"--budget {text}: not a length of time; write 90m, 2h or 1.5d")
    return float(match[1]) * HOURS[match[2]]


def needed(verdict: Verdict) -> int | None:
    """Seeds until a cell probably has a verdict; None where it has one, or none is in reach."""
    match verdict.word:
        case "NOT RUN" | "PARTIAL":
            return FEWEST
        case "INCONCLUSIVE":
            return verdict.more if verdict.more is not None and verdict.more <= MOST else None
        case _:
            return None


def stage(at: AtStep | None, until: int | None) -> Verdict:
    """A verdict at equal steps in the words of the full budget, for ``chosen`` with runs to ``until``."""
    if at is None or (at.word == "TOO EARLY" and until is not None and at.level.step < until):
        return Verdict("NOT RUN")
    return Verdict("INCONCLUSIVE", at.more) if at.word == "OPEN" else Verdict("REPRODUCED")


def chosen(rows: Sequence[RemainingRuns], verdicts: Mapping[CellKey, Verdict], budget: float) -> Choice:
    """The cells that decide most verdicts in ``budget`` hours of one run after another."""
    undecided = [
        needed_row for row in rows if row.runnable and (needed_row := _undecided_row(row, verdicts)) is not None
    ]
    priced = sorted((row for row in undecided if row.hours is not None), key=lambda row: row.hours or 0.0)
    affordable: list[RemainingRuns] = []
    hours = 0.0
    for row in priced:
        if hours + (row.hours or 0.0) > budget:
            break
        affordable.append(row)
        hours += row.hours or 0.0
    return Choice(
        rows=tuple(affordable),
        after=priced[len(affordable)] if len(affordable) < len(priced) else None,
        hours=hours,
        beyond=len(priced) - len(affordable),
        unknown=len(undecided) - len(priced),
    )


def _undecided_row(row: RemainingRuns, verdicts: Mapping[CellKey, Verdict]) -> RemainingRuns | None:
    """The row with as many seeds as its verdict needs; None if it is decided, or has too few seeds."""
    seeds = needed(verdicts.get(row.key, Verdict("NOT RUN")))
    if seeds is None or seeds > len(row.seeds):
        return None
    share = seeds / len(row.seeds)
    hours = None if row.hours is None else row.hours * share
    return replace(row, seeds=row.seeds[:seeds], steps=round(row.steps * share), hours=hours)
