"""Estimate one score per seed from evaluations, by the reference's own estimator, and an interval over seeds.

The replicates are seeds, never episodes. A run that stopped early keeps its last evaluation, as in the references.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlbench.records.types import Estimator
    from rlbench.report.reference_table import Scale
    from rlbench.report.runs import Evaluation, Run


FULL = 0.99  # share of the budget that a complete curve reaches: the last training episode ends before it
ROUNDING = 1e-12  # relative difference of means over equal returns in another order
TOLERANCE = 1.005  # factor on a budget, since its last evaluation may come a vector step later


def best(evaluations: Sequence[Evaluation]) -> float:
    """The highest evaluation, the untrained policy's included."""
    return max(evaluation.mean for evaluation in evaluations)


def final(evaluations: Sequence[Evaluation]) -> float:
    """The last evaluation."""
    return evaluations[-1].mean


def steps_to(evaluations: Sequence[Evaluation], threshold: float) -> int | None:
    """The agent steps at the first evaluation that reached the threshold; None where none did."""
    return next((evaluation.env_steps for evaluation in evaluations if evaluation.mean >= threshold), None)


def largest_gap(evaluations: Sequence[Evaluation]) -> float:
    """The most steps between two evaluations that follow each other."""
    return max((b.env_steps - a.env_steps for a, b in pairwise(evaluations)), default=0)


def curve_mean(evaluations: Sequence[Evaluation], budget: int) -> float:
    """The mean of the whole curve, each evaluation weighted by the steps that led to it.

    The untrained policy does not count; a run that stopped early keeps its last evaluation to the end of the budget.
    """
    end = max(budget, evaluations[-1].env_steps)
    steps = [e.env_steps for e in evaluations]
    if len(evaluations) == 1 or end == 0:
        return evaluations[-1].mean
    areas = [e.mean * (step - previous) for e, step, previous in zip(evaluations[1:], steps[1:], steps, strict=False)]
    return math.fsum([*areas, evaluations[-1].mean * (end - steps[-1])]) / (end - steps[0])


def seed_scores(
    runs: Sequence[Run], estimator: Estimator, *, limit: int | None = None, scale: Scale | None = None
) -> list[float]:
    """One score per evaluated run, in the order of the runs; ambiguous estimators take the last evaluation.

    Raises:
        ValueError: the estimator normalises, and the data set has no scale.
    """
    scores = _raw_scores(curves_within(runs, limit), estimator)
    if not estimator.startswith("normalized"):
        return scores
    if scale is None:
        raise ValueError("a normalised score needs the scale of its data set")
    return [100 * scale.normalized(score) for score in scores]


def _raw_scores(curves: Sequence[Sequence[Evaluation]], estimator: Estimator) -> list[float]:
    match estimator:
        case "best-of-run" | "normalized-best":
            return [best(curve) for curve in curves]
        case "max-of-mean":
            return scores_at_peak(curves, mean)
        case "max-of-iqm":
            return scores_at_peak(curves, interquartile_mean)
        case "normalized-last-ten":
            return [mean([evaluation.mean for evaluation in curve[-10:]]) for curve in curves]
        case "normalized-best-of-last-two":
            return scores_at_peak([curve[-2:] for curve in curves], mean)
        case "final" | "final-iqm" | "raw" | "as-printed" | "normalized" | "normalized-final":
            return [final(curve) for curve in curves]


def one_per_epoch(evaluations: Iterable[Evaluation], epoch: int) -> tuple[Evaluation, ...]:
    """The evaluation nearest to each multiple of ``epoch`` steps; evaluations a whole epoch apart all stay."""
    nearest: dict[int, Evaluation] = {}
    for evaluation in evaluations:
        number = (2 * evaluation.env_steps + epoch) // (2 * epoch)  # rounded half up
        other = nearest.setdefault(number, evaluation)
        if abs(evaluation.env_steps - number * epoch) <= abs(other.env_steps - number * epoch):
            nearest[number] = evaluation
    return tuple(nearest.values())


def is_whole(run: Run) -> bool:
    """True if a run is done, or has taken ``FULL`` of its budget; a failed one only by its steps."""
    return run.status == "done" or run.env_steps >= FULL * run.budget


def maximum(run: Run) -> float:
    """The highest evaluation of a run; minus infinity without one."""
    return max((evaluation.mean for evaluation in run.evaluations), default=float("-inf"))


def within(evaluations: Sequence[Evaluation], limit: int | None) -> Sequence[Evaluation]:
    """The evaluations that a reference with a budget of ``limit`` steps could have seen."""
    return evaluations if limit is None else [e for e in evaluations if e.env_steps <= TOLERANCE * limit]


def curves_within(runs: Iterable[Run], limit: int | None) -> list[Sequence[Evaluation]]:
    """The evaluations within ``limit`` of each run that has any."""
    return [curve for run in runs if (curve := within(run.evaluations, limit))]


def scores_at_peak(curves: Sequence[Sequence[Evaluation]], centre: Callable[[Sequence[float]], float]) -> list[float]:
    """Every seed's score at the evaluation with the highest centre over seeds."""
    return [evaluation.mean for evaluation in peak(curves, centre)]


def peak(curves: Sequence[Sequence[Evaluation]], centre: Callable[[Sequence[float]], float]) -> list[Evaluation]:
    """The evaluations, one per seed, with the highest ``centre`` over seeds; the first of equal ones."""
    columns = _columns(curves)
    return max(columns, key=lambda column: centre([evaluation.mean for evaluation in column])) if columns else []


def correct_optimism(
    curves: Sequence[Sequence[Evaluation]], centre: Callable[[Sequence[float]], float], n: int
) -> list[float]:
    """Every seed's score at the peak, less the optimism of a peak over fewer than ``n`` seeds beyond that over ``n``.

    A maximum over few seeds selects their noise, too. The evaluation of one seed at the peak of the others is free of
    this bias; the mean difference between the two is the selection optimism (leave-one-out). On a plateau it falls with
    the root of the number of seeds, so a peak over k seeds has 1 − √(k / n) of it beyond that of one over n.
    """
    scores, surplus = scores_at_peak(curves, centre), 1 - math.sqrt(len(curves) / n)
    if surplus <= 0 or len(curves) < 2:
        return scores
    columns = [[evaluation.mean for evaluation in column] for column in _columns(curves)]
    others = [
        max(columns, key=lambda column: centre(column[:seed] + column[seed + 1 :]))[seed] for seed in range(len(curves))
    ]
    optimism = mean(scores) - mean(others)
    return [score - surplus * optimism for score in scores]


def _columns(curves: Sequence[Sequence[Evaluation]]) -> list[list[Evaluation]]:
    """All seeds' evaluations nearest to each one of the longest curve; a run that stopped early keeps its last one."""
    return [[_nearest(curve, at.env_steps) for curve in curves] for at in max(curves, key=len, default=())]


def _nearest(curve: Sequence[Evaluation], step: int) -> Evaluation:
    index = bisect_left(curve, step, key=lambda evaluation: evaluation.env_steps)
    return min(curve[max(0, index - 1) : index + 1], key=lambda evaluation: abs(evaluation.env_steps - step))


def mean(scores: Sequence[float]) -> float:
    """The average; the same for equal scores in any order."""
    return math.fsum(scores) / len(scores)


def interquartile_mean(scores: Sequence[float]) -> float:
    """The mean of the middle half: a quarter of the scores, rounded down, is cut at each end."""
    cut = len(scores) // 4
    return mean(sorted(scores)[cut : len(scores) - cut])


def centred(scores: Sequence[float], estimator: Estimator) -> Sequence[float]:
    """Scores with their own spread whose mean is that of the estimator: an interquartile mean shifts them."""
    if not scores or not estimator.endswith("iqm"):
        return scores
    shift = interquartile_mean(scores) - mean(scores)
    return [score + shift for score in scores]


def sample_std(scores: Sequence[float]) -> float:
    """The sample standard deviation; at least two scores."""
    if max(scores) - min(scores) <= ROUNDING * max(map(abs, scores)):
        return 0.0
    middle = mean(scores)
    return math.sqrt(math.fsum((score - middle) ** 2 for score in scores) / (len(scores) - 1))


def interval(scores: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """The t-interval of the mean; at least two scores."""
    half = t_quantile((1 + confidence) / 2, len(scores) - 1) * sample_std(scores) * math.sqrt(1 / len(scores))
    return mean(scores) - half, mean(scores) + half


TINY = 1e-300


@lru_cache(maxsize=4096)
def t_quantile(probability: float, dof: float) -> float:
    """The t below which ``probability`` of Student's distribution with ``dof`` degrees of freedom lies."""
    if probability < 0.5:
        return -t_quantile(1 - probability, dof)
    if probability == 0.5:
        return 0.0  # where Newton's steps have nothing to start from on one side
    low, high = 0.0, 1.0
    while t_cdf(high, dof) < probability:
        low, high = high, 2 * high
    t = (low + high) / 2
    for _ in range(100):
        excess = t_cdf(t, dof) - probability
        low, high = (low, t) if excess > 0 else (t, high)
        step = t - excess / _t_pdf(t, dof)
        following = step if low < step < high else (low + high) / 2  # Newton's step, kept between its bounds
        if abs(following - t) < 1e-14 * max(1.0, t):
            break
        t = following
    return t


def t_cdf(t: float, dof: float) -> float:
    """The probability that Student's t with ``dof`` degrees of freedom is at most ``t``."""
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    tail = _beta(dof / 2, 0.5, dof / (dof + t * t), t * t / (dof + t * t)) / 2
    return 1 - tail if t > 0 else tail


def _t_pdf(t: float, dof: float) -> float:
    scale = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - math.log(dof * math.pi) / 2
    return math.exp(scale - (dof + 1) / 2 * math.log1p(t * t / dof))


def _beta(a: float, b: float, x: float, y: float) -> float:
    """The regularised incomplete beta function I_x(a, b); ``y`` is 1 − x, which near 0 no subtraction gives exactly."""
    if 0.0 in {x, y}:
        return x
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y)
    if x < (a + 1) / (a + b + 2):
        return math.exp(scale) * _fraction(a, b, x) / a
    return 1 - math.exp(scale) * _fraction(b, a, y) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction that converges fast for x < (a + 1) / (a + b + 2)."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 1000):
        previous = value
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            value *= c * d
        if abs(value - previous) < 1e-15 * abs(value):
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > TINY else TINY
