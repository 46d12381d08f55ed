"""The pooled verdict of an algorithm: a random-effects meta-analysis of its cells' normalised differences.

A cell's effect is (ours - reference) / (reference - random policy), with Welch's squared error. The between-cell
variance is DerSimonian and Laird's (1986, doi:10.1016/0197-2456(86)90046-2), the interval Hartung and Knapp's (2001,
doi:10.1002/sim.1009), never narrower than the cells' own errors give (Röver et al. 2015,
doi:10.1186/s12874-015-0091-1). Groups are declared: one per suite, algorithm, and ``full`` budget or equal steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from rlbench.config.names import number_text
from rlbench.report.estimate import mean, sample_std, t_quantile
from rlbench.report.reference_scores import SHARE
from rlbench.report.reference_table import on_scale, scale_of, task_name
from rlbench.report.verdict import ALPHA, MIN_SEEDS, variance_of_mean

if TYPE_CHECKING:
    from rlbench.report.cells import Cell
    from rlbench.report.reference_table import CellKey

Kind = Literal["full", "at"]
PooledWord = Literal["REPRODUCED", "BELOW", "INCONCLUSIVE"]
KINDS: tuple[Kind, ...] = ("full", "at")
MIN_CELLS = 2
Sides: TypeAlias = tuple[Sequence[float], float, float | None, int | None, float | None]
"""A tested cell: our scores; the reference's mean, std over seeds and seeds; the random policy's score."""


class Effect(NamedTuple):
    """One cell's normalised difference and its squared standard error."""

    difference: float
    variance: float


class Meta(NamedTuple):
    """A random-effects mean with its interval, in the effects' unit."""

    mean: float
    low: float
    high: float
    tau: float  # std of the cells' true differences
    q: float  # Cochran's
    df: int

    @property
    def percents(self) -> dict[str, float]:
        """The mean and its interval, in percent."""
        return {"mean": 100 * self.mean, "low": 100 * self.low, "high": 100 * self.high}

    @property
    def percent_text(self) -> str:
        """``+1.2 % [-3.4, +5.6]``."""
        middle, low, high = (number_text(value, "+.1f") for value in self.percents.values())
        return f"{middle} % [{low}, {high}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooled:
    """One row below a suite's table."""

    suite: str
    algorithm: str
    kind: Kind
    origin: Literal["", "own", "rlbench"] = ""  # as of a cell: own runs are never pooled with those of rlbench
    of_imported: bool = False  # curves of another program are never pooled with runs of rlbench
    keys: tuple[CellKey, ...]  # the cells that are pooled
    left_out: tuple[str, ...]  # tasks without a spread on either side, or without a scale
    meta: Meta  # as a share of the distance from the random policy to the reference
    margin: float = SHARE  # a share of that distance

    @property
    def word(self) -> PooledWord:
        """REPRODUCED where the whole interval is above the margin; BELOW where it is below 0; else INCONCLUSIVE."""
        if self.meta.low > -self.margin:
            return "REPRODUCED"
        return "BELOW" if self.meta.high < 0 else "INCONCLUSIVE"

    def __str__(self) -> str:
        tau, q = number_text(100 * self.meta.tau, ".1f"), number_text(self.meta.q, ".1f")
        when = "full budget" if self.kind == "full" else "at equal steps"
        rest = f"; not pooled, for want of a spread: {', '.join(self.left_out)}" if self.left_out else ""
        whose = " (imported)" if self.of_imported else " (yours)" if self.origin == "own" else ""
        return (
            f"{self.algorithm}{whose}, {when}: {self.word}, {self.meta.percent_text} over "
            f"{len(self.keys)} cells (τ {tau}, Q {q} with {self.meta.df} df){rest}"
        )


def pooled_rows(cells: Sequence[Cell], *, margin: float = SHARE, alpha: float = ALPHA) -> list[Pooled]:
    """A row for each suite, algorithm, origin, program and kind with at least two cells that have an effect.

    Its interval has the confidence 1 − ``alpha``.
    """
    groups: dict[tuple[str, str, str, bool], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.key.suite, cell.key.algorithm, cell.origin, _is_imported(cell)), []).append(cell)
    return [row for group in groups.values() for row in _rows(group, margin, alpha)]


def meta_analysis(effects: Sequence[Effect], alpha: float = ALPHA) -> Meta:
    """The random-effects mean of at least two effects with positive variances, and its interval of 1 − ``alpha``."""
    df = len(effects) - 1
    weights = [1 / effect.variance for effect in effects]
    q = _dispersion(effects, weights)
    total = math.fsum(weights)
    tau2 = max(0.0, (q - df) / (total - math.fsum(w * w for w in weights) / total))
    weights = [1 / (effect.variance + tau2) for effect in effects]
    middle = _weighted_mean(effects, weights)
    scale = max(1.0, _dispersion(effects, weights) / df)  # cells that agree by luck narrow no interval
    half = t_quantile(1 - alpha / 2, df) * math.sqrt(scale / math.fsum(weights))
    return Meta(middle, middle - half, middle + half, math.sqrt(tau2), q, df)


def _rows(group: Sequence[Cell], margin: float, alpha: float) -> Iterator[Pooled]:
    for kind in KINDS:
        effects, left_out = _effects(group, kind)
        if len(effects) >= MIN_CELLS:
            yield Pooled(
                suite=group[0].key.suite,
                algorithm=group[0].key.algorithm,
                kind=kind,
                origin=group[0].origin,
                of_imported=_is_imported(group[0]),
                keys=tuple(effects),
                left_out=tuple(left_out),
                meta=meta_analysis(list(effects.values()), alpha),
                margin=margin,
            )


def _effects(group: Sequence[Cell], kind: Kind) -> tuple[dict[CellKey, Effect], list[str]]:
    """The effects of the cells with three tested seeds, and the tasks of those without a spread or a scale."""
    effects, left_out = {}, []
    for cell in group:
        sides = _at(cell) if kind == "at" else _full(cell)
        if sides is None or len(sides[0]) < MIN_SEEDS:
            continue
        if (effect := _effect(*sides)) is None:
            left_out.append(task_name(cell.key))
        else:
            effects[cell.key] = effect
    return effects, left_out


def _is_imported(cell: Cell) -> bool:
    return cell.measured is not None and cell.measured.imported


def _full(cell: Cell) -> Sides | None:
    reference = cell.documented
    if reference is None or cell.test is None or cell.unfinished or cell.conflicting:
        return None
    random = on_scale(scale_of(cell.key), reference.estimator)
    return _lower(cell.scores, cell.all_scores), reference.score, reference.std, reference.n, random


def _at(cell: Cell) -> Sides | None:
    at, scale = cell.at, scale_of(cell.key)
    if at is None or at.test is None or cell.conflicting:
        return None
    random = scale.random if scale else None
    return _lower(at.scores, at.all_scores), at.reference.mean, at.reference.std, at.reference.n, random


def _lower(scores: Sequence[float], all_scores: Sequence[float]) -> Sequence[float]:
    """The scores of the last look's seeds, or those of all seeds where their mean is lower."""
    return min(scores, all_scores or scores, key=mean)


def _effect(
    scores: Sequence[float], reference: float, std: float | None, n: int | None, random: float | None
) -> Effect | None:
    """The effect of a cell; None unless both sides have a positive std and the scale is known."""
    if not std or n is None or n < 2 or random is None or reference == random or not sample_std(scores):
        return None
    variance = sample_std(scores) ** 2 / len(scores) + variance_of_mean(std, n)
    return Effect((mean(scores) - reference) / abs(reference - random), variance / (reference - random) ** 2)


def _weighted_mean(effects: Sequence[Effect], weights: Sequence[float]) -> float:
    return math.fsum(w * e.difference for w, e in zip(weights, effects, strict=True)) / math.fsum(weights)


def _dispersion(effects: Sequence[Effect], weights: Sequence[float]) -> float:
    middle = _weighted_mean(effects, weights)
    return math.fsum(w * (e.difference - middle) ** 2 for w, e in zip(weights, effects, strict=True))
