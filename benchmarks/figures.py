"""Samples of a run of the benchmark, their medians, and the ratios of rlbench to the peers."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

FLOP = {"double": 2.78e9, "plain": 2.18e9}
"""One update of 32: three forward passes (two where the target is not double) and one backward."""


class Figure(NamedTuple):
    """The samples of one library in one workload on a number of threads."""

    workload: str
    subject: str
    threads: int
    unit: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample."""
        return median(self.samples)

    @property
    def spread(self) -> float:
        """The median distance of a sample from the median, as a share of it."""
        middle = self.median
        return median(abs(sample - middle) for sample in self.samples) / middle if middle else 0.0


class Ratio(NamedTuple):
    """The speed of rlbench over that of a peer; above 1 is better, whatever the unit."""

    workload: str
    threads: int
    against: str
    value: float


class Figures:
    """The samples measured so far."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str, int, str], list[float]] = {}

    def add(self, workload: str, subject: str, threads: int, unit: str, samples: list[float]) -> None:
        """Add samples of one figure."""
        self._samples.setdefault((workload, subject, threads, unit), []).extend(samples)

    def all(self) -> list[Figure]:
        """Figures in the order of their first samples."""
        return [Figure(*key, tuple(samples)) for key, samples in self._samples.items()]

    def of(self, workload: str, subject: str, threads: int, unit: str | None = None) -> float | None:
        """The median of a figure (in ``unit``, if it is given), or None if it was not measured."""
        figures = (f for f in self.all() if (f.workload, f.subject, f.threads) == (workload, subject, threads))
        return next((f.median for f in figures if unit in {None, f.unit}), None)


def floors(figures: Figures) -> None:
    """Add the time that an update would take at the speed of a large matrix product."""
    for figure in figures.all():
        if (figure.workload, figure.subject) == ("gemm", "gemm"):
            for target, flop in FLOP.items():
                milliseconds = [flop / speed / 1e6 for speed in figure.samples]
                figures.add("dqn-update", f"floor ({target} target)", figure.threads, "ms", milliseconds)


def ratios(figures: Figures) -> list[Ratio]:
    """Ratios of rlbench to each peer in one workload on equal threads, and of many stored transitions to few."""
    result = []
    for figure in figures.all():
        mine = figures.of(figure.workload, "rlbench", figure.threads, figure.unit)
        if mine is None or figure.subject == "rlbench":
            continue
        better = figure.median / mine if figure.unit == "ms" else mine / figure.median
        result.append(Ratio(figure.workload, figure.threads, figure.subject, better))
    for figure in figures.all():
        few = figures.of(figure.workload, "10000 stored", figure.threads)
        if figure.subject == "1000000 stored" and few is not None:
            result.append(Ratio(figure.workload, figure.threads, "10000 stored", few / figure.median))
    return result
