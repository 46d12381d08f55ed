"""Pairs of cells of two results folders: per folder one setting of each cell, under the same protocol."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rlbench.errors import UnknownName
from rlbench.report.imported_runs import with_imported
from rlbench.report.reference_table import CellKey, task_name
from rlbench.report.repeats import file_of
from rlbench.report.run_index import Runs, gather, setting
from rlbench.report.runs import Run

RULES: Final = ("task", "protocol", "budget")
"""The parts of a Spec that define the measurement: scores are comparable only if they are equal."""

ENDED: Final = frozenset({"done", "failed"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The runs of one setting of a cell; failed ones count, and at equal steps those that have not ended."""

    runs: Runs
    usual: bool  # the documented setting


class Matched(NamedTuple):
    """The cells that two folders share."""

    pairs: tuple[tuple[CellKey, Side, Side], ...]
    left_out: tuple[str, ...]  # cells that both have and that are not compared, each with the reason


def matched(
    first: Mapping[CellKey, Runs],
    second: Mapping[CellKey, Runs],
    names: tuple[str, str],
    *,
    at: bool = False,
    algorithms: bool = False,
) -> Matched:
    """Match the cells of two sides: by the documented setting if a side has it, or else by its only other one.

    ``at``: at equal steps, so that runs that have not ended count and budgets may differ. ``algorithms``: the sides are
    two algorithms, whose documented settings may differ in everything, and others in everything but their steps.
    """
    pairs, left_out = [], []
    for key in sorted(set(first) & set(second)):
        a, b = (_settings(side[key], at=at) for side in (first, second))
        held = zip(names, (a, b), strict=True)
        several = [_several(name, settings) for name, settings in held if len(settings) > 1]
        if not a or not b:
            continue
        unlike = [] if several else _unequal_steps(a[0], b[0]) if algorithms else _unlike(a[0], b[0])
        unlike = [rule for rule in unlike if not at or rule != "budget"]
        if several or unlike:
            remedy = _equal_budget(a[0], b[0]) if "budget" in unlike else ""
            why = several or [f"they differ in {', '.join(unlike)}{remedy}"]
            left_out.append(f"{_name(key)}: {'; '.join(why)}")
            continue
        pairs.append((key, a[0], b[0]))
        for name, side, settings in zip(names, (first, second), (a, b), strict=True):
            apart = [run for run in side[key].other_files if run.status in ENDED]
            if settings[0].usual and apart:
                left_out.append(f"{_name(key)}: {len(apart)} of {name} on another file of that name")
    return Matched(tuple(pairs), tuple(left_out))


def folder_side(name: str) -> tuple[Path, str] | None:
    """Split a side into its results folder and the setting of ``FOLDER@lr=0.01``; None for an algorithm."""
    if Path(name).is_dir():
        return Path(name), ""
    folder, _, text = name.rpartition("@")
    return (Path(folder), text) if folder and Path(folder).is_dir() else None


def runs_of_side(name: str) -> dict[CellKey, Runs]:
    """The runs of a results folder by cell, imported ones too, or only those of the setting that the side names.

    Raises:
        UnknownName: no run of the folder has the setting.
    """
    folder, text = folder_side(name) or (Path(name), "")
    cells = with_imported(gather(folder), folder)
    return of_setting(cells, text, str(folder))


def of_setting(cells: dict[CellKey, Runs], text: str, where: str) -> dict[CellKey, Runs]:
    """Keep the runs of one setting by cell; all of them if ``text`` is empty.

    Raises:
        UnknownName: no run has the setting.
    """
    if not text:
        return cells
    settings = sorted({setting(run) for runs in cells.values() for run in runs.all})
    if text not in settings:
        raise UnknownName("setting", text, settings, where=where)
    cells_of_setting = {key: Runs(budget=runs.budget) for key, runs in cells.items()}
    for key, only in cells_of_setting.items():
        for part in ("complete", "failed", "short", "elsewhere", "variants", "other_files"):
            getattr(only, part).extend(run for run in getattr(cells[key], part) if setting(run) == text)
    return cells_of_setting


def _several(name: str, sides: Sequence[Side]) -> str:
    texts = sorted(setting(side.runs.all[0]) for side in sides)
    return f"{name} has {len(sides)} settings of it, {', '.join(texts)}; name one, as in '{name}@{texts[0]}'"


def _name(key: CellKey) -> str:
    return f"{key.suite}/{key.algorithm}/{task_name(key)}"


def ended(cells: Iterable[Runs]) -> bool:
    """True if any run of some cells has ended."""
    return any(_settings(runs) for runs in cells)


def _settings(runs: Runs, *, at: bool = False) -> Sequence[Side]:
    """The documented setting alone, or every other one; runs on another file of the same name are another."""
    short = [run for run in runs.short if at and run.evaluations]
    if runs.scored or short:
        return [Side(runs=Runs(complete=runs.complete, failed=runs.failed, short=short), usual=True)]
    groups: dict[tuple[str, str | None], list[Run]] = defaultdict(list)
    for run in (*runs.short, *runs.elsewhere, *runs.variants, *runs.other_files):
        if run.status in ENDED or (at and run.evaluations):
            groups[run.id, file_of(run)].append(run)
    return [
        Side(
            runs=Runs(
                complete=[run for run in group if run.status == "done"],
                failed=[run for run in group if run.status == "failed"],
                short=[run for run in group if run.status not in ENDED],
            ),
            usual=False,
        )
        for group in groups.values()
    ]


def _unlike(first: Side, second: Side) -> list[str]:
    """The rules in which two sides differ, in words."""
    examples = [side.runs.all[0] for side in (first, second)]
    if any(run.origin for run in examples):
        kinds = {run.origin.get("kind", "evaluation") for run in examples}
        return ["kind of return"] if len(kinds) > 1 else []
    a, b = map(_rules, examples)
    rules = [rule for rule in RULES if a[rule] != b[rule]]
    files = {digest for side in (first, second) for run in side.runs.all if (digest := file_of(run)) is not None}
    return rules + (["data"] if len(files) > 1 else [])


def _unequal_steps(first: Side, second: Side) -> list[str]:
    """The budget, if two algorithms differ in their steps and a side has other settings than the documented ones."""
    examples = [side.runs.all[0] for side in (first, second)]
    free = (first.usual and second.usual) or any(run.origin for run in examples)
    return ["budget"] if not free and examples[0].budget != examples[1].budget else []


def _equal_budget(first: Side, second: Side) -> str:
    """The remedy where two sides differ in their steps: the command option that makes them equal."""
    counts = [side.runs.scored[0].budget for side in (first, second)]
    if counts[0] == counts[1]:
        return ""
    return f": {counts[0]:,} and {counts[1]:,} steps; train both with --steps {min(counts)}"


def _rules(run: Run) -> Mapping[str, object]:
    """The rules of a run; fields that an older record lacks have their defaults."""
    from pydantic import ValidationError

    from rlbench.config.run import Spec

    try:
        settings = Spec.model_validate(run.settings, strict=False).model_dump(mode="json")
    except ValidationError:  # a version's that had other settings
        settings = dict(run.settings)
    return {rule: settings.get(rule) for rule in RULES}
