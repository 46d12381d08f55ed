"""Summary of a data set: episodes, returns, ends and coverage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets import catalogue, loader, recording_reader
from rlbench.datasets.episodes import Dataset, episodes
from rlbench.datasets.recording_format import TERMINATED, TRUNCATED, Steps
from rlbench.errors import RefusedFile

BINS = 20
COVERED = 1e-3  # share of all steps from which a bin counts as covered


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Distribution of numbers."""

    mean: float
    std: float
    low: float
    quartiles: tuple[float, float, float]
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HistogramBin:
    """Bin of a histogram, from ``low`` up to ``high``."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Summary of a data set of continuous actions."""

    steps: int
    features: int  # numbers in an observation
    actions: int  # numbers in an action
    next_observations: bool  # stored
    episodes: int
    terminated: int
    truncated: int
    unfinished: int  # episodes without a marked end
    returns: Distribution  # of the finished episodes, or of all if there is none
    lengths: Distribution  # likewise, in steps
    histogram: tuple[HistogramBin, ...]  # of returns
    outside: float  # share of the numbers in actions that are beyond ±1
    action_cover: float  # share of 20 bins from −1 to 1 that hold data, averaged over the actions' numbers


def summary(dataset: Dataset, *, next_observations: bool) -> Summary:
    """Summarize a data set of continuous actions; ``next_observations``: its file stores them."""
    action, split = dataset.action[~dataset.final], episodes(dataset)
    whole = split.ended if split.ended.any() else ~split.ended
    returns = split.returns[whole]
    return Summary(
        steps=len(action),
        features=dataset.obs.shape[1],
        actions=action.shape[1],
        next_observations=next_observations,
        episodes=len(split.returns),
        terminated=int(dataset.terminated.sum()),
        truncated=int(dataset.truncated.sum()),
        unfinished=int((~split.ended).sum()),
        returns=_distribution(returns),
        lengths=_distribution(split.lengths[whole].astype(np.float64)),
        histogram=_histogram(returns),
        outside=float((np.abs(action) > 1).mean()),
        action_cover=_coverage(action.astype(np.float32, copy=False)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordingSummary:
    """Summary of recorded games of discrete actions."""

    steps: int
    episodes: int
    terminated: int
    truncated: int
    returns: Distribution | None  # of the terminated episodes; None without one
    actions: tuple[float, ...]  # share of the steps with each action


def recording_summary(events: Steps) -> RecordingSummary:
    """Summarize recorded games by their steps."""
    ended = (events.flags & (TERMINATED | TRUNCATED)) > 0
    terminated = (events.flags & TERMINATED) > 0
    ends = np.flatnonzero(ended)
    totals = np.diff(np.cumsum(events.reward, dtype=np.float64)[ends], prepend=0.0)
    whole = totals[terminated[ends]]
    live = events.action[~events.final]
    return RecordingSummary(
        steps=len(live),
        episodes=len(ends),
        terminated=int(terminated.sum()),
        truncated=int((ended & ~terminated).sum()),
        returns=_distribution(whole) if len(whole) else None,
        actions=tuple(float(count) / len(live) for count in np.bincount(live)) if len(live) else (),
    )


def _distribution(values: NDArray[np.float64]) -> Distribution:
    low, first, middle, third, high = (float(q) for q in np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))
    return Distribution(
        mean=float(values.mean()), std=float(values.std()), low=low, quartiles=(first, middle, third), high=high
    )


def _histogram(values: NDArray[np.float64]) -> tuple[HistogramBin, ...]:
    low, high = values.min(), values.max()
    if high - low <= BINS * np.spacing(np.abs(values).max()):  # as good as equal: no bins fit between
        return (HistogramBin(low=float(low), high=float(high), count=len(values)),)
    counts, edges = np.histogram(values, bins=BINS)
    pairs = zip(edges[:-1], edges[1:], counts, strict=True)
    return tuple(HistogramBin(low=float(low), high=float(high), count=int(count)) for low, high, count in pairs)


def _coverage(action: NDArray[np.float32]) -> float:
    edges = np.linspace(-1, 1, BINS + 1)
    counts = np.stack([np.histogram(column.clip(-1, 1), edges)[0] for column in action.T])
    return float((counts >= max(1.0, COVERED * len(action))).mean())


EXPERT = "policy_return"  # metadata key of recorded games: return of its policy without the noise of the recording


class DatasetReturn(NamedTuple):
    """Mean raw returns; None where they are unknown."""

    behaviour: float | None  # of the data's whole episodes
    expert: float | None  # of the behavior policy, as it was evaluated


def dataset_return(path: Path, name: str | None = None, *, max_bytes: int | None = None) -> DatasetReturn:
    """Return the mean returns of the data set at ``path``, D4RL's ``name`` if given, within ``max_bytes`` of memory.

    Raises:
        RefusedFile: it cannot be read, or its metadata hold a return that is no number.
    """
    metadata = loader.dataset_metadata(path)
    expert = _number(path, EXPERT, metadata[EXPERT]) if EXPERT in metadata else None
    if (mean := stored_mean(path, metadata)) is not None:
        return DatasetReturn(mean, expert)
    if catalogue.is_recording(path):
        returns = recording_summary(recording_reader.read_steps(path, max_bytes=max_bytes)).returns
        return DatasetReturn(None if returns is None else returns.mean, expert)
    split = episodes(loader.load_dataset(path, name, max_bytes=max_bytes))
    return DatasetReturn(float(split.returns[split.ended].mean()) if split.ended.any() else None, expert)


def stored_mean(path: Path, metadata: Mapping[str, str]) -> float | None:
    """Mean return in the metadata of an own set, without the episodes that the number of steps cut; None without one.

    Recorded play does not tell such an episode from one that a time limit ended.

    Raises:
        RefusedFile: it is no number.
    """
    return _number(path, "return_mean", metadata["return_mean"]) if "return_mean" in metadata else None


def _number(path: Path, key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RefusedFile(f"{path}: {key}: {text!r} is no number; restore the file, or remove this attribute")
    return number
