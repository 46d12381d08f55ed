"""What a data set holds, in a few numbers: episodes, returns, ends, and how much of the task it has seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.episodes import episodes
from rlbench.datasets.normalization import scale_of
from rlbench.datasets.recording_format import TERMINATED, TRUNCATED, Steps
from rlbench.datasets.types import Recorded

BINS = 20
SEEN = 1e-3  # share of all steps from which on a bin counts as seen
WIDE = 2_000  # numbers in an observation, from which on as many steps have to do
SAMPLE = 100_000  # steps that are enough to say how many ways the observations vary


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """How numbers are distributed."""

    mean: float
    deviation: float  # standard
    low: float
    quartiles: tuple[float, float, float]
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A bar of a histogram: so many numbers from ``low`` up to ``high``."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A data set at a glance."""

    steps: int
    features: int  # numbers in an observation
    actions: int  # numbers in an action
    next_observations: bool  # stored
    episodes: int
    terminated: int
    truncated: int
    unfinished: int  # episodes of which the file does not say how they ended
    returns: Spread  # of the finished episodes, or of all if none is
    lengths: Spread  # likewise, in steps
    histogram: tuple[Bar, ...]  # of returns
    outside: float  # share of the numbers in actions that are beyond ±1
    action_cover: float  # share of 20 bins from −1 to 1 that hold data, averaged over the actions' numbers
    constant: int  # numbers in observations that never change
    directions: float  # participation ratio: in how many directions the standardised observations vary


def summary(recorded: Recorded) -> Summary:
    """A data set at a glance."""
    found = episodes(recorded)
    counted = found.closed if found.closed.any() else ~found.closed
    returns = found.returns[counted]
    deviations = recorded.obs.max(0) > recorded.obs.min(0)
    return Summary(
        steps=len(recorded.obs),
        features=recorded.obs.shape[1],
        actions=recorded.action.shape[1],
        next_observations=recorded.next_obs is not None,
        episodes=len(found.returns),
        terminated=int(recorded.terminated.sum()),
        truncated=int(recorded.truncated.sum()),
        unfinished=int((~found.closed).sum()),
        returns=_spread(returns),
        lengths=_spread(found.lengths[counted].astype(np.float64)),
        histogram=_histogram(returns),
        outside=float((np.abs(recorded.action) > 1).mean()),
        action_cover=_cover(recorded.action.astype(np.float32, copy=False)),
        constant=int((~deviations).sum()),
        directions=_directions(recorded),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """A set of recorded play at a glance."""

    steps: int
    episodes: int
    terminated: int
    truncated: int
    returns: Spread | None  # of the episodes that ended by themselves; None where none did
    actions: tuple[float, ...]  # share of the steps in which each was taken


def played(events: Steps) -> Played:
    """A set of recorded play at a glance, from what happened in it."""
    ended = (events.marks & (TERMINATED | TRUNCATED)) > 0
    terminated = (events.marks & TERMINATED) > 0
    ends = np.flatnonzero(ended)
    totals = np.diff(np.cumsum(events.reward, dtype=np.float64)[ends], prepend=0.0)
    own = totals[terminated[ends]]
    live = events.action[~events.final]
    return Played(
        steps=len(live),
        episodes=len(ends),
        terminated=int(terminated.sum()),
        truncated=int((ended & ~terminated).sum()),
        returns=_spread(own) if len(own) else None,
        actions=tuple(float(count) / len(live) for count in np.bincount(live)) if len(live) else (),
    )


def _spread(values: NDArray[np.float64]) -> Spread:
    low, first, middle, third, high = (float(q) for q in np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))
    return Spread(
        mean=float(values.mean()), deviation=float(values.std()), low=low, quartiles=(first, middle, third), high=high
    )


def _histogram(values: NDArray[np.float64]) -> tuple[Bar, ...]:
    counts, edges = np.histogram(values, bins=BINS if len(np.unique(values)) > 1 else 1)
    pairs = zip(edges[:-1], edges[1:], counts, strict=True)
    return tuple(Bar(low=float(low), high=float(high), count=int(count)) for low, high, count in pairs)


def _cover(action: NDArray[np.float32]) -> float:
    edges = np.linspace(-1, 1, BINS + 1)
    counts = np.stack([np.histogram(column.clip(-1, 1), edges)[0] for column in action.T])
    return float((counts >= max(1.0, SEEN * len(action))).mean())


def _directions(recorded: Recorded) -> float:
    """The participation ratio of the correlations, (Σλ)² / Σλ²: 1 on a line, F where all numbers go their own way."""
    some = recorded.obs[:: max(1, len(recorded.obs) // SAMPLE)]
    if some.shape[1] > WIDE:
        some = some[:: max(1, len(some) // WIDE)][:WIDE]
    scaled = scale_of(recorded).applied(some).astype(np.float64)
    # either product has the same trace and norm; of very wide observations the one over steps is the smaller
    covariance = (scaled @ scaled.T if some.shape[1] > WIDE else scaled.T @ scaled) / len(scaled)
    total = float(np.trace(covariance))
    return total**2 / float((covariance**2).sum()) if total > 0 else 0.0
