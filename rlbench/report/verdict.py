"""Verdicts: the statistics of measured seeds against a reference score, as pure functions of numbers.

A cell's seeds make a claim, with the probability of seeing them were the truth no worse, or no better, than the
reference. ``settle`` turns the claims of a table into verdicts: BELOW and ABOVE survive Holm's correction over it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

from rlbench.report.estimate import distribution, mean, quantile, spread

if TYPE_CHECKING:
    from rlbench.records.looks import Look, Looks

ALPHA = 0.05
FEWEST = 3
FEWEST_RULE = "fewer than three seeds are INCONCLUSIVE"
"""Seeds of the smallest test, and the sentence about it in ``show --documented`` and both READMEs."""

MOST = 100
"""Largest number of further seeds that a verdict names."""

POWER = 0.8
"""Probability that the number of further seeds named by a verdict would settle it."""

UNDECIDABLE = "undecidable at any number of seeds"  # because of the standard error of the reference

Word = Literal["REPRODUCED", "ABOVE", "BELOW", "INCONCLUSIVE", "CONSISTENT", "NOT COMPARABLE", "PARTIAL", "NOT RUN"]
ClaimWord = Literal["INCONCLUSIVE", "CONSISTENT", "REPRODUCED"]
RANK: dict[ClaimWord, int] = {"INCONCLUSIVE": 0, "CONSISTENT": 1, "REPRODUCED": 2}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A word of the closed vocabulary and, for INCONCLUSIVE, how many more seeds would probably settle it."""

    word: Word
    more: int | None = None
    next_look: int | None = None  # seeds of the next look of ``run --until-decided``

    def __str__(self) -> str:
        if self.next_look is not None:
            return f"{self.word} (next look at {self.next_look} seeds)"
        if self.more is None:
            return self.word
        count = f"> {MOST}" if self.more > MOST else f"≈ {self.more}"
        return f"{self.word} ({count} more {'seed' if self.more == 1 else 'seeds'})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The claim of one cell's seeds, before the correction over the table's other cells."""

    found: ClaimWord  # unless the cell is below or above
    below: float | None = None  # probability of seeds this bad, if the truth were within the margin; None: not tested
    above: float | None = None
    more: int | None = None
    next_look: int | None = None  # as of the verdict
    shortfall: float | None = None  # upper end of the one-sided interval of reference less ours; None: too few


def against_seeds(
    scores: Sequence[float], reference: float, std: float | None, n: int, margin: float, level: float = ALPHA
) -> Claim:
    """Measured seeds against the mean of ``n`` documented ones: Welch's t at ``level`` for non-inferiority.

    ``std`` has n in its denominator, as in NumPy, so the mean's standard error is std / √(n − 1). Without a published
    std, ours replaces it.
    """
    if len(scores) < FEWEST:
        return Claim(found="INCONCLUSIVE", more=FEWEST - len(scores))
    ours = spread(scores) ** 2 / len(scores)
    theirs = spread(scores) ** 2 / n if std is None else squared_error(std, n)
    degrees = _welch(ours, len(scores), theirs, n)
    difference, error = mean(scores) - reference, math.sqrt(ours + theirs)
    if _upper_tail(difference + margin, error, degrees) < level:
        return _claim("REPRODUCED", None, difference, margin, error, degrees, level)
    more = more_seeds(scores, difference + margin, theirs, n)
    return _claim("INCONCLUSIVE", more, difference, margin, error, degrees, level)


def welch_interval(scores: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Welch's 95 % interval of the difference of two means; at least two scores on each side."""
    ours, theirs = (spread(side) ** 2 / len(side) for side in (scores, others))
    half = quantile(0.975, _welch(ours, len(scores), theirs, len(others))) * math.sqrt(ours + theirs)
    difference = mean(scores) - mean(others)
    return difference - half, difference + half


def squared_error(std: float, n: int) -> float:
    """The squared standard error of the mean of ``n`` ≥ 2 seeds, from a std with n in its denominator."""
    return std**2 / (n - 1)


def against_run(scores: Sequence[float], reference: float, margin: float, resolution: float) -> Claim:
    """Measured seeds against a reference of a single run, by where one more run of ours would fall.

    No difference within ``margin`` is below or above. Seeds are taken to lie apart by ``resolution`` at least, the
    smallest difference that a score can show: equal scores are no proof that the next one is equal, too.
    """
    if len(scores) < FEWEST:
        return Claim(found="INCONCLUSIVE", more=FEWEST - len(scores))
    error, degrees = max(spread(scores), resolution) * math.sqrt(1 + 1 / len(scores)), len(scores) - 1
    difference = mean(scores) - reference
    below = min(1.0, 2 * _lower_tail(difference, error, degrees)) if difference < -margin else 1.0  # two-sided
    above = min(1.0, 2 * _upper_tail(difference, error, degrees)) if difference > margin else 1.0
    return Claim(
        found="INCONCLUSIVE" if below < ALPHA else "CONSISTENT",
        below=below,
        above=above,
        shortfall=_upper_end(-difference, error, degrees),
    )


def with_failures(test: Callable[[Sequence[float]], Claim], scores: Sequence[float], floors: Sequence[float]) -> Claim:
    """The weakest claim over counting none, one, … all of the failed seeds at their floor score."""
    claims = [test([*scores, *floors[:count]]) for count in range(len(floors) + 1)]
    return _joined(claims, below=min)


def under_both(first: Claim, second: Claim) -> Claim:
    """The claim under both possible estimators of the reference: below or above only if both agree."""
    return _joined([first, second], below=max)


def in_both_respects(first: Claim, second: Claim) -> Claim:
    """The weaker of two claims: below if either is, above only if both are; with the first one's shortfall."""
    return replace(_joined([first, second], below=min), shortfall=first.shortfall)


def in_looks(claim: Claim, looks: Looks) -> Claim:
    """The claim of the last look, with its chances as those of the whole design, and the seeds of the next look."""
    following = looks.following
    if following is not None and not looks.count:
        more = claim.more if claim.below is None else None  # None where the look's seeds have ended
        return Claim(found="INCONCLUSIVE", more=more, next_look=following.seeds)
    if claim.found != "INCONCLUSIVE":
        following = None
    return replace(
        claim,
        below=None if claim.below is None else min(1.0, claim.below * looks.inflation),
        above=None if claim.above is None else min(1.0, claim.above * looks.inflation),
        more=None if following is None else following.seeds - looks.last.seeds,
        next_look=None if following is None else following.seeds,
    )


def no_more_than_consistent(claim: Claim) -> Claim:
    """Weaken a claim whose margin reaches the random policy: CONSISTENT at most."""
    return replace(claim, found=min(claim.found, "CONSISTENT", key=RANK.__getitem__))


def settle(claims: Sequence[Claim], alpha: float = ALPHA) -> list[Verdict]:
    """The verdicts of a table, in the order of its claims."""
    below, above = holm([c.below for c in claims], alpha), holm([c.above for c in claims], alpha)
    verdicts = []
    for claim, worse, better in zip(claims, below, above, strict=True):
        if worse:
            verdicts.append(Verdict("BELOW"))
        elif better and claim.found != "INCONCLUSIVE":
            verdicts.append(Verdict("ABOVE"))
        else:
            open_claim = claim.found == "INCONCLUSIVE"
            verdicts.append(Verdict(claim.found, *((claim.more, claim.next_look) if open_claim else ())))
    return verdicts


def holm(probabilities: Sequence[float | None], alpha: float) -> list[bool]:
    """Reject hypotheses with a family-wise error rate of ``alpha`` (Holm 1979); None is not tested."""
    ordered = sorted((p, place) for place, p in enumerate(probabilities) if p is not None)
    rejections = [False] * len(probabilities)
    for rank, (probability, place) in enumerate(ordered):
        if probability > alpha / (len(ordered) - rank):
            break
        rejections[place] = True
    return rejections


def more_seeds(scores: Sequence[float], distance: float, noise: float = 0.0, n: int = 0) -> int:
    """Seeds to add until Welch's t, before Holm's correction, would probably detect a ``distance`` from the margin.

    ``noise`` is the squared error of the reference's mean of ``n`` seeds. The test counts it, but that mean is
    printed and stays: only ours would fall elsewhere.
    """
    have, ours = len(scores), spread(scores) ** 2

    def enough(count: int) -> bool:
        threshold = quantile(1 - ALPHA, _welch(ours / count, count, noise, n)) * math.sqrt(ours / count + noise)
        return threshold + NormalDist().inv_cdf(POWER) * math.sqrt(ours / count) < abs(distance)

    if not enough(have + MOST):
        return MOST + 1
    return next(count for count in range(1, MOST + 1) if enough(have + count))


def out_of_reach(distance: float, noise: float, n: int, level: float = ALPHA) -> bool:
    """True if no number of seeds with this mean is decisive, because of the standard error of the reference."""
    return noise > 0 and n > 1 and quantile(1 - level, n - 1) * math.sqrt(noise) >= abs(distance)


def power(std: float, n: int, margin: float, look: Look) -> float:
    """The probability that a look reproduces a reference of ``n`` ≥ 2 seeds if ours have its mean and std.

    Welch's t is taken to be normal around its mean, with the quantile of its degrees of freedom.
    """
    theirs = squared_error(std, n)
    ours = theirs * n / look.seeds
    threshold = quantile(1 - look.level, _welch(ours, look.seeds, theirs, n))
    return NormalDist().cdf(margin / math.sqrt(ours + theirs) - threshold)


def _claim(
    word: ClaimWord, more: int | None, difference: float, margin: float, error: float, degrees: float, level: float
) -> Claim:
    return Claim(
        found=word,
        more=more,
        below=_lower_tail(difference + margin, error, degrees),
        above=_upper_tail(difference - margin, error, degrees),
        shortfall=_upper_end(-difference, error, degrees, level),
    )


def _upper_end(difference: float, error: float, degrees: float, level: float = ALPHA) -> float:
    """The upper end of the one-sided interval of a difference, of 95 % where ``level`` is 5 %."""
    return difference + (quantile(1 - level, degrees) * error if error else 0.0)


def _joined(claims: Sequence[Claim], below: Callable[[list[float]], float]) -> Claim:
    """The weakest of several claims; above and shortfall are None unless all claims have them."""
    worse = [c.below for c in claims if c.below is not None]
    better = [c.above for c in claims if c.above is not None]
    shortfalls = [c.shortfall for c in claims if c.shortfall is not None]
    return Claim(
        found=min((c.found for c in claims), key=RANK.__getitem__),
        below=below(worse) if worse else None,
        above=max(better) if len(better) == len(claims) else None,
        more=max((c.more for c in claims if c.more is not None), default=None),
        shortfall=max(shortfalls) if len(shortfalls) == len(claims) else None,
    )


def _upper_tail(difference: float, error: float, degrees: float) -> float:
    return _lower_tail(-difference, error, degrees)


def _lower_tail(difference: float, error: float, degrees: float) -> float:
    """The probability of a difference at most this large by chance; without any spread there is no chance."""
    if error == 0:
        return 0.0 if difference < 0 else 1.0
    return distribution(difference / error, degrees)


def _welch(ours: float, count: int, theirs: float, n: int) -> float:
    """Welch's degrees of freedom, rounded down, or those of our seeds with the documented variance if that has fewer.

    Three to five seeds lie close together by chance now and then. Welch's test then counts on the reference's degrees
    of freedom, and would err in up to 6 of 100 simulated cases, and in far more than its share at small levels.
    """
    return min(_degrees(ours, count, theirs, n), _degrees(max(ours, theirs * n / count), count, theirs, n))


def _degrees(ours: float, count: int, theirs: float, n: int) -> float:
    """Satterthwaite's degrees of freedom of two squared errors, rounded down; of one where the other is zero."""
    parts = [(square, size) for square, size in ((ours, count), (theirs, n)) if square > 0 and size > 1]
    if not parts:
        return max(1, count - 1)
    degrees = sum(square for square, _ in parts) ** 2 / sum(square**2 / (size - 1) for square, size in parts)
    return math.floor(degrees + 1e-9)  # a whole number stays despite rounding
