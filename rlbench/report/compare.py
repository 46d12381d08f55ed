"""Compare two results folders, or two algorithms of one folder, per task and over all tasks.

The cells are paired: per side one setting of each cell, under the same protocol.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from rlbench.errors import UnknownName, UsageError, suggest_path
from rlbench.records.imported import origin_texts
from rlbench.report.aggregate import (
    Estimate,
    bootstrap,
    normalizer,
    optimality_gap,
    pooled_interquartile_mean,
    probability_of_improvement,
    scores_of,
    with_failed,
)
from rlbench.report.equal_steps import scores_up_to, step_of_three
from rlbench.report.estimate import FULL
from rlbench.report.reference_scores import primary_references
from rlbench.report.reference_table import CellKey, cell_name
from rlbench.report.run_index import Runs, differences, gather, setting, with_imported
from rlbench.report.runs import Run, separate

if TYPE_CHECKING:
    from rlbench.report.evidence import Evidence

COMPARED_PARTS: Final = ("task", "protocol", "budget")
"""The parts of a Spec that define the measurement: scores are comparable only if they are equal."""

RunsOfSides: TypeAlias = tuple[Mapping[CellKey, Runs], Mapping[CellKey, Runs]]


class SettingRuns(NamedTuple):
    """The runs of one setting of a cell; failed ones count, and at equal steps those that have not ended."""

    runs: Runs
    default: bool  # the documented setting
    left_out: Runs  # of other versions, copies and short runs, beside those that count


def match_cells(
    sides: RunsOfSides, names: tuple[str, str], *, at: bool, algorithms: bool
) -> tuple[list[tuple[CellKey, SettingRuns, SettingRuns]], list[str]]:
    """Match the cells of two sides: by the documented setting if a side has it, or else by its only other one.

    Returns the pairs, and each cell of both sides that is not compared, with the reason. ``at``: at equal steps, so
    that runs that have not ended count and budgets may differ. ``algorithms``: the sides are two algorithms, whose
    documented settings may differ in everything, and others in everything but their steps.
    """
    pairs, left_out = [], []
    for key in sorted(set(sides[0]) & set(sides[1])):
        a, b = (_settings(side[key], at=at) for side in sides)
        if not a or not b:
            continue
        reasons = [_ambiguity(name, own) for name, own in zip(names, (a, b), strict=True) if len(own) > 1]
        budgets = _budgets(key, a[0], b[0])
        if not reasons and (differences := _differences(a[0], b[0], budgets, at=at, algorithms=algorithms)):
            remedy = _budget_remedy(budgets, (*a[0].runs.all, *b[0].runs.all)) if "budget" in differences else ""
            reasons = [f"they differ in {', '.join(differences)}{remedy}"]
        if reasons:
            left_out.append(f"{cell_name(key)}: {'; '.join(reasons)}")
            continue
        pairs.append((key, a[0], b[0]))
        for name, side, others in zip(names, sides, (a[0].left_out, b[0].left_out), strict=True):
            group, kinds = side[key], {(run.id, run.data_file) for run in others.all}
            versions, short = (
                [run for run in part if (run.id, run.data_file) not in kinds]
                for part in (group.other_versions, group.short)
            )
            for where, runs in (
                ("beside the record that counts for their seed", group.duplicates),
                ("on another file of that name", [run for run in others.other_data if run.status != "interrupted"]),
                ("in other versions of the environment", [*others.other_versions, *versions]),
                ("with the numbers of another seed", others.same_numbers),
                ("short of the budget", [] if at else [*others.short, *short]),
                ("without an evaluation", [r for r in (*others.short, *short) if at and not r.evaluations]),
            ):
                left_out += [f"{cell_name(key)}: {len(runs)} of {name} {where}"] if runs else []
    return pairs, left_out


def split_folder(name: str) -> tuple[Path, str] | None:
    """Split a side into its results folder and the setting of ``FOLDER@lr=0.01``; None for an algorithm."""
    if Path(name).is_dir():
        return Path(name), ""
    folder, _, text = name.rpartition("@")
    return (Path(folder), text) if folder and Path(folder).is_dir() else None


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
        for part in (field.name for field in fields(Runs) if field.default_factory is list):
            getattr(only, part).extend(run for run in getattr(cells[key], part) if setting(run) == text)
    return cells_of_setting


def _ambiguity(name: str, settings: Sequence[SettingRuns]) -> str:
    texts = sorted({setting(runs.all[0]) for runs, *_ in settings})
    if len(texts) < len(settings):
        what = f"{name} has runs of {', '.join(texts)} with other steps, protocols or data files"
        return f"{what}; keep those to compare in a results folder of their own"
    return f"{name} has {len(settings)} settings of it, {', '.join(texts)}; name one, as in '{name}@{texts[0]}'"


def _settings(runs: Runs, *, at: bool) -> Sequence[SettingRuns]:
    """The documented setting alone, or every other one; runs on another file of the same name are another."""
    documented = _counting(runs, at=at)
    if runs.complete or documented.short or any(run.budget >= runs.budget for run in runs.failed):
        return [SettingRuns(documented, default=True, left_out=runs)]
    groups: dict[tuple[str, str | None], Runs] = defaultdict(Runs)
    for run in (
        *runs.failed,
        *runs.short,
        *runs.other_protocol,
        *runs.variants,
        *runs.other_data,
        *runs.other_versions,
    ):
        if run not in runs.other_versions or (run.id, run.data_file) in groups:
            group = groups[run.id, run.data_file]
            part = group.complete if run.counts_in_full else group.short
            (group.failed if run.status == "failed" else part).append(run)
    for group in groups.values():
        separate(group)
    settings = [SettingRuns(_counting(group, at=at), default=False, left_out=group) for group in groups.values()]
    return [setting_runs for setting_runs in settings if setting_runs.runs.all]


def _counting(runs: Runs, *, at: bool) -> Runs:
    """The runs that a comparison counts; at equal steps those that have not ended, too."""
    short = [run for run in runs.short if at and run.evaluations]
    return Runs(complete=runs.complete, failed=runs.failed, short=short)


def _differences(
    first: SettingRuns, second: SettingRuns, budgets: Sequence[float], *, at: bool, algorithms: bool
) -> list[str]:
    """The differences, in words, by which two settings cannot be compared."""
    runs = (*first.runs.all, *second.runs.all)
    kinds = {run.origin.get("kind", "evaluation") for run in runs}
    differences = ["kind of return"] if len(kinds) > 1 else []
    is_imported = any(run.origin for run in runs)
    if algorithms or is_imported:
        documented = first.default and second.default and not is_imported
        equal = len(budgets) < 2 or min(budgets) >= (FULL if is_imported else 1) * max(budgets)  # curves end near it
        differences += [] if documented or equal else ["budget"]
    else:
        ours, theirs = (side.runs.all[0].settings for side in (first, second))
        differences += [part for part in COMPARED_PARTS if ours[part] != theirs[part]]
    differences += ["data"] if len({run.data_file for run in runs} - {None}) > 1 else []
    return [part for part in differences if not at or part != "budget"]


def _budgets(key: CellKey, first: SettingRuns, second: SettingRuns) -> list[int]:
    """The fewest steps of a run of each side; none of final scores, which state no steps.

    Beside imported curves, which end at the reference's steps, at most those.
    """
    is_imported = any(run.origin for run in (*first.runs.all, *second.runs.all))
    reference = primary_references(key.suite).get(key) if is_imported and (first.default or second.default) else None
    limit, budgets = reference.limit if reference else None, []
    for side in (first, second):
        runs = [r for r in side.runs.all if not r.origin or "steps" not in origin_texts([r.origin], "unknown")]
        budgets += [min([limit or runs[0].budget, *(run.budget for run in runs)])] if runs else []
    return budgets


def _budget_remedy(budgets: Sequence[float], runs: Sequence[Run]) -> str:
    """The remedy where two sides differ in their steps: the command option that makes them equal."""
    if len(set(budgets)) < 2:
        return ""
    remedy = "compare them with --at" if any(run.origin for run in runs) else f"train both with --steps {min(budgets)}"
    return f": {budgets[0]:,} and {budgets[1]:,} steps; {remedy}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One task that both sides have played; scores are raw points by the reference's estimator, one per seed."""

    key: CellKey  # the first side's
    first: tuple[float, ...]
    second: tuple[float, ...]
    improvement: Estimate  # the probability that a run of the second side beats one of the first
    is_imported: tuple[bool, bool]  # the sides with curves that other programs measured
    versions: str = ""  # of the environment, where those of the two sides differ
    sources: str = ""  # of the runs, where a comparison has own ones, rlbench's or imported curves together
    settings: str = ""  # of the sides, where one is not the documented one
    step: int | None = None  # of the comparison, where it is one at equal steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The cells that two sides share."""

    names: tuple[str, str]
    tasks: tuple[Task, ...]
    left_out: tuple[str, ...]  # cells of both folders that are not compared, each with the reason
    scale: str  # of the interquartile means
    interquartile_means: tuple[Estimate, Estimate]  # of the first and the second side
    gaps: tuple[Estimate, Estimate]  # by how much runs of each side fall short of 1
    improvement: Estimate

    @property
    def fewest(self) -> int:
        """The seeds of the task and side that has fewest."""
        return min(len(scores) for task in self.tasks for scores in (task.first, task.second))


def compare(first: str, second: str, evidence: Evidence, suite: str | None, *, at: bool = False) -> Comparison:
    """Compare two results folders cell by cell, or two algorithms task by task, as the names say.

    ``at``: at equal steps, the largest that both sides of a task have reached, instead of by ended runs.

    Raises:
        UsageError: one is a folder and the other is not, or they share no task.
        UnknownName: neither a folder nor an algorithm with runs, or a setting that no run has.
    """
    names = (first, second)
    folders = [folder for name in names if (folder := split_folder(name)) is not None]
    if len(folders) == 1:
        other = second if split_folder(first) else first
        raise UsageError(
            f"{other}: not a folder of records{suggest_path(Path(other))}; compare two folders or two algorithms"
        )
    sides = _folders(names, folders, suite, at=at) if folders else _algorithms(names, evidence, suite)
    algorithms = not folders and first.partition("@")[0] != second.partition("@")[0]
    pairs, left_out = match_cells(sides, names, at=at, algorithms=algorithms)
    sources = [""] * len(pairs) if folders else evidence.names((a.runs, b.runs) for _, a, b in pairs)
    every = [_task(*pair, text, at=at) for pair, text in zip(pairs, sources, strict=True)]
    tasks = tuple(task for task in every if task is not None)
    for task, (_, *pair) in zip(every, pairs, strict=True):
        left_out += [] if task is None or task.step is None else _seeds_below(task.step, task, names, pair)
    if not tasks:
        steps = " at equal steps" if at else ""
        why = f": {'; '.join(left_out)}" if left_out else f"{steps}; see: rlbench list runs"
        raise UsageError(f"{first} and {second} have no cell in common that can be compared{why}")
    return _pool_tasks(names, tasks, tuple(left_out), algorithms=algorithms)


def _folders(
    names: tuple[str, str], folders: Sequence[tuple[Path, str]], suite: str | None, *, at: bool
) -> RunsOfSides:
    """The runs of each folder by cell, imported ones too."""
    first, second = (
        _of_suite(of_setting(with_imported(gather(folder), folder), text, str(folder)), suite)
        for folder, text in folders
    )
    for name, side in zip(names, (first, second), strict=True):
        if not at and not any(_settings(runs, at=at) for runs in side.values()):
            of = f" of {suite}" if suite else ""
            raise UsageError(f"{name}: no run{of} has ended there; see: rlbench list runs --results {name}")
    return first, second


def _algorithms(names: tuple[str, str], evidence: Evidence, suite: str | None) -> RunsOfSides:
    cells = _of_suite(evidence.with_imported(), suite)
    algorithms = sorted({key.algorithm for key in cells})
    if not algorithms:
        raise UsageError(f"{evidence.own}: no runs to compare{f' of {suite}' if suite else ''}; see: rlbench list runs")
    first, sides = names[0].partition("@")[0], []
    for name in names:
        algorithm, _, text = name.partition("@")
        if algorithm not in algorithms:
            raise UnknownName("folder or algorithm with runs", name, algorithms, where=str(evidence.own))
        own = {key._replace(algorithm=first): runs for key, runs in cells.items() if key.algorithm == algorithm}
        sides.append(of_setting(own, text, algorithm))
    return sides[0], sides[1]


def _of_suite(cells: Mapping[CellKey, Runs], suite: str | None) -> dict[CellKey, Runs]:
    return {key: runs for key, runs in cells.items() if suite in {None, key.suite}}


def _task(key: CellKey, one: SettingRuns, other: SettingRuns, sources: str, *, at: bool) -> Task | None:
    """A task, ``at`` the largest step that both sides have reached; None where one has no evaluated seed."""
    first, second, cut = one.runs, other.runs, one.default or other.default
    if at and not (first.evaluated and second.evaluated):
        return None
    step = min(step_of_three(runs.evaluated) for runs in (first, second)) if at else None
    a, b = (
        tuple(scores_of(key, runs, cut=cut)) if step is None else with_failed(key, scores_up_to(runs, step), runs)
        for runs in (first, second)
    )
    if not a or not b:
        return None
    is_imported = any(run.origin for run in first.all), any(run.origin for run in second.all)
    better = probability_of_improvement([b], [a])
    sides = [", ".join(sorted(set(filter(None, (run.env_versions for run in runs.all))))) for runs in (first, second)]
    versions = " against ".join(sides) if all(sides) and len(set(sides)) > 1 else ""
    own = [run for side in (one, other) if not (run := side.runs.all[0]).origin]
    epochs = [next((text for text in differences(run) if text.startswith("budget.epoch=")), "") for run in own]
    epochs = epochs if len(set(epochs)) > 1 else [""] * len(own)  # a maximum over more evaluations is higher
    names = [f"{setting(run)} {epoch}".strip() for run, epoch in zip(own, epochs, strict=True)]
    settings = " against ".join(dict.fromkeys(names))
    texts = {"versions": versions, "sources": sources, "settings": "" if settings == "published" else settings}
    return Task(key=key, first=a, second=b, improvement=better, is_imported=is_imported, step=step, **texts)


def _seeds_below(step: int, task: Task, names: tuple[str, str], pair: Sequence[SettingRuns]) -> Iterator[str]:
    """Count the seeds of each side that have not reached the step of a comparison at equal steps."""
    for name, (runs, *_) in zip(names, pair, strict=True):
        if below := len(runs.complete) + len(runs.short) - len(scores_up_to(runs, step)):
            yield f"{cell_name(task.key)}: {below} of {name} below {step:,} steps"


def _pool_tasks(
    names: tuple[str, str], tasks: tuple[Task, ...], left_out: tuple[str, ...], *, algorithms: bool
) -> Comparison:
    scale_text, scales = normalizer([task.key for task in tasks], [[*task.first, *task.second] for task in tasks])
    if algorithms:
        scale_text = scale_text.replace("reference", f"reference of {names[0].partition('@')[0]}")
    first, second = (
        [[scale.normalized(score) for score in row] for row, scale in zip(rows, scales, strict=True)]
        for rows in ([task.first for task in tasks], [task.second for task in tasks])
    )
    return Comparison(
        names=names,
        tasks=tasks,
        left_out=left_out,
        scale=scale_text,
        interquartile_means=(bootstrap(pooled_interquartile_mean, first), bootstrap(pooled_interquartile_mean, second)),
        gaps=(bootstrap(optimality_gap, first), bootstrap(optimality_gap, second)),
        improvement=probability_of_improvement(second, first),
    )
