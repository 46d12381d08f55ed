"""Compare two results folders, or two algorithms of one folder, per task and over all tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.config.names import number_text
from rlbench.errors import UnknownName, UsageError, beside
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
from rlbench.report.columns import aligned, sentences
from rlbench.report.compare_pairs import Matched, ended, folder_side, matched, of_setting, runs_of_side
from rlbench.report.equal_steps import largest_common_step, scores_up_to, steps_text
from rlbench.report.estimate import mean
from rlbench.report.reference_table import CellKey
from rlbench.report.run_index import Runs

if TYPE_CHECKING:
    from rlbench.report.sources import Sources

FEWEST = 5
"""Seeds of a task below which a bootstrap interval of means is too narrow to be shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One task that both sides have played; scores are raw points by the reference's estimator, one a seed."""

    key: CellKey  # the first side's
    first: tuple[float, ...]
    second: tuple[float, ...]
    improvement: Estimate  # the probability that a run of the second side beats one of the first
    foreign: tuple[bool, bool]  # the sides with curves that other programs measured
    step: int | None = None  # of the comparison, where it is one at equal steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The cells that two sides share."""

    names: tuple[str, str]
    tasks: tuple[Task, ...]
    left_out: tuple[str, ...]  # cells of both folders that are not compared, each with the reason
    scale: str  # of the interquartile means
    first: Estimate
    second: Estimate
    gaps: tuple[Estimate, Estimate]  # by how much runs of each side fall short of 1
    improvement: Estimate

    @property
    def fewest(self) -> int:
        """The seeds of the task and side that has fewest."""
        return min(len(scores) for task in self.tasks for scores in (task.first, task.second))


def compare(first: str, second: str, evidence: Sources, suite: str | None, *, at: bool = False) -> Comparison:
    """Compare two results folders cell by cell, or two algorithms task by task, as the names say.

    ``at``: at equal steps, the largest that both sides of a task have reached, instead of by ended runs.

    Raises:
        UsageError: one is a folder and the other is not, or they share no task.
        UnknownName: neither a folder nor an algorithm with runs.
    """
    folders = [folder_side(name) is not None for name in (first, second)]
    if all(folders):
        return _folders((first, second), suite, at=at)
    if any(folders):
        other = second if folders[0] else first
        raise UsageError(
            f"{other}: not a folder of records{beside(Path(other))}; compare two folders or two algorithms"
        )
    return _algorithms((first, second), evidence, suite, at=at)


def _folders(names: tuple[str, str], suite: str | None, *, at: bool) -> Comparison:
    first, second = (_of_suite(runs_of_side(name), suite) for name in names)
    for name, side in zip(names, (first, second), strict=True):
        if not at and not ended(side.values()):
            of = f" of {suite}" if suite else ""
            raise UsageError(f"{name}: no run{of} has ended there; see: rlbench list runs --results {name}")
    return _matched(names, matched(first, second, names, at=at), at=at)


def _algorithms(names: tuple[str, str], evidence: Sources, suite: str | None, *, at: bool) -> Comparison:
    cells = _of_suite(evidence.with_imported(), suite)
    algorithms = sorted({key.algorithm for key in cells})
    if not algorithms:
        raise UsageError(f"{evidence.own}: no runs to compare{f' of {suite}' if suite else ''}; see: rlbench list runs")
    (first, _, _), (second, _, _) = parts = [name.partition("@") for name in names]
    sides = []
    for name, (algorithm, _, text) in zip(names, parts, strict=True):
        if algorithm not in algorithms:
            raise UnknownName("folder or algorithm with runs", name, algorithms, where=str(evidence.own))
        own = {key._replace(algorithm=first): runs for key, runs in cells.items() if key.algorithm == algorithm}
        sides.append(of_setting(own, text, algorithm))
    return _matched(names, matched(sides[0], sides[1], names, at=at, algorithms=first != second), at=at)


def _matched(names: tuple[str, str], match: Matched, *, at: bool) -> Comparison:
    """Compare pairs of cells at equal steps, or by their ended runs."""
    every = (_task(key, a.runs, b.runs, at=at, documented=a.usual or b.usual) for key, a, b in match.pairs)
    tasks = tuple(task for task in every if task is not None)
    if not tasks:
        steps = " at equal steps" if at else ""
        why = f": {'; '.join(match.left_out)}" if match.left_out else f"{steps}; see: rlbench list runs"
        raise UsageError(f"{names[0]} and {names[1]} have no cell in common that can be compared{why}")
    return _together(names, tasks, match.left_out)


def _of_suite(cells: Mapping[CellKey, Runs], suite: str | None) -> dict[CellKey, Runs]:
    return {key: runs for key, runs in cells.items() if suite in {None, key.suite}}


def _task(key: CellKey, first: Runs, second: Runs, *, at: bool, documented: bool) -> Task | None:
    """A task, ``at`` the largest step that both sides have reached; None where one has no evaluated seed."""
    step = largest_common_step((first, second)) if at else None
    if at and step is None:
        return None
    a, b = (
        tuple(scores_of(key, runs, cut=documented))
        if step is None
        else with_failed(key, scores_up_to(runs, step), runs)
        for runs in (first, second)
    )
    if not a or not b:
        return None
    foreign = any(run.origin for run in first.all), any(run.origin for run in second.all)
    better = probability_of_improvement([b], [a])
    return Task(key=key, first=a, second=b, improvement=better, foreign=foreign, step=step)


def _together(names: tuple[str, str], tasks: tuple[Task, ...], left_out: tuple[str, ...]) -> Comparison:
    scale, points = normalizer([task.key for task in tasks], [[*task.first, *task.second] for task in tasks])
    first, second = (
        [[(score - zero) / (one - zero) for score in row] for row, (zero, one) in zip(rows, points, strict=True)]
        for rows in ([task.first for task in tasks], [task.second for task in tasks])
    )
    return Comparison(
        names=names,
        tasks=tasks,
        left_out=left_out,
        scale=scale,
        first=bootstrap(pooled_interquartile_mean, first),
        second=bootstrap(pooled_interquartile_mean, second),
        gaps=(bootstrap(optimality_gap, first), bootstrap(optimality_gap, second)),
        improvement=probability_of_improvement(second, first),
    )


def comparison_text(comparison: Comparison, width: int | None = None) -> str:
    """A line a task, and the sides as wholes, folded to a terminal of ``width`` columns."""
    from rlbench.report.reference_table import task_name
    from rlbench.report.tables import rounded

    first, second = comparison.names
    head = ("TASK", first, second, f"P({second} better)")
    algorithm = "{}/" if folder_side(first) else ""
    rows = [
        (
            f"{task.key.suite}/{algorithm.format(task.key.algorithm)}{task_name(task.key)}"
            + ("" if task.step is None else f" @{steps_text(task.step)}"),
            *(
                f"{rounded(mean(scores))} ({len(scores)})" + " (imported)" * foreign
                for scores, foreign in zip((task.first, task.second), task.foreign, strict=True)
            ),
            _percent(task.improvement),
        )
        for task in comparison.tasks
    ]
    few = comparison.fewest < FEWEST
    lines: list[str] = []
    if any(task.step is not None for task in comparison.tasks):
        lines.append(
            "At equal steps: the mean of a seed's last three evaluations up to the largest step of both sides."
        )
    for name, middle, gap in zip(comparison.names, (comparison.first, comparison.second), comparison.gaps, strict=True):
        lines.append(f"interquartile mean of {name}: {_text(middle, few=few)}; optimality gap: {_text(gap, few=few)}")
    lines.append(f"probability that a run of {second} beats one of {first}: {_percent(comparison.improvement)}")
    lines.append(f"Scores: mean over seeds (how many). Scale: {comparison.scale}. Intervals: 95 %, over seeds.")
    if few:
        lines.append(f"Fewer than {FEWEST} seeds of a task: no interval of a mean is shown; run more seeds.")
    lines += [f"Not compared: {text}." for text in comparison.left_out]
    return "\n".join([*aligned([head, *rows], width), "", *sentences(lines, width)])


def comparison_document(comparison: Comparison) -> dict[str, object]:
    """The same for scripts; ``low`` and ``high`` of a mean are null below five seeds."""
    bare = {"low": None, "high": None} if comparison.fewest < FEWEST else {}
    return {
        "names": list(comparison.names),
        "scale": comparison.scale,
        "iqm": [estimate._asdict() | bare for estimate in (comparison.first, comparison.second)],
        "optimality_gap": [gap._asdict() | bare for gap in comparison.gaps],
        "improvement": comparison.improvement._asdict(),
        "left_out": list(comparison.left_out),
        "tasks": [
            {
                **task.key._asdict(),
                **({} if task.step is None else {"step": task.step}),
                "left": list(task.first),
                "right": list(task.second),
                "imported": list(task.foreign),
                "improvement": task.improvement._asdict(),
            }
            for task in comparison.tasks
        ],
    }


def _text(estimate: Estimate, *, few: bool) -> str:
    """A mean with its interval, without it where seeds are too few, or where all are equal and it has no width."""
    bare = few or estimate.low == estimate.high
    low, high = number_text(estimate.low, ".3f"), number_text(estimate.high, ".3f")
    return number_text(estimate.value, ".3f") + ("" if bare else f" [{low}, {high}]")


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.0f} % [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"
