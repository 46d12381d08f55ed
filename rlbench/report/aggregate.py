"""Statistics over many tasks: interquartile mean, optimality gap, profiles, probability of improvement, intervals.

The definitions are those of Agarwal et al. 2021 (https://arxiv.org/abs/2108.13264) and their library rliable. A score
matrix has one row of seeds per task; tasks may have unequal numbers. The bootstrap resamples whole runs within a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlbench.report.estimate import seed_scores
from rlbench.report.reference_scores import primary_references
from rlbench.report.reference_table import CellKey, Scale, estimator_of, in_points, scale_of
from rlbench.report.runs import failed_score

if TYPE_CHECKING:
    from rlbench.report.run_index import Runs

Array: TypeAlias = NDArray[np.float64]
Scores: TypeAlias = Sequence[Sequence[float]] | Sequence[Array]
"""Normalised scores: ``scores[task][seed]``; or of many resamples at once, ``scores[task][resample, seed]``."""

Statistic: TypeAlias = Callable[[Sequence[Array]], Array]  # maps scores to one number, or to one per resample
CONFIDENCE = 0.95  # of intervals
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
RESAMPLES = 2_000
INTERVAL_SEEDS = 5  # seeds of a task below which a bootstrap interval of means is too narrow to be shown
SEED = 20210831  # seed of the bootstrap's generator: equal scores give equal intervals


class Estimate(NamedTuple):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float


def pooled_interquartile_mean(scores: Scores) -> Array:
    """The mean of the middle half of all runs of all tasks: ``[]`` or one per resample."""
    runs = np.sort(np.concatenate(_rows(scores), axis=-1), axis=-1)
    cut = runs.shape[-1] // 4
    return _mean(runs[..., cut : runs.shape[-1] - cut])


def optimality_gap(scores: Scores, goal: float = 1.0) -> Array:
    """The mean shortfall of runs from ``goal``, ``[]`` or one per resample; scores above it have none.

    As in rliable, every run has equal weight, so tasks with more seeds have more.
    """
    return goal - _mean(np.minimum(np.concatenate(_rows(scores), axis=-1), goal))


def profile(scores: Scores, thresholds: Sequence[float]) -> Array:
    """The share of runs above each threshold, averaged over tasks: ``[thresholds]``, or one row per resample."""
    taus = np.asarray(thresholds, float)
    return np.asarray(np.mean([(row[..., :, None] > taus).mean(axis=-2) for row in _rows(scores)], axis=0))


def bootstrap(
    statistic: Statistic, scores: Scores, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> Estimate:
    """A statistic with its percentile interval: seeds are drawn with replacement within each task."""
    rows = _rows(scores)
    resampled = statistic(_resample(rows, resamples))
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(statistic(rows)), float(low), float(high))


def probability_of_improvement(ours: Scores, theirs: Scores, *, fixed: bool = False) -> Estimate:
    """The probability that our run beats theirs, ties count half, mean over tasks.

    Its interval has a width even if every run of one side wins.
    A task's limits are those of Newcombe's fifth method (2006, https://doi.org/10.1002/sim.2324), or Wilson's (1927)
    where theirs are ``fixed``: published scores, one per task, whose own error does not count. Tasks are
    independent, so their distances from the estimate add up as squares (Zou and Donner 2008,
    https://doi.org/10.1002/sim.3095).
    """
    wins, squares = [], np.zeros(2)
    for a, b in zip(_rows(ours), _rows(theirs), strict=True):
        wins.append(_mann_whitney_u(a, b))
        n = None if fixed else len(b)
        low, high = _lower_limit(wins[-1], len(a), n), 1 - _lower_limit(1 - wins[-1], len(a), n)
        squares += ((wins[-1] - low) ** 2, (high - wins[-1]) ** 2)
    value, (below, above) = float(np.mean(wins)), np.sqrt(squares) / len(ours)
    return Estimate(value, max(0.0, float(value - below)), min(1.0, float(value + above)))


def _lower_limit(wins: float, m: int, n: int | None) -> float:
    """The p ≤ ``wins`` at which wins − p is z standard errors of p: of ``m`` runs against ``n``, or a fixed score."""
    pairs, low, high = 0.0 if n is None else (m + n) / 2 - 1, 0.0, wins
    for _ in range(60):
        p = (low + high) / 2
        variance = p * (1 - p) * (1 + pairs * ((1 - p) / (2 - p) + p / (1 + p))) / (m * (n or 1))
        low, high = (p, high) if wins - p > Z * math.sqrt(variance) else (low, p)
    return (low + high) / 2


def band(scores: Scores, thresholds: Sequence[float]) -> tuple[Array, Array]:
    """The lower and upper ends of the profile's pointwise intervals, ``[thresholds]`` each."""
    resampled = profile(_resample(_rows(scores), RESAMPLES), thresholds)
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return low, high


def _rows(scores: Scores) -> list[Array]:
    return [np.asarray(row, np.float64) for row in scores]


def _mean(values: Array) -> Array:
    return np.asarray(values.mean(axis=-1))


def _resample(rows: Sequence[Array], resamples: int) -> list[Array]:
    """Resample each task's runs with replacement: ``[resamples, seeds]`` per task."""
    generator = np.random.default_rng(SEED)
    return [row[generator.integers(0, len(row), (resamples, len(row)))] for row in rows]


def _mann_whitney_u(ours: Array, theirs: Array) -> float:
    """Mann and Whitney's U as a share of all pairs."""
    column = ours[:, None]
    return float(((column > theirs) + (column == theirs) / 2).mean())


def scores_of(key: CellKey, runs: Runs, *, cut: bool = True) -> list[float]:
    """A cell's finished runs by its estimator, in raw points; failed ones at the random policy's score.

    Evaluations beyond the reference's steps do not count, unless the runs are not ``cut`` at those.
    """
    reference = primary_references(key.suite).get(key)
    estimator, scale = estimator_of(key, reference), scale_of(key)
    scores = seed_scores(runs.complete, estimator, limit=reference.limit if reference and cut else None, scale=scale)
    if reference is not None:
        scores = [in_points(replace(reference, score=score), scale) for score in scores]
    return list(with_failed(key, scores, runs))


def with_failed(key: CellKey, scores: Sequence[float], runs: Runs) -> tuple[float, ...]:
    """Scores in raw points with those of failed runs: ``failed_score`` in raw points."""
    return (*scores, *[failed_score(scores, "raw", runs.all, scale_of(key))] * len(runs.failed))


def normalizer(keys: Sequence[CellKey], rows: Sequence[Sequence[float]]) -> tuple[str, list[Scale]]:
    """The common scale of several tasks in words, and the random score and goal of each that are its 0 and 1.

    Humans and D4RL's experts where all tasks have one, else the references, else the best run that is compared. More
    points are more on every scale, also where a reference or every run is worse than the random policy.
    """
    scales = [scale_of(key) for key in keys]
    with_goal = [scale for scale in scales if scale is not None and scale.goal is not None]
    if len(with_goal) == len(keys):
        return "random policy 0, human or expert 1", with_goal
    zeros = [scale.random if scale else 0.0 for scale in scales]
    references = [primary_references(key.suite).get(key) for key in keys]
    ones = [None if d is None else in_points(d, scale) for d, scale in zip(references, scales, strict=True)]
    if all(one is not None and one - zero > 1e-9 for one, zero in zip(ones, zeros, strict=True)):
        return "random policy 0, reference 1", [Scale(zero, one) for zero, one in zip(zeros, ones, strict=True)]
    best: dict[CellKey, float] = {}  # by task: all algorithms are measured alike
    for key, row in zip(keys, rows, strict=True):
        task = key._replace(algorithm="")
        best[task] = max(best.get(task, -math.inf), *row)
    tops = [best[key._replace(algorithm="")] for key in keys]
    ends = zip(zeros, tops, strict=True)
    return "random policy 0, best run 1", [Scale(zero, top if top > zero else zero + 1) for zero, top in ends]
