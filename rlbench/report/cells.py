"""The cells of a table: what was documented, what was measured, and what the one says of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlbench.record.store import Record
from rlbench.report.documented import OPTIMUM, Documented, Estimator, Key, documented, notes
from rlbench.report.estimate import best_of_run, interval, mean
from rlbench.report.gather import Runs, gather
from rlbench.report.verdict import Verdict, against_optimum, against_run, with_failures

SUITES = ("atari", "mujoco", "offline", "goals", "toy")
"""Every suite that has a table; those without settings yet can only say NOT RUN."""

TOLERANCE = 0.05
"""How far below the known optimum the mean of a toy task may lie, as a share of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What our runs gave, by the document's own estimator."""

    score: float  # mean over seeds
    low: float | None  # of the 95 % t-interval of the mean; None for one seed
    high: float | None
    n: int  # seeds, failed ones included
    estimator: Estimator
    env_steps: int  # the fewest of any run that counts
    env_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One row of a table."""

    key: Key
    documented: Documented | None
    measured: Measured | None
    verdict: Verdict
    note: str


def every_cell(suites: Sequence[str], results: Path) -> tuple[Cell, ...]:
    """The cells of each suite: the documented ones in the documents' order, then what was measured beyond them."""
    runs = gather(results)
    found = []
    for suite in suites:
        documents = {cell.key: cell.primary for cell in documented(suite)}
        beyond = sorted(key for key in runs if key.suite == suite and key not in documents)
        found += [_cell(key, documents.get(key), runs.get(key, Runs())) for key in (*documents, *beyond)]
    return tuple(found)


def _cell(key: Key, document: Documented | None, runs: Runs) -> Cell:
    measured = _measured(runs.complete or ([] if runs.failed else runs.short), len(runs.failed))
    verdict = _verdict(document, runs)
    remarks = _remarks(key, document, runs, verdict)
    return Cell(key=key, documented=document, measured=measured, verdict=verdict, note="; ".join(remarks))


def _measured(records: Sequence[Record], failed: int) -> Measured | None:
    scored = [(record, score) for record in records if (score := best_of_run(record)) is not None]
    if not scored:
        return None
    scores = [score for _, score in scored]
    low, high = interval(scores) if len(scores) > 1 else (None, None)
    return Measured(
        score=mean(scores),
        low=low,
        high=high,
        n=len(scores) + failed,
        estimator="best-of-run",
        env_steps=min(_steps(record) for record, _ in scored),
        env_id=", ".join(sorted({_env_id(record) for record, _ in scored})),
    )


def _verdict(document: Documented | None, runs: Runs) -> Verdict:
    if not (runs.complete or runs.failed):
        return Verdict("PARTIAL") if runs.short else Verdict("NOT RUN")
    if document is None or document.estimator != "best-of-run":
        return Verdict("NOT COMPARABLE")
    scores = [score for record in runs.complete if (score := best_of_run(record)) is not None]
    if document.source == OPTIMUM:
        found = against_optimum(scores, document.score, TOLERANCE * abs(document.score))
    else:
        found = against_run(scores, document.score)
    return with_failures(found, len(runs.failed))


def _remarks(key: Key, document: Documented | None, runs: Runs, verdict: Verdict) -> list[str]:
    """What must stand beside the numbers, in a fixed order."""
    found = list(notes(key))
    if verdict.word == "NOT COMPARABLE":
        found.append(f"the document's {document.estimator} is not measured yet" if document else "not documented")
    if verdict.word == "PARTIAL":
        found.append(f"{max(_steps(record) for record in runs.short):,} of {runs.budget:,} steps")
    elif runs.short:
        found.append(f"{_count(len(runs.short), 'run')} short of the budget")
    if runs.failed:
        every = _count(len(runs.failed) + len(runs.complete), "run")
        found.append(f"{len(runs.failed)} of {every} failed, not in the mean")
    if runs.variants:
        found.append(f"{_count(runs.variants, 'run')} with other settings")
    return found


def _steps(record: Record) -> int:
    return record.epochs[-1].env_steps if record.epochs else 0


def _env_id(record: Record) -> str:
    """What stepped the environment, as the run noted it."""
    noted = record.environment.get("env")
    made = noted.get("env") if isinstance(noted, dict) else None
    return made if isinstance(made, str) else record.spec.task.id


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
