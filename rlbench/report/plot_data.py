"""What is drawn: per task and algorithm one curve with its seeds, and all scores on one scale. No drawing here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from rlbench.errors import UnknownName, UsageError
from rlbench.report.aggregate import Array
from rlbench.report.compare import normalizer, scores_of
from rlbench.report.curves import Curve, documented_curves
from rlbench.report.reference_scores import documented, names_of
from rlbench.report.reference_table import CellKey
from rlbench.report.references import in_points, reference
from rlbench.report.run_index import Runs
from rlbench.report.runs import Evaluation, Run
from rlbench.report.sources import Sources
from rlbench.report.tables import task_name

MOST_POINTS = 300
"""Of a drawn curve."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One algorithm on one task; the three arrays are equally long."""

    algorithm: str
    runs: int
    x: Array  # agent steps or hours
    mean: Array
    low: Array  # of the seeds at that moment
    high: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One task."""

    title: str
    lines: tuple[Line, ...]
    curves: Mapping[str, Curve]  # documented, by algorithm
    scores: Mapping[str, float]  # documented, in raw points, by algorithm
    counted: str  # kind of step the budget counts


@dataclass(frozen=True, kw_only=True, slots=True)
class AlgorithmScores:
    """One algorithm over several tasks, on one scale."""

    algorithm: str
    tasks: tuple[str, ...]
    scores: tuple[tuple[float, ...], ...]  # ``[task][seed]``
    documents: tuple[float, ...]  # on the same scale; empty where any is missing


def panels(
    suite: str,
    evidence: Sources,
    *,
    tasks: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    clock: Callable[[Evaluation], float],
) -> tuple[Panel, ...]:
    """The measured tasks of a suite, or those that ``tasks`` names, which may be documented alone."""
    found = chosen(suite, evidence.with_imported(), tasks, algorithms)
    drawn: dict[str, list[CellKey]] = {}
    for key, runs in found.items():
        if tasks or _shown(runs):
            drawn.setdefault(task_name(key), []).append(key)
    documents = _documents(suite)
    return tuple(
        Panel(
            title=title + (" (imported)" if any(found[key].of_others for key in keys) else ""),
            lines=tuple(line for key in keys if (line := line_of(key.algorithm, _shown(found[key]), clock))),
            curves={key.algorithm: documented_curves()[key] for key in keys if key in documented_curves()},
            scores={key.algorithm: documents[key] for key in keys if key in documents},
            counted="gradient" if suite == "offline" else "agent",
        )
        for title, keys in drawn.items()
    )


def standings(
    suite: str, evidence: Sources, *, tasks: Sequence[str] = (), algorithms: Sequence[str] = ()
) -> tuple[str, tuple[AlgorithmScores, ...]]:
    """The scale in words, and every algorithm that has a finished run."""
    found = {k: r for k, r in chosen(suite, evidence.with_imported(), tasks, algorithms).items() if r.complete}
    scores = {key: row for key, runs in found.items() if (row := scores_of(key, runs))}
    documents = _documents(suite)
    keys = list(scores)
    if not keys:
        return "", ()
    scale, points = normalizer(keys, [scores[key] for key in keys])
    ends = dict(zip(keys, points, strict=True))
    made = []
    for algorithm in dict.fromkeys(key.algorithm for key in keys):
        ours = [key for key in keys if key.algorithm == algorithm]
        known = all(key in documents for key in ours)
        made.append(
            AlgorithmScores(
                algorithm=algorithm,
                tasks=tuple(task_name(key) for key in ours),
                scores=tuple(tuple(_placed(score, ends[key]) for score in scores[key]) for key in ours),
                documents=tuple(_placed(documents[key], ends[key]) for key in ours) if known else (),
            )
        )
    return scale, tuple(made)


def chosen(
    suite: str, found: Mapping[CellKey, Runs], tasks: Sequence[str], algorithms: Sequence[str]
) -> dict[CellKey, Runs]:
    """The cells of a suite whose task and algorithm the globs name, in the documents' order.

    Raises:
        UnknownName: a glob names nothing.
    """
    documents = {cell.key: cell.primary for cell in documented(suite)}
    keys = [*documents, *sorted(key for key in found if key.suite == suite and key not in documents)]
    for kind, globs in (("task", tasks), ("algorithm", algorithms)):
        names = {key: {key.algorithm} if kind == "algorithm" else names_of(key, documents.get(key)) for key in keys}
        for glob in globs:
            if not any(fnmatchcase(name, glob.lower()) for key in keys for name in names[key]):
                known = dict.fromkeys(key.algorithm if kind == "algorithm" else task_name(key) for key in keys)
                raise UnknownName(kind, glob, known, where=suite)
        keys = [k for k in keys if not globs or any(fnmatchcase(n, g.lower()) for n in names[k] for g in globs)]
    return {key: found.get(key, Runs()) for key in keys}


def line_of(algorithm: str, runs: Sequence[Run], clock: Callable[[Evaluation], float]) -> Line | None:
    """The mean of a cell's runs and the range of its seeds; a run that stopped early keeps its last evaluation."""
    curves = [run.evaluations for run in runs if run.evaluations]
    if not curves:
        return None
    moments = sorted({clock(evaluation) for curve in curves for evaluation in curve})
    x = np.asarray(moments if len(moments) <= MOST_POINTS else np.linspace(moments[0], moments[-1], MOST_POINTS))
    levels = np.stack([np.interp(x, [clock(e) for e in curve], [e.mean for e in curve]) for curve in curves])
    return Line(
        algorithm=algorithm,
        runs=len(curves),
        x=x,
        mean=levels.mean(axis=0),
        low=levels.min(axis=0),
        high=levels.max(axis=0),
    )


def steps(evaluation: Evaluation) -> float:
    """Agent steps; offline, where none is taken, gradient steps."""
    return float(evaluation.env_steps)


def hours(evaluation: Evaluation) -> float:
    """Hours of wall clock."""
    return evaluation.seconds / 3600


def nothing(suite: str, evidence: Sources) -> UsageError:
    """There is nothing to draw."""
    return UsageError(
        f"{evidence.own}: no finished run of {suite} to draw; run some, or name a documented task with --task"
    )


def _documents(suite: str) -> dict[CellKey, float]:
    """The documented scores of a suite in raw points."""
    return {cell.key: in_points(cell.primary, reference(cell.key)) for cell in documented(suite)}


def _shown(runs: Runs) -> list[Run]:
    return runs.complete or runs.short


def _placed(score: float, ends: tuple[float, float]) -> float:
    zero, one = ends
    return (score - zero) / (one - zero)
