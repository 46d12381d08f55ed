"""What was documented: every number with its source, and for each cell the one document it is judged against.

The numbers are package data; ``data/README.md`` says where they come from. The primary document of a cell is the
newest README of Tianshou, whose settings the suites have; everything else that speaks of the cell is listed with it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from rlbench.errors import RlbenchError

DATA = Path(__file__).parent / "data"
NEWEST = "README.md@f2402056b03a"
OPTIMUM = "known optimum"
"""The source of a score that nobody had to measure."""

NOT_ALGORITHMS = ("behaviour", "qrdqn-expert")
"""Rows that describe a data set, not what an algorithm made of it."""

Estimator = Literal["best-of-run", "max-of-mean", "max-of-iqm", "final", "final-iqm", "raw", "as-printed"]
"""How a score was made of a run's evaluations; see ``data/README.md``."""


class Key(NamedTuple):
    """What a cell of a table is about."""

    suite: str
    algorithm: str
    task: str
    dataset: str  # empty where the task is all there is


@dataclass(frozen=True, kw_only=True, slots=True)
class Documented:
    """One published number."""

    score: float
    std: float | None  # over seeds, as printed
    low: float | None  # of a printed interval
    high: float | None
    n: int | None  # seeds; None where the document does not say
    estimator: Estimator
    steps: str  # as printed
    metric: str  # the estimator in the document's own terms
    variant: str  # what was set differently from the script's defaults
    system: str
    source: str  # file and commit
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Everything documented about one cell."""

    key: Key
    primary: Documented
    others: tuple[Documented, ...]


def suites() -> list[str]:
    """Every suite that a document speaks of, in the order of the data."""
    return list(dict.fromkeys(key.suite for key, _ in _rows()))


def documented(suite: str) -> tuple[Cell, ...]:
    """The cells of a suite that have a primary document, in the order of the data."""
    if suite == "toy":
        return _optima()
    found: dict[Key, list[Documented]] = {}
    for key, document in _rows():
        if key.suite == suite and key.algorithm not in NOT_ALGORITHMS:
            found.setdefault(key, []).append(document)
    cells = []
    for key, documents in found.items():
        primary = next((d for d in documents if d.system == "Tianshou" and d.source.endswith(NEWEST)), None)
        if primary is not None:
            cells.append(Cell(key=key, primary=primary, others=tuple(d for d in documents if d is not primary)))
    return tuple(cells)


def primary(suite: str, algorithm: str, task: str) -> Documented | None:
    """What a cell is judged against, if anything."""
    key = Key(suite, algorithm, task, "")
    return next((cell.primary for cell in documented(suite) if cell.key == key), None)


def notes(key: Key) -> tuple[str, ...]:
    """What a reader must know before comparing with the document of this cell."""
    with (DATA / "notes.csv").open(encoding="utf-8", newline="") as file:
        return tuple(row["note"] for row in csv.DictReader(file) if _named(row, key))


def _optima() -> tuple[Cell, ...]:
    """The sanity suite: what the best policy gets, by arithmetic."""
    from rlbench.suites import toy

    return tuple(
        Cell(
            key=Key("toy", algorithm, task, ""),
            primary=Documented(
                score=score,
                std=None,
                low=None,
                high=None,
                n=None,
                estimator="best-of-run",
                steps="",
                metric="mean return of the best policy",
                variant="",
                system=OPTIMUM,
                source=OPTIMUM,
                note="",
            ),
            others=(),
        )
        for algorithm in toy.ALGORITHMS
        for task, score in toy.OPTIMUM.items()
        if (algorithm, task) not in toy.IMPOSSIBLE
    )


def _named(row: dict[str, str], key: Key) -> bool:
    """Whether a row of the notes, with its blank-separated globs, speaks of a cell."""
    pairs = ((key.suite, row["suite"]), (key.algorithm, row["algorithms"]), (key.task, row["tasks"]))
    return all(any(fnmatchcase(name, glob) for glob in globs.split()) for name, globs in pairs)


def _rows() -> list[tuple[Key, Documented]]:
    """Every row that holds a number."""
    with (DATA / "documented_scores.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["score"]]
    return [(Key(r["suite"], r["algorithm"], r["task"], r["dataset"]), _document(r)) for r in rows]


def _document(row: dict[str, str]) -> Documented:
    return Documented(
        score=float(row["score"]),
        std=_number(row["std"]),
        low=_number(row["low"]),
        high=_number(row["high"]),
        n=int(row["n"]) if row["n"] else None,
        estimator=_estimator(row["estimator"]),
        steps=row["steps"],
        metric=row["metric"],
        variant=row["variant"],
        system=row["system"],
        source=row["source"],
        note=row["note"],
    )


def _number(text: str) -> float | None:
    return float(text) if text else None


def _estimator(text: str) -> Estimator:
    known: tuple[Estimator, ...] = get_args(Estimator)
    for name in known:
        if text == name:
            return name
    raise RlbenchError(f"documented_scores.csv: unknown estimator {text!r}; known: {', '.join(known)}")
