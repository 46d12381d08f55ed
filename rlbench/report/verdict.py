"""Verdicts: the statistics of measured seeds against a reference score, as pure functions of numbers.

The test of a cell's seeds has p-values of two hypotheses: that the true mean is at least the reference less the
margin, and that it is at most the reference plus the margin.
``decide`` turns a table's tests into verdicts: BELOW and ABOVE survive Holm's correction over it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

from rlbench.report.estimate import mean, sample_std, t_cdf, t_quantile

if TYPE_CHECKING:
    from rlbench.records.looks import Look, Looks

ALPHA = 0.05
MIN_SEEDS = 3
MIN_SEEDS_RULE = "fewer than three seeds are INCONCLUSIVE"
"""Seeds of the smallest test, and the sentence about it in ``show --documented`` and both READMEs."""

MAX_MORE_SEEDS = 100  # largest number of further seeds that a verdict names
POWER = 0.8  # probability that the number of further seeds named by a verdict would decide it
UNDECIDABLE = "undecidable at any number of seeds"  # because of the standard error of the reference

Word = Literal["REPRODUCED", "ABOVE", "BELOW", "INCONCLUSIVE", "CONSISTENT", "NOT COMPARABLE", "PARTIAL", "NOT RUN"]
DECIDED = ("REPRODUCED", "BELOW", "ABOVE")
UncorrectedWord = Literal["INCONCLUSIVE", "CONSISTENT", "REPRODUCED"]
RANK: dict[UncorrectedWord, int] = {"INCONCLUSIVE": 0, "CONSISTENT": 1, "REPRODUCED": 2}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A word of the closed vocabulary and, for INCONCLUSIVE, how many more seeds would probably decide it."""

    word: Word
    more: int | None = None
    next_look: int | None = None  # seeds of the next look of ``run --until-decided``

    def __str__(self) -> str:
        if self.next_look is not None:
            return f"{self.word} (next look at {self.next_look} seeds)"
        if self.more is None:
            return self.word
        count = f"> {MAX_MORE_SEEDS}" if self.more > MAX_MORE_SEEDS else f"≈ {self.more}"
        return f"{self.word} ({count} more {'seed' if self.more == 1 else 'seeds'})"


@dataclass(frozen=True, kw_only=True, slots=True)
class CellTest:
    """The test of one cell's seeds before Holm's correction; ``measured.json`` stores its fields."""

    word: UncorrectedWord  # the word unless the cell is below or above
    below: float | None = None  # p-value of seeds this bad if the truth were within the margin; None: not tested
    above: float | None = None  # p-value of seeds this good
    more: int | None = None  # seeds to add
    next_look: int | None = None  # seeds at the next look
    shortfall: float | None = None  # upper end of the one-sided interval of reference less ours; None: too few


def welch_test(
    scores: Sequence[float], reference: float, std: float | None, n: int, margin: float, level: float = ALPHA
) -> CellTest:
    """Measured seeds against the mean of ``n`` documented ones: Welch's t at ``level`` for non-inferiority.

    ``std`` has n in its denominator, as in NumPy, so the mean's standard error is std / √(n − 1). Without a published
    std, ours replaces it.
    """
    if len(scores) < MIN_SEEDS:
        return CellTest(word="INCONCLUSIVE", more=MIN_SEEDS - len(scores))
    our_var = sample_std(scores) ** 2 / len(scores)
    ref_var = sample_std(scores) ** 2 / n if std is None else variance_of_mean(std, n)
    dof = _welch_dof(our_var, len(scores), ref_var, n)
    difference, standard_error = mean(scores) - reference, math.sqrt(our_var + ref_var)
    reproduced = _upper_tail(difference + margin, standard_error, dof) < level
    return CellTest(
        word="REPRODUCED" if reproduced else "INCONCLUSIVE",
        more=None if reproduced else more_seeds(scores, difference + margin, ref_var, n),
        below=lower_tail(difference + margin, standard_error, dof),
        above=_upper_tail(difference - margin, standard_error, dof),
        shortfall=_upper_end(-difference, standard_error, dof, level),
    )


def welch_interval(scores: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Welch's 95 % interval of the difference of two means; at least two scores on each side."""
    our_var, ref_var = (sample_std(side) ** 2 / len(side) for side in (scores, others))
    half = t_quantile(0.975, _welch_dof(our_var, len(scores), ref_var, len(others))) * math.sqrt(our_var + ref_var)
    difference = mean(scores) - mean(others)
    return difference - half, difference + half


def variance_of_mean(std: float, n: int) -> float:
    """The variance of the mean of ``n`` ≥ 2 seeds, from a std with n in its denominator."""
    return std**2 / (n - 1)


def prediction_test(scores: Sequence[float], reference: float, margin: float, resolution: float) -> CellTest:
    """Measured seeds against a reference of a single run, by where one more run of ours would fall.

    No difference within ``margin`` is below or above. Seeds are taken to lie apart by ``resolution`` at least, the
    smallest difference that a score can show: equal scores are no proof that the next one is equal, too.
    """
    if len(scores) < MIN_SEEDS:
        return CellTest(word="INCONCLUSIVE", more=MIN_SEEDS - len(scores))
    standard_error, dof = max(sample_std(scores), resolution) * math.sqrt(1 + 1 / len(scores)), len(scores) - 1
    difference = mean(scores) - reference
    below = min(1.0, 2 * lower_tail(difference, standard_error, dof)) if difference < -margin else 1.0  # two-sided
    above = min(1.0, 2 * _upper_tail(difference, standard_error, dof)) if difference > margin else 1.0
    return CellTest(
        word="INCONCLUSIVE" if below < ALPHA else "CONSISTENT",
        below=below,
        above=above,
        shortfall=_upper_end(-difference, standard_error, dof),
    )


def with_failures(
    test: Callable[[Sequence[float]], CellTest], scores: Sequence[float], failed_scores: Sequence[float]
) -> CellTest:
    """The weakest result over counting none, one, … all of the failed seeds, each at its ``failed_score``."""
    tests = [test([*scores, *failed_scores[:count]]) for count in range(len(failed_scores) + 1)]
    return _weakest(tests, below=min)


def require_agreement(first: CellTest, second: CellTest) -> CellTest:
    """The weaker of two tests of one cell, by two estimators or sets of seeds: below or above only if both agree."""
    return _weakest([first, second], below=max)


def in_both_respects(first: CellTest, second: CellTest) -> CellTest:
    """The weaker of two tests: below if either is, above only if both are; with the first one's shortfall."""
    return replace(_weakest([first, second], below=min), shortfall=first.shortfall)


def correct_for_looks(test: CellTest, looks: Looks) -> CellTest:
    """The test of the last look, with its p-values as those of the whole design, and the seeds of the next look."""
    following = looks.following
    if following is not None and not looks.count:
        more = test.more if test.below is None else None  # no number once all seeds of the look have ended
        return CellTest(word="INCONCLUSIVE", more=more, next_look=following.seeds)
    if test.word != "INCONCLUSIVE":
        following = None
    return replace(
        test,
        below=None if test.below is None else min(1.0, test.below * looks.inflation),
        above=None if test.above is None else min(1.0, test.above * looks.inflation),
        more=None if following is None else following.seeds - looks.current.seeds,
        next_look=None if following is None else following.seeds,
    )


def no_more_than_consistent(test: CellTest) -> CellTest:
    """Weaken a test whose margin reaches the random policy: CONSISTENT at most."""
    return replace(test, word=min(test.word, "CONSISTENT", key=RANK.__getitem__))


def decide(tests: Sequence[CellTest | None], alpha: float = ALPHA) -> list[Verdict | None]:
    """The verdicts of a table, in the order of its tests; None of a cell without a test."""
    below = holm([test.below if test else None for test in tests], alpha)
    above = holm([test.above if test else None for test in tests], alpha)
    verdicts: list[Verdict | None] = []
    for test, worse, better in zip(tests, below, above, strict=True):
        if test is None:
            verdicts.append(None)
        elif worse:
            verdicts.append(Verdict("BELOW"))
        elif better and test.word != "INCONCLUSIVE":
            verdicts.append(Verdict("ABOVE"))
        else:
            undecided = test.word == "INCONCLUSIVE"
            verdicts.append(Verdict(test.word, *((test.more, test.next_look) if undecided else ())))
    return verdicts


def holm(probabilities: Sequence[float | None], alpha: float) -> list[bool]:
    """Reject hypotheses with a family-wise error rate of ``alpha`` (Holm 1979); None is not tested."""
    ordered = sorted((p, index) for index, p in enumerate(probabilities) if p is not None)
    rejections = [False] * len(probabilities)
    for rank, (probability, index) in enumerate(ordered):
        if probability > alpha / (len(ordered) - rank):
            break
        rejections[index] = True
    return rejections


def more_seeds(scores: Sequence[float], distance: float, ref_var: float = 0.0, n: int = 0) -> int:
    """Seeds to add until Welch's t, before Holm's correction, would probably detect a ``distance`` from the margin.

    ``ref_var`` is the variance of the reference's mean of ``n`` seeds. The test counts it, but that mean is
    printed and stays: only ours would fall elsewhere.
    """
    have, std = len(scores), sample_std(scores)

    def enough(count: int) -> bool:
        our_var = std**2 / count
        threshold = t_quantile(1 - ALPHA, _welch_dof(our_var, count, ref_var, n)) * math.sqrt(our_var + ref_var)
        return threshold + NormalDist().inv_cdf(POWER) * math.sqrt(our_var) < abs(distance)

    if not enough(have + MAX_MORE_SEEDS):
        return MAX_MORE_SEEDS + 1
    return next(count for count in range(1, MAX_MORE_SEEDS + 1) if enough(have + count))


def out_of_reach(distance: float, ref_var: float, n: int, level: float = ALPHA) -> bool:
    """True if no number of seeds with this mean is decisive, because of the standard error of the reference."""
    return ref_var > 0 and n > 1 and t_quantile(1 - level, n - 1) * math.sqrt(ref_var) >= abs(distance)


def power(std: float, n: int, margin: float, look: Look) -> float:
    """The probability that a look reproduces a reference of ``n`` ≥ 2 seeds if ours have its mean and std.

    Welch's t is taken to be normal around its mean, with the quantile of its degrees of freedom.
    """
    ref_var = variance_of_mean(std, n)
    our_var = ref_var * n / look.seeds
    threshold = t_quantile(1 - look.level, _welch_dof(our_var, look.seeds, ref_var, n))
    return NormalDist().cdf(margin / math.sqrt(our_var + ref_var) - threshold)


def _upper_end(difference: float, standard_error: float, dof: float, level: float = ALPHA) -> float:
    """The upper end of the one-sided interval of a difference, of 95 % where ``level`` is 5 %."""
    return difference + (t_quantile(1 - level, dof) * standard_error if standard_error else 0.0)


def _weakest(tests: Sequence[CellTest], below: Callable[[list[float]], float]) -> CellTest:
    """The weakest of several tests; above and shortfall are None unless all tests have them."""
    worse = [t.below for t in tests if t.below is not None]
    better = [t.above for t in tests if t.above is not None]
    shortfalls = [t.shortfall for t in tests if t.shortfall is not None]
    return CellTest(
        word=min((t.word for t in tests), key=RANK.__getitem__),
        below=below(worse) if worse else None,
        above=max(better) if len(better) == len(tests) else None,
        more=max((t.more for t in tests if t.more is not None), default=None),
        shortfall=max(shortfalls) if len(shortfalls) == len(tests) else None,
    )


def _upper_tail(difference: float, standard_error: float, dof: float) -> float:
    return lower_tail(-difference, standard_error, dof)


def lower_tail(difference: float, standard_error: float, dof: float) -> float:
    """The probability of a difference at most this large by chance; without any spread there is no chance."""
    if standard_error == 0:
        return 0.0 if difference < 0 else 1.0
    return t_cdf(difference / standard_error, dof)


def _welch_dof(our_var: float, count: int, ref_var: float, n: int) -> float:
    """Welch's degrees of freedom, rounded down, or those of our seeds with the documented variance if that has fewer.

    Three to five seeds lie close together by chance now and then. Welch's test then counts on the reference's degrees
    of freedom, and would err in up to 6 of 100 simulated cases, and in far more than its share at small levels.
    """
    return min(_dof(our_var, count, ref_var, n), _dof(max(our_var, ref_var * n / count), count, ref_var, n))


def _dof(our_var: float, count: int, ref_var: float, n: int) -> float:
    """Satterthwaite's degrees of freedom of two variances of means, rounded down; of one where the other is zero."""
    parts = [(square, size) for square, size in ((our_var, count), (ref_var, n)) if square > 0 and size > 1]
    if not parts:
        return max(1, count - 1)
    dof = sum(square for square, _ in parts) ** 2 / sum(square**2 / (size - 1) for square, size in parts)
    return math.floor(dof + 1e-9)  # a whole number stays despite rounding
