"""From evaluations to one score a run, and from several seeds to an interval: seeds are replicates, games are not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlbench.report.student import quantile

if TYPE_CHECKING:
    from rlbench.record.store import Record


def best_of_run(record: Record) -> float | None:
    """The highest evaluation mean of a run, the untrained policy's included, as the documents have it."""
    return max((epoch.evaluated.mean for epoch in record.epochs if epoch.evaluated is not None), default=None)


def mean(scores: Sequence[float]) -> float:
    """The average; the same for equal scores in any order."""
    return math.fsum(scores) / len(scores)


def spread(scores: Sequence[float]) -> float:
    """The sample standard deviation; at least two scores."""
    middle = mean(scores)
    return math.sqrt(math.fsum((score - middle) ** 2 for score in scores) / (len(scores) - 1))


def interval(scores: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """The t-interval of the mean; at least two scores."""
    return _around(scores, confidence, 1 / len(scores))


def prediction(scores: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Where one more run of the same kind would fall; at least two scores."""
    return _around(scores, confidence, 1 + 1 / len(scores))


def lower(scores: Sequence[float], confidence: float = 0.95) -> float:
    """The one-sided lower bound of the mean; at least two scores."""
    return mean(scores) - _half(scores, confidence, 1 / len(scores))


def upper(scores: Sequence[float], confidence: float = 0.95) -> float:
    """The one-sided upper bound of the mean; at least two scores."""
    return mean(scores) + _half(scores, confidence, 1 / len(scores))


def _around(scores: Sequence[float], confidence: float, variance: float) -> tuple[float, float]:
    half = _half(scores, (1 + confidence) / 2, variance)
    return mean(scores) - half, mean(scores) + half


def _half(scores: Sequence[float], probability: float, variance: float) -> float:
    """Half an interval's width, for an estimate whose variance is ``variance`` times that of one score."""
    return quantile(probability, len(scores) - 1) * spread(scores) * math.sqrt(variance)
