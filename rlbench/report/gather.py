"""From a results folder to the runs of each cell: which count, which are too short, which are something else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rlbench import suites
from rlbench.errors import UnknownName, UsageError
from rlbench.record.store import PARTS, Record, read
from rlbench.report.documented import Key
from rlbench.spec.run import Spec


@dataclass(slots=True)
class Runs:
    """The runs of one cell, by what they can say about it."""

    complete: list[Record] = field(default_factory=list)  # the documented settings, carried to their end
    failed: list[Record] = field(default_factory=list)  # the documented settings; the run could not go on
    short: list[Record] = field(default_factory=list)  # the documented settings, but fewer steps or not yet ended
    variants: int = 0  # runs with any other setting
    budget: int = 0  # documented steps of a run


def folders(results: Path) -> Iterator[Path]:
    """Every run's folder below ``results``, in order of name; what ``--force`` put aside is not a run."""
    if results.exists() and not results.is_dir():
        raise UsageError(f"{results}: not a folder; choose a folder of records with --results")
    for place, names, _ in os.walk(results):
        names[:] = sorted(n for n in names if not n.startswith(("attempt-", ".")))
        if Path(place).name.startswith("seed="):
            names.clear()
            if any(Path(place, part).exists() for part in PARTS):
                yield Path(place)


def gather(results: Path) -> dict[Key, Runs]:
    """The runs below ``results`` by cell; a smoke run belongs to none.

    Raises:
        RefusedFile: a record is damaged or newer than this version; the message names the file.
        UsageError: ``results`` is not a folder.
    """
    found: dict[Key, Runs] = {}
    for folder in folders(results):
        record = read(folder)
        if not record.spec.smoke:
            _sort(record, found.setdefault(key_of(record.spec), Runs()))
    for runs in found.values():
        settled = {r.spec.seed for r in (*runs.complete, *runs.failed)}
        runs.short = [r for r in runs.short if r.spec.seed not in settled]
        for group in (runs.complete, runs.failed, runs.short):
            group.sort(key=lambda r: (r.spec.seed, str(r.folder)))
    return found


def key_of(spec: Spec) -> Key:
    """The cell that a run speaks of."""
    return Key(spec.suite, spec.algorithm, spec.task.id, "")


def _sort(record: Record, runs: Runs) -> None:
    usual = _reference(record.spec.suite, record.spec.algorithm, record.spec.task.id)
    spec = record.spec.model_copy(update={"seed": 0})
    runs.budget = usual.budget.steps if usual else 0
    if usual is None or spec.model_copy(update={"budget": usual.budget}) != usual:
        runs.variants += 1
    elif spec == usual:
        ended = record.outcome.status if record.outcome else "interrupted"
        {"done": runs.complete, "failed": runs.failed, "interrupted": runs.short}[ended].append(record)
    elif _shorter(spec, usual):
        runs.short.append(record)
    else:
        runs.variants += 1


def _shorter(spec: Spec, usual: Spec) -> bool:
    """Whether the number of steps is smaller and the rest of the budget the same."""
    steps = usual.budget.steps
    return spec.budget.steps < steps and spec.budget.model_copy(update={"steps": steps}) == usual.budget


@cache
def _reference(suite: str, algorithm: str, task: str) -> Spec | None:
    """The documented settings of a cell, or None where this version has none."""
    try:
        return suites.spec(suite, algorithm, task)
    except UnknownName:
        return None
