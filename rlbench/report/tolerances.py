"""Tolerances of a comparison with a reference score: the margin, the resolution of a score, a common threshold."""

from __future__ import annotations

from rlbench.report.reference_scores import settings
from rlbench.report.reference_table import OPTIMUM, CellKey, ReferenceScore, on_scale, scale_of
from rlbench.report.verdict import SHARE, margin_of

TOLERANCE = 0.05
"""Margin of a toy task below its known optimum, as a share of the optimum."""

WHOLE = "NoFrameskip-v4"
"""Endings of the names of tasks with integer returns."""


def margin(key: CellKey, reference: ReferenceScore, share: float | None = None) -> float:
    """The margin of a cell around its reference score, on the scale of that score.

    A ``share`` that is given replaces the rule: then the documented spread does not count either.
    """
    if reference.source == OPTIMUM:
        return (TOLERANCE if share is None else share) * abs(reference.score)
    random = on_scale(scale_of(key), reference.estimator)
    if share is None:
        return margin_of(reference.score, reference.std, random)
    return margin_of(reference.score, None, random, share)


def step_margin(steps: int, share: float | None = None) -> float:
    """The factor of steps by which a threshold may be reached later than in the reference."""
    return (SHARE if share is None else share) * steps


def resolution(key: CellKey, reference: ReferenceScore) -> float:
    """The smallest difference that a score of the cell can show, on the reference's scale.

    It is the unit of the last printed digit, or, where that is larger and every game's return is a whole number, one
    point in one game of an evaluation.
    """
    spec = settings(key) if key.task.endswith(WHOLE) else None
    return max(reference.resolution, 1 / spec.protocol.episodes if spec else 0.0)


def threshold(key: CellKey, reference: ReferenceScore) -> float | None:
    """The mean return at which both the reference run and ours stop; None if one of them does not."""
    spec = settings(key) if reference.stops else None
    stop = spec.protocol.stop if spec else None
    return stop if stop is not None and reference.score >= stop else None


def insensitive(key: CellKey, reference: ReferenceScore, margin: float) -> bool:
    """True if the margin reaches the random policy's score: then a score within it proves no skill."""
    random = on_scale(scale_of(key), reference.estimator)
    return reference.source != OPTIMUM and random is not None and margin >= abs(reference.score - random)
