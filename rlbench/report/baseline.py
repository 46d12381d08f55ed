"""A baseline of a results folder for later runs: per cell one score per seed, and speeds by machine.

A run's score here is the level of its whole curve, which falls when learning slows down as well as when it ends lower.
Only finished runs of the documented settings count; failed, short and smoke runs never do.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from rlbench.config.names import check_name, clean_texts
from rlbench.errors import RefusedFile, UsageError, suggest_path
from rlbench.records import files
from rlbench.report.estimate import curve_mean
from rlbench.report.reference_table import CellKey
from rlbench.report.repeats import env_versions
from rlbench.report.runs import Run

if TYPE_CHECKING:
    from rlbench.report.run_index import Runs

SCHEMA_VERSION = 1
KIND = "rlbench baseline"
MAX_VALUE = 1e100  # score or speed; the square of a larger one overflows


def _check_key(key: CellKey) -> CellKey:
    return CellKey(*(text and check_name(text) for text in key))


def _seed(name: object) -> object:
    """Parse a seed of a file; ``00`` is refused, since it would be a second seed 0."""
    if isinstance(name, str) and str(int(name)) != name:
        raise ValueError(name)
    return name


Number = Annotated[float, Field(strict=True, ge=-MAX_VALUE, le=MAX_VALUE)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One cell of a baseline."""

    key: Annotated[CellKey, AfterValidator(_check_key)]
    id: Annotated[str, AfterValidator(check_name)]  # of the settings
    scores: Annotated[Mapping[Annotated[int, BeforeValidator(_seed)], Number], Field(min_length=1)]  # by seed
    speeds: Mapping[str, Annotated[tuple[Number, ...], Field(min_length=1)]]  # steps/s of each run, by machine
    versions: str = ""  # of the environment; empty if unknown


def _refuse_twins(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if len({entry.key for entry in entries}) < len(entries):
        raise ValueError("a cell twice is ambiguous")
    return entries


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The cells of a baseline."""

    entries: Annotated[tuple[Entry, ...], AfterValidator(_refuse_twins)]
    commits: tuple[str, ...]  # of the code that trained the runs
    machines: tuple[str, ...]  # classes of machine that trained the runs


def machine_of(run: Run) -> str:
    """The class of machine of a run: its accelerator and its processor."""
    environment = run.environment
    device = environment.get("gpu") or str(environment.get("device", "unknown device")).split(":")[0]
    return f"{device}, {environment.get('cpu', 'unknown processor')}"


def curve_score(run: Run) -> float:
    """The score of an evaluated run: the mean of its whole curve."""
    return curve_mean(run.evaluations, run.budget)


def speed(run: Run) -> float | None:
    """The run's agent steps a second: the median of its epochs; None before it learns."""
    return statistics.median(run.speeds) if run.speeds else None


def baseline_of(runs_by_cell: Mapping[CellKey, Runs]) -> Baseline:
    """The baseline of a results folder."""
    entries = [_entry(key, runs.complete) for key, runs in sorted(runs_by_cell.items()) if runs.complete]
    every = [run for runs in runs_by_cell.values() for run in runs.complete]
    return Baseline(
        entries=tuple(entries),
        commits=tuple(sorted({str(run.environment.get("commit")) for run in every})),
        machines=tuple(sorted({machine_of(run) for run in every})),
    )


def baseline_text(baseline: Baseline) -> str:
    """The text of a baseline file: indented JSON with a checksum."""
    content: dict[str, object] = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "commits": list(baseline.commits),
        "machines": list(baseline.machines),
        "cells": [
            {
                **entry.key._asdict(),
                "id": entry.id,
                "scores": {str(seed): score for seed, score in entry.scores.items()},
                "speeds": {machine: list(speeds) for machine, speeds in entry.speeds.items()},
                "versions": entry.versions,
            }
            for entry in baseline.entries
        ],
    }
    return json.dumps(json.loads(files.seal(content)), indent=1, ensure_ascii=False) + "\n"


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file.

    Raises:
        RefusedFile: it is damaged, newer than this version, or no baseline.
        UsageError: there is no such file.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such baseline{suggest_path(path)}; make one with: rlbench baseline save {path}")
    text, remedy = files.read_text(path.resolve()), "make one with: rlbench baseline save NEW.json"
    if not text.lstrip().startswith("{"):
        raise RefusedFile(f"{path}: not a baseline; {remedy}")
    try:
        content = clean_texts(files.unseal(text, str(path)))
    except RefusedFile as error:
        raise RefusedFile(str(error).replace("start over with --force", remedy)) from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise RefusedFile(f"{path}: not a baseline; {remedy}")
    try:
        entries = [{**cell, "key": [cell[name] for name in CellKey._fields]} for cell in content["cells"]]
        return TypeAdapter(Baseline).validate_python({**content, "entries": entries})
    except (KeyError, TypeError, ValueError):  # a ValidationError is a ValueError
        raise RefusedFile(f"{path}: not a baseline of this schema; make it again") from None


def _entry(key: CellKey, runs: Sequence[Run]) -> Entry:
    speeds: dict[str, list[float]] = {}
    for run in runs:
        steps_per_second = speed(run)
        if steps_per_second is not None:
            speeds.setdefault(machine_of(run), []).append(steps_per_second)
    return Entry(
        key=key,
        id=runs[0].id,
        scores={run.seed: curve_score(run) for run in runs if run.evaluations},
        speeds={machine: tuple(values) for machine, values in sorted(speeds.items())},
        versions=next(filter(None, map(env_versions, runs)), ""),
    )
