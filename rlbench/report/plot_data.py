"""The data of plots: one curve with its seeds per task and algorithm, and all scores on one scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from rlbench.errors import UsageError
from rlbench.report.aggregate import Array, normalizer, scores_of
from rlbench.report.equal_steps import EqualSteps
from rlbench.report.estimate import mean
from rlbench.report.reference_files import Curve
from rlbench.report.reference_scores import curve_of, matching, primary_references
from rlbench.report.reference_table import CellKey, in_points, on_scale, scale_of, task_name
from rlbench.report.run_index import Runs, gather, label
from rlbench.report.runs import Run, separate

if TYPE_CHECKING:
    from rlbench.report.cells import Cell
    from rlbench.report.evidence import Evidence

MAX_POINTS = 300  # most points of a curve
Clock = Literal["hours", "agent steps", "gradient steps"]
"""The unit of the horizontal axis: of wall clock, or of the budget."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One algorithm on one task; the three arrays are equally long."""

    algorithm: str  # and by what the runs differ from the published settings
    runs: int
    x: Array  # agent steps or hours
    mean: Array
    low: Array  # mean − one std over seeds
    high: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One task."""

    title: str
    lines: tuple[Line, ...]
    clock: Clock
    curves: Mapping[str, Curve]  # documented, by algorithm; none against hours
    scores: Mapping[str, float]  # documented, in raw points, by algorithm
    verdicts: Mapping[str, EqualSteps]  # at equal steps, by algorithm; none against hours


@dataclass(frozen=True, kw_only=True, slots=True)
class AlgorithmScores:
    """One algorithm over several tasks, on one scale."""

    algorithm: str
    tasks: tuple[str, ...]
    scores: tuple[tuple[float, ...], ...]  # ``[task][seed]``
    references: tuple[float, ...]  # on the same scale; empty where any is missing


def find_cells(
    suite: str, evidence: Evidence, tasks: Sequence[str] = (), algorithms: Sequence[str] = ()
) -> dict[CellKey, Runs]:
    """The runs of the cells that the globs name, in the references' order."""
    runs, references = evidence.with_imported(), primary_references(suite)
    keys = [*references, *sorted(key for key in runs if key.suite == suite and key not in references)]
    return {key: runs.get(key, Runs()) for key in matching(keys, suite, tasks=tasks, algorithms=algorithms)}


def panels(
    suite: str, evidence: Evidence, cells: Mapping[CellKey, Runs], *, by_name: bool = False, hours: bool = False
) -> tuple[Panel, ...]:
    """The measured tasks of ``cells``, or all where they were chosen ``by_name``: then some are documented alone.

    With ``hours`` curves are over wall clock, which no reference and no verdict has.
    """
    clock: Clock = "hours" if hours else "gradient steps" if suite == "offline" else "agent steps"
    own, rlbench_runs = gather(evidence.own), {} if evidence.rlbench is None else gather(evidence.rlbench)
    keys_by_task: dict[str, list[CellKey]] = {}
    lines: dict[CellKey, list[Line]] = {}
    for key, runs in cells.items():
        ours = runs if runs.of_imported else own.get(key, Runs())
        lines[key] = measured_lines(key.algorithm, ours, rlbench_runs.get(key, Runs()), clock, variants=by_name)
        if by_name or lines[key]:
            keys_by_task.setdefault(task_name(key), []).append(key)
    references = _references(suite)
    cells_at = () if hours else evidence.cells([suite])
    verdicts = {cell.key: cell.at for cell in cells_at if cell.at is not None}
    return tuple(
        Panel(
            title=title + (" (imported)" if any(cells[key].of_imported for key in keys) else ""),
            lines=tuple(line for key in keys for line in lines[key]),
            clock=clock,
            curves={key.algorithm: curve for key in keys if not hours and (curve := curve_of(key)) is not None},
            scores={key.algorithm: references[key] for key in keys if key in references},
            verdicts={key.algorithm: verdicts[key] for key in keys if lines[key] and key in verdicts},
        )
        for title, keys in keys_by_task.items()
    )


def algorithm_scores(suite: str, cells: Mapping[CellKey, Runs]) -> tuple[str, tuple[AlgorithmScores, ...]]:
    """The scale in words, and every algorithm that has a run with a score; failed ones have the random policy's."""
    scores = {k: row for k, runs in cells.items() if _has_scores(k, runs) and (row := scores_of(k, runs))}
    references = _references(suite)
    keys = list(scores)
    if not keys:
        return "", ()
    scale_text, scales = normalizer(keys, [scores[key] for key in keys])
    scale_by_key = dict(zip(keys, scales, strict=True))
    algo_scores = []
    for algorithm in dict.fromkeys(key.algorithm for key in keys):
        ours = [key for key in keys if key.algorithm == algorithm]
        documented = ours if all(key in references for key in ours) else []
        algo_scores.append(
            AlgorithmScores(
                algorithm=algorithm,
                tasks=tuple(task_name(key) for key in ours),
                scores=tuple(tuple(map(scale_by_key[key].normalized, scores[key])) for key in ours),
                references=tuple(scale_by_key[key].normalized(references[key]) for key in documented),
            )
        )
    return scale_text.replace("reference", "own published score"), tuple(algo_scores)


def _has_scores(key: CellKey, runs: Runs) -> bool:
    """True if a cell has a finished run, or failed ones and a random policy's score."""
    return bool(runs.complete or (runs.failed and scale_of(key) is not None))


def runs_without_score(cells: Mapping[CellKey, Runs]) -> dict[CellKey, Runs]:
    """The runs of each cell that no figure of scores shows."""
    return {key: replace(runs, failed=[] if _has_scores(key, runs) else runs.failed) for key, runs in cells.items()}


class ShortfallRow(NamedTuple):
    """A cell, in percent of the way from the random policy to the reference."""

    cell: Cell
    difference: float
    half: float  # of the interval whose lower end is the shortfall bound: 90 %, under looks wider


def shortfall_rows(suite: str, evidence: Evidence, cells: Mapping[CellKey, Runs]) -> tuple[ShortfallRow, ...]:
    """The rows of ``cells`` that have a shortfall bound, in the table's order."""
    rows = []
    for cell in evidence.cells([suite]):
        reference = cell.documented if cell.key in cells else None
        random = on_scale(scale_of(cell.key), reference.estimator) if reference else None
        if reference is not None and random is not None and cell.shortfall_percent is not None:
            difference = 100 * (mean(cell.scores) - reference.score) / abs(reference.score - random)
            rows.append(ShortfallRow(cell, difference, max(0.0, cell.shortfall_percent + difference)))
    return tuple(rows)


def measured_lines(algorithm: str, own: Runs, rlbench_runs: Runs, clock: Clock, *, variants: bool) -> list[Line]:
    """Curves of own runs and of rlbench's, which are labelled if there are both.

    Own runs of other settings are drawn if ``variants``, or if there are no others; their label has the difference.
    """
    groups = {algorithm: _runs_to_draw(own)}
    if variants or not groups[algorithm]:
        others: dict[str, Runs] = {}
        for run in (run for run in own.variants if not _is_rest(run, own)):
            others.setdefault(f"{algorithm} {label(run)}", Runs()).short.append(run)
        for name, group in others.items():
            separate(group)
            groups[name] = group.short
    other = f"{algorithm} (rlbench)" if any(groups.values()) else algorithm
    groups[other] = _runs_to_draw(rlbench_runs) or groups.get(other, [])
    return [line for name, runs in groups.items() if (line := line_of(name, runs, clock))]


def _is_rest(run: Run, own: Runs) -> bool:
    """True of an unfinished seed of another protocol, of which others have ended: it does not stand for them."""
    return run.id in {other.id for other in own.other_protocol if other.counts_in_full}


def runs_not_drawn(cells: Mapping[CellKey, Runs], evidence: Evidence, *, by_name: bool) -> dict[CellKey, Runs]:
    """The runs of each cell that no curve of ``panels`` shows."""
    own, hidden = gather(evidence.own), dict[CellKey, Runs]()
    for key, runs in cells.items():
        is_drawn = key in own and (by_name or not _runs_to_draw(own[key]))
        variants = [run for run in runs.variants if not is_drawn or _is_rest(run, own[key])]
        hidden[key] = replace(runs, short=runs.short if runs.complete else [], variants=variants)
    return hidden


def on_common_tasks(algo_scores: Sequence[AlgorithmScores]) -> tuple[AlgorithmScores, ...]:
    """The most algorithms that share a task, on all tasks that these share: scores on different tasks make no ranking.

    Raises:
        UsageError: no two of several algorithms share a task.
    """
    counts = Counter(task for algo in algo_scores for task in algo.tasks)
    first, shared = counts.most_common(1)[0]
    if shared == 1 < len(algo_scores):
        names = ", ".join(algo.algorithm for algo in algo_scores)
        raise UsageError(f"{names} share no task with finished runs, so nothing ranks them; name one with --algo")
    algo_scores = [algo for algo in algo_scores if first in algo.tasks]
    common = [task for task in algo_scores[0].tasks if all(task in other.tasks for other in algo_scores)]
    return tuple(
        replace(
            algo,
            tasks=tuple(common),
            scores=tuple(algo.scores[algo.tasks.index(task)] for task in common),
            references=tuple(algo.references[algo.tasks.index(task)] for task in common if algo.references),
        )
        for algo in algo_scores
    )


def line_of(algorithm: str, runs: Sequence[Run], clock: Clock) -> Line | None:
    """The mean of runs ± one std over seeds (divided by n); a run that stopped keeps its last evaluation."""
    curves = [run.evaluations for run in runs if run.evaluations]
    if not curves:
        return None
    times = [[e.seconds / 3600 if clock == "hours" else float(e.env_steps) for e in curve] for curve in curves]
    moments = sorted({moment for curve in times for moment in curve})
    x = np.asarray(moments if len(moments) <= MAX_POINTS else np.linspace(moments[0], moments[-1], MAX_POINTS))
    levels = np.stack([np.interp(x, at, [e.mean for e in curve]) for at, curve in zip(times, curves, strict=True)])
    middle, std = levels.mean(axis=0), levels.std(axis=0)
    return Line(algorithm=algorithm, runs=len(curves), x=x, mean=middle, low=middle - std, high=middle + std)


def nothing_to_draw(suite: str, evidence: Evidence) -> UsageError:
    """The error of a suite without a curve."""
    return UsageError(
        f"{evidence.own}: no finished run of {suite} to draw; run some, or name a documented task with --task"
    )


def _references(suite: str) -> dict[CellKey, float]:
    return {key: in_points(score, scale_of(key)) for key, score in primary_references(suite).items()}


def _runs_to_draw(runs: Runs) -> list[Run]:
    return runs.complete or runs.short
