"""What the measured seeds say of a document. Pure functions of numbers: no files, no tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlbench.report.estimate import lower, mean, prediction, spread, upper
from rlbench.report.student import quantile

FEWEST = 3
"""Seeds below which nothing is said."""

MOST = 100
"""More seeds than this are not worth counting."""

Word = Literal["REPRODUCED", "ABOVE", "BELOW", "INCONCLUSIVE", "CONSISTENT", "NOT COMPARABLE", "PARTIAL", "NOT RUN"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A word of the closed vocabulary and, for INCONCLUSIVE, how many more seeds would probably settle it."""

    word: Word
    more: int | None = None

    def __str__(self) -> str:
        if self.more is None:
            return self.word
        count = f"> {MOST}" if self.more > MOST else f"≈ {self.more}"
        return f"{self.word} ({count} more {'seed' if self.more == 1 else 'seeds'})"


def against_run(scores: Sequence[float], document: float) -> Verdict:
    """Measured seeds against a document of a single run, by where one more run of ours would fall."""
    if len(scores) < FEWEST:
        return Verdict("INCONCLUSIVE", FEWEST - len(scores))
    low, high = prediction(scores)
    if document < low:
        return Verdict("ABOVE")
    return Verdict("BELOW") if document > high else Verdict("CONSISTENT")


def against_optimum(scores: Sequence[float], optimum: float, margin: float) -> Verdict:
    """Measured seeds against the score of the best policy: their mean must lie within ``margin`` of it."""
    if len(scores) < FEWEST:
        return Verdict("INCONCLUSIVE", FEWEST - len(scores))
    if lower(scores) >= optimum - margin:
        return Verdict("REPRODUCED")
    if upper(scores) < optimum - margin:
        return Verdict("BELOW")
    return Verdict("INCONCLUSIVE", more_seeds(scores, optimum - margin))


def with_failures(verdict: Verdict, failed: int) -> Verdict:
    """A verdict on the runs that ended, once it is known that ``failed`` others did not: never a better one."""
    if failed and verdict.word in {"REPRODUCED", "ABOVE", "CONSISTENT"}:
        return Verdict("INCONCLUSIVE", failed)
    return verdict


def more_seeds(scores: Sequence[float], threshold: float) -> int:
    """Seeds to add until the mean would be told from ``threshold``, if mean and spread stayed as they are."""
    distance, deviation, have = abs(mean(scores) - threshold), spread(scores), len(scores)
    for count in range(have + 1, have + MOST + 1):
        if quantile(0.95, count - 1) * deviation / math.sqrt(count) < distance:
            return count - have
    return MOST + 1
