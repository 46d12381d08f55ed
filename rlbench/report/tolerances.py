"""How far a cell's score may lie from its document: the margin, the resolution of a score, the threshold of both."""

from __future__ import annotations

from rlbench.report.reference_scores import OPTIMUM, CellKey, ReferenceScore, settings
from rlbench.report.references import Reference, normalized, reference
from rlbench.report.verdict import SHARE, margin_of

TOLERANCE = 0.05
"""How far below the known optimum the mean of a toy task may lie, as a share of it."""

WHOLE = "NoFrameskip-v4"
"""How the names of tasks end in which the return of every game is a whole number."""


def margin(key: CellKey, document: ReferenceScore, share: float | None = None) -> float:
    """How far from its document the mean of a cell may lie and still be no other, on the document's scale.

    A ``share`` that is given replaces the rule: then the documented spread does not count either.
    """
    if document.source == OPTIMUM:
        return (TOLERANCE if share is None else share) * abs(document.score)
    random = on_scale(reference(key), document.estimator)
    if share is None:
        return margin_of(document.score, document.std, random)
    return margin_of(document.score, None, random, share)


def step_margin(steps: int, share: float | None = None) -> float:
    """How many more steps than documented a threshold may take."""
    return (SHARE if share is None else share) * steps


def resolution(key: CellKey, document: ReferenceScore) -> float:
    """The smallest difference that a score of the cell can show, on the document's scale.

    It is the unit of the last printed digit, or, where that is larger and every game's return is a whole number, one
    point in one game of an evaluation.
    """
    spec = settings(key) if key.task.endswith(WHOLE) else None
    return max(document.resolution, 1 / spec.protocol.episodes if spec else 0.0)


def threshold(key: CellKey, document: ReferenceScore) -> float | None:
    """The mean return at which the documented run and ours both stop; None where either goes on."""
    spec = settings(key) if document.stops else None
    stop = spec.protocol.stop if spec else None
    return stop if stop is not None and document.score >= stop else None


def insensitive(key: CellKey, document: ReferenceScore, margin: float) -> bool:
    """Whether the margin is as wide as the way from the random policy: then being within it proves no skill."""
    random = on_scale(reference(key), document.estimator)
    return document.source != OPTIMUM and random is not None and margin >= abs(document.score - random)


def on_scale(scale: Reference | None, estimator: str) -> float | None:
    """The random policy's score as the estimator counts."""
    if scale is None:
        return None
    return 100 * normalized(scale.random, scale) if estimator.startswith("normalized") else scale.random
