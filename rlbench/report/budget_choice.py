"""The choice of runs within a budget of hours: first the cells that decide most verdicts.

The rule. A cell that was never run needs the fewest seeds that a verdict takes, an inconclusive one as many as its
verdict asks for, a judged one none. Every verdict counts the same, so the cheapest comes first: no other choice of
cells gives more verdicts in the time. Three seeds may turn out too few; then the next plan says how many more.
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
    after: RemainingRuns | None  # the next in line, to be begun in the time that is left: runs resume
    hours: float  # of all rows, one after another
    beyond: int  # cells whose verdict takes more than is left
    unknown: int  # cells whose length nobody knows


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
    wanted = [asked for row in rows if row.runnable and (asked := _asked(row, verdicts)) is not None]
    known = sorted((row for row in wanted if row.hours is not None), key=lambda row: row.hours or 0.0)
    found: list[RemainingRuns] = []
    hours = 0.0
    for row in known:
        if hours + (row.hours or 0.0) > budget:
            break
        found.append(row)
        hours += row.hours or 0.0
    return Choice(
        rows=tuple(found),
        after=known[len(found)] if len(found) < len(known) else None,
        hours=hours,
        beyond=len(known) - len(found),
        unknown=len(wanted) - len(known),
    )


def _asked(row: RemainingRuns, verdicts: Mapping[CellKey, Verdict]) -> RemainingRuns | None:
    """The row with as many seeds as its verdict takes; None where it decides nothing, or lacks seeds to be given."""
    seeds = needed(verdicts.get(row.key, Verdict("NOT RUN")))
    if seeds is None or seeds > len(row.seeds):
        return None
    share = seeds / len(row.seeds)
    hours = None if row.hours is None else row.hours * share
    return replace(row, seeds=row.seeds[:seeds], steps=round(row.steps * share), hours=hours)
