"""Verdicts and intervals against scipy and hand-computed numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from rlbench.records.looks import Look, Looks
from rlbench.report import estimate
from rlbench.report.estimate import t_cdf, t_quantile
from rlbench.report.reference_scores import margin_of
from rlbench.report.verdict import (
    CellTest,
    Verdict,
    correct_for_looks,
    decide,
    holm,
    in_both_respects,
    more_seeds,
    no_more_than_consistent,
    out_of_reach,
    power,
    prediction_test,
    require_agreement,
    welch_interval,
    welch_test,
    with_failures,
)

ORDER = {"BELOW": 0, "INCONCLUSIVE": 1, "CONSISTENT": 2, "REPRODUCED": 3, "ABOVE": 4}
SCORES = st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=12)
FIXED = [CellTest(word="CONSISTENT", below=0.01, above=1.0), CellTest(word="INCONCLUSIVE", below=0.03, above=0.4)]


def word(test: CellTest) -> str:
    """The verdict of a cell that is a table of its own."""
    return decide([test])[0].word


def rules() -> list[object]:
    return [
        lambda scores: prediction_test(scores, 100.0, 0.0, 0.0),
        lambda scores: prediction_test(scores, 100.0, 20.0, 5.0),
        lambda scores: welch_test(scores, 100.0, 20.0, 10, 30.0),
        lambda scores: welch_test(scores, 100.0, 0.0, 2, 5.0),
    ]


@given(st.floats(-50, 50), st.floats(1, 300))
def test_t_distribution_equals_scipys(t: float, degrees: float) -> None:
    assert t_cdf(t, degrees) == pytest.approx(stats.t.cdf(t, degrees), abs=5e-9)  # scipy's errs by 1e-9 near 0


@given(st.floats(0.001, 0.999), st.floats(1, 300))
def test_t_quantiles_equal_scipys(probability: float, degrees: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-10, abs=1e-10)


def test_t_distribution_at_infinity() -> None:
    assert (t_cdf(math.inf, 3), t_cdf(-math.inf, 3), t_cdf(0.0, 3)) == (1.0, 0.0, 0.5)
    assert t_cdf(1e9, 4) == 1.0


@given(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=20))
def test_interval_of_the_mean_equals_scipys(scores: list[float]) -> None:
    error = stats.sem(scores)
    low, high = estimate.interval(scores)
    if error > 1e-9:
        assert (low, high) == pytest.approx(
            stats.t.interval(0.95, len(scores) - 1, loc=sum(scores) / len(scores), scale=error), rel=1e-6, abs=1e-6
        )


@given(
    st.lists(st.floats(-100, 100), min_size=3, max_size=12).filter(lambda s: max(s) - min(s) > 1),
    st.floats(-100, 100),
    st.floats(0.5, 30),
    st.integers(2, 12),
    st.floats(0, 50),
)
@example([10.0, 11.0, 12.0], 10.0, 20.0, 10, 5.0)  # seeds that lie closer together than the reference's
def test_non_inferiority_equals_scipys_welch_test_with_reduced_degrees_of_freedom(
    scores: list[float], reference: float, std: float, n: int, margin: float
) -> None:
    """The documented deviation is divided by n, SciPy's by n − 1."""
    theirs = (std * math.sqrt(n / (n - 1)), n)
    ours = (sum(scores) / len(scores), stats.tstd(scores), len(scores))
    lower = stats.ttest_ind_from_stats(*ours, reference - margin, *theirs, equal_var=False)
    upper = stats.ttest_ind_from_stats(*ours, reference + margin, *theirs, equal_var=False)
    printed = (std**2 / (n - 1), n - 1)
    variances = ours[1] ** 2, max(ours[1] ** 2, theirs[0] ** 2)  # ours, and at least the documented one
    candidates = [((variance / len(scores), len(scores) - 1), printed) for variance in variances]
    degrees = min(
        math.floor(sum(p for p, _ in parts) ** 2 / sum(p**2 / df for p, df in parts) + 1e-9) for parts in candidates
    )
    worse, above = stats.t.cdf(lower.statistic, degrees), stats.t.sf(upper.statistic, degrees)
    test = welch_test(scores, reference, std, n, margin)
    assert (test.below, test.above) == pytest.approx((worse, above), abs=1e-7)
    error = math.sqrt(ours[1] ** 2 / len(scores) + printed[0])
    for level in (0.05, 0.01):
        shortfall = welch_test(scores, reference, std, n, margin, level).shortfall
        assert shortfall == pytest.approx(reference - ours[0] + stats.t.isf(level, degrees) * error, rel=1e-6, abs=1e-6)
    if abs(worse - 0.95) > 1e-6:
        assert (test.word == "REPRODUCED") == (worse > 0.95)


@pytest.mark.parametrize(
    ("scores", "reference", "margin", "resolution", "expected"),
    [
        ([10.0, 12.0, 14.0], 2.0, 0.0, 0.0, "ABOVE"),  # the prediction interval: from 2.064 to 21.936
        ([10.0, 12.0, 14.0], 2.1, 0.0, 0.0, "CONSISTENT"),
        ([10.0, 12.0, 14.0], 21.9, 0.0, 0.0, "CONSISTENT"),
        ([10.0, 12.0, 14.0], 22.0, 0.0, 0.0, "BELOW"),
        ([20.5, 20.5, 20.5], 20.0, 0.0, 0.0, "ABOVE"),  # tied seeds need no test
        ([20.5, 20.5, 20.5], 20.5, 0.0, 0.0, "CONSISTENT"),
        ([20.5, 20.5, 20.5], 21.0, 0.0, 0.0, "BELOW"),
        ([20.0, 20.0, 20.0], 20.2, 4.09, 0.1, "CONSISTENT"),  # PPO on Pong: nothing but the resolution lies between
        ([20.1, 20.1, 20.1], 20.0, 4.07, 0.1, "CONSISTENT"),  # DQN on Pong
        ([20.0, 20.0, 20.0], 24.0, 4.0, 0.1, "CONSISTENT"),  # as far as the margin
        ([20.0, 20.0, 20.0], 24.1, 4.0, 0.1, "BELOW"),  # farther than it and than 4.303 · 0.1 · √(4/3)
        ([20.0, 20.0, 20.0], 15.9, 4.0, 0.1, "ABOVE"),
        ([20.0, 20.0, 20.0], 20.49, 0.1, 0.1, "CONSISTENT"),  # farther than the margin, inside the floor's 0.497
        ([20.0, 20.0, 20.0], 20.51, 0.1, 0.1, "BELOW"),
        ([10.0, 12.0, 14.0], 22.0, 11.0, 1.0, "CONSISTENT"),  # outside the interval, within the margin
        ([10.0, 12.0, 14.0], 22.0, 9.0, 1.0, "BELOW"),
        ([10.0, 12.0, 14.0], 22.0, 9.0, 3.0, "CONSISTENT"),  # the resolution widens the interval
    ],
)
def test_verdict_against_a_single_run_requires_the_interval_the_margin_and_the_resolution(
    scores: list[float], reference: float, margin: float, resolution: float, expected: str
) -> None:
    assert word(prediction_test(scores, reference, margin, resolution)) == expected


@pytest.mark.parametrize(
    ("scores", "reference", "n", "margin", "expected"),
    [
        ([20.5, 20.5, 20.5], 19.0, 10, 1.0, "ABOVE"),  # tied seeds need no test
        ([20.5, 20.5, 20.5], 20.0, 10, 1.0, "REPRODUCED"),
        ([20.5, 20.5, 20.5], 21.0, 10, 1.0, "REPRODUCED"),
        ([20.5, 20.5, 20.5], 22.0, 10, 1.0, "BELOW"),
        ([1.0, 1.0, 1.0], 1.0, 2, 0.05, "REPRODUCED"),  # an optimum
        ([0.5, 0.51, 0.49], 1.0, 2, 0.05, "BELOW"),
        ([1.0, 0.9, 1.0], 1.0, 2, 0.05, "INCONCLUSIVE"),
    ],
)
def test_verdict_against_seeds_that_do_not_differ(
    scores: list[float], reference: float, n: int, margin: float, expected: str
) -> None:
    assert word(welch_test(scores, reference, 0.0, n, margin)) == expected


def test_weaker_of_two_claims_counts() -> None:
    below, equal, above = (prediction_test([20.0, 20.0, 20.0], d, 0.0, 0.1) for d in (21.0, 20.0, 19.0))
    words = ["BELOW", "CONSISTENT", "ABOVE"]
    assert [word(test) for test in (below, equal, above)] == words
    assert [word(in_both_respects(test, above)) for test in (below, equal, above)] == words


@pytest.mark.parametrize(
    ("scores", "text"), [([], "3 more seeds"), ([20.0], "2 more seeds"), ([20.0, 20.0], "1 more seed")]
)
def test_fewer_than_three_seeds_are_inconclusive(scores: list[float], text: str) -> None:
    run, optimum = prediction_test(scores, 20.0, 1.0, 0.1), welch_test(scores, 20.0, 0.0, 2, 1.0)
    for test in (run, optimum, welch_test(scores, 20, 1, 5, 1)):
        assert [str(v) for v in decide([test])] == [f"INCONCLUSIVE (≈ {text})"]


@given(SCORES, st.integers(0, 500), st.integers(0, 3), st.integers(0, 1))
def test_better_seeds_never_get_a_worse_verdict(scores: list[float], more: int, which: int, beside: int) -> None:
    rule = rules()[which]
    others = FIXED * beside
    before, after = (decide([rule(s), *others])[0] for s in (scores, [x + more for x in scores]))
    assert ORDER[after.word] >= ORDER[before.word]


@given(SCORES, st.integers(0, 4), st.integers(1, 3), st.integers(0, 3), st.integers(0, 1))
def test_a_failed_seed_never_improves_a_verdict(
    scores: list[float], failed: int, extra: int, which: int, beside: int
) -> None:
    rule = rules()[which]
    others = FIXED * beside
    floor = min([*scores, -50.0])
    before, after = (
        decide([with_failures(rule, scores, [floor] * count), *others])[0] for count in (failed, failed + extra)
    )
    assert ORDER[after.word] <= ORDER[before.word]


@given(
    SCORES.filter(lambda s: len(s) >= 3), st.lists(st.integers(0, 300), min_size=12, max_size=12), st.integers(0, 99)
)
def test_claims_under_two_estimators_are_monotone(scores: list[float], gaps: list[int], more: int) -> None:
    def verdict_word(shift: int) -> str:
        last = [s + shift for s in scores]
        top = [s + g for s, g in zip(last, gaps, strict=False)]
        return word(require_agreement(*(prediction_test(scores, 100.0, 0.0, 0.0) for scores in (last, top))))

    assert ORDER[verdict_word(more)] >= ORDER[verdict_word(0)]


def test_joined_claims_have_the_weakest_of_each_number() -> None:
    one = CellTest(word="REPRODUCED", below=0.2, above=0.3, shortfall=1.0)
    other = CellTest(word="INCONCLUSIVE", below=0.1, above=0.4, more=2, shortfall=3.0)
    weakest = CellTest(word="INCONCLUSIVE", below=0.2, above=0.4, more=2, shortfall=3.0)
    assert require_agreement(one, other) == weakest
    assert in_both_respects(one, other) == replace(weakest, below=0.1, shortfall=1.0)
    few = CellTest(word="INCONCLUSIVE", more=1)  # too few seeds for a test
    assert require_agreement(other, few) == CellTest(word="INCONCLUSIVE", below=0.1, more=2)


def test_without_a_published_std_ours_replaces_it() -> None:
    scores, n = [10.0, 12.0, 17.0], 8
    ours, theirs = (welch_test(scores, 14.0, std, n, 2.0) for std in (None, stats.tstd(scores) * math.sqrt(7 / 8)))
    assert (ours.below, ours.above, ours.shortfall) == pytest.approx((theirs.below, theirs.above, theirs.shortfall))


@pytest.mark.parametrize(("scale", "degrees"), [(1, 8), (2, 5)])  # 5.88 of Welch's, rounded down
def test_interval_of_a_difference_is_welchs(scale: int, degrees: int) -> None:
    low, high = welch_interval([10.0, 11, 12, 13, 14], [scale * x for x in (0.0, 1, 2, 3, 4)])
    half = stats.t.isf(0.025, degrees) * math.sqrt((2.5 + 2.5 * scale**2) / 5)
    assert (low, high) == pytest.approx((12 - 2 * scale - half, 12 - 2 * scale + half))


def test_failed_seed_among_three_good_ones_weakens_the_verdict() -> None:
    rule = rules()[2]
    good = [100.0, 101.0, 99.0, 100.0]
    assert word(with_failures(rule, good, [])) == "REPRODUCED"
    assert word(with_failures(rule, good, [0.0])) == "INCONCLUSIVE"


def test_disagreement_of_two_estimators_is_inconclusive() -> None:
    low, high = (prediction_test(scores, 100.0, 0.0, 0.0) for scores in ([50.0, 51.0, 52.0], [99.0, 100.0, 101.0]))
    assert (word(low), word(high), word(require_agreement(low, high))) == ("BELOW", "CONSISTENT", "INCONCLUSIVE")
    assert word(require_agreement(low, low)) == "BELOW"


@given(SCORES, st.integers(0, 500))
def test_a_capped_claim_is_monotone_and_never_reproduced(scores: list[float], more: int) -> None:
    before, after = (
        word(no_more_than_consistent(welch_test(s, 100.0, 20.0, 10, 150.0)))
        for s in (scores, [x + more for x in scores])
    )
    assert ORDER[after] >= ORDER[before]
    assert "REPRODUCED" not in {before, after}


def test_holms_correction_equals_a_hand_computation() -> None:
    assert holm([0.01, 0.04, None, 0.03, 0.005], 0.05) == [True, False, False, False, True]
    assert holm([0.01, 0.02, 0.03], 0.05) == [True, True, True]
    assert holm([0.025, 0.05], 0.05) == [True, True]  # as much as a level is rejected
    assert holm([], 0.05) == []


def test_larger_tables_require_smaller_p_values() -> None:
    one = prediction_test([10.0, 12.0, 14.0], 23.0, 0.0, 0.0)
    assert one.below == pytest.approx(2 * stats.t.cdf((12 - 23) / (2 * math.sqrt(4 / 3)), 2))
    assert one.shortfall == pytest.approx(23 - 12 + stats.t.isf(0.05, 2) * 2 * math.sqrt(4 / 3))
    assert decide([one])[0].word == "BELOW"
    assert decide([one, CellTest(word="CONSISTENT", below=0.5, above=0.5)])[0].word == "INCONCLUSIVE"


def test_seeds_above_the_reference_that_do_not_reproduce_it_are_inconclusive() -> None:
    assert word(CellTest(word="INCONCLUSIVE", below=1.0, above=1e-9)) == "INCONCLUSIVE"
    assert word(CellTest(word="CONSISTENT", below=1.0, above=1e-9)) == "ABOVE"


def test_a_look_multiplies_its_probabilities_by_the_designs_inflation_and_names_the_next() -> None:
    looks = Looks((Look(3, 0.01), Look(6, 0.04)), 1)
    test = CellTest(word="INCONCLUSIVE", below=0.1, above=0.3, more=9)
    assert correct_for_looks(test, looks) == CellTest(word="INCONCLUSIVE", below=0.5, above=1.0, more=3, next_look=6)
    last = CellTest(word="INCONCLUSIVE", below=0.125, above=0.375)  # inflated by 5 / 4, and no look follows
    assert correct_for_looks(test, Looks(looks.design, 2)) == last
    assert correct_for_looks(test, Looks(looks.design, 0)) == CellTest(word="INCONCLUSIVE", next_look=3)


def test_the_margin_is_a_tenth_of_the_way_from_random_or_the_documented_spread() -> None:
    assert margin_of(20.0, None, -20.7) == pytest.approx(4.07)
    assert margin_of(100.0, 30.0, 0.0) == 30.0
    assert margin_of(-5.0, 0.1, None) == 0.5


def test_more_seeds_is_the_smallest_number_with_the_designed_power() -> None:
    scores, distance = [1.0, 0.9, 1.0], 0.05
    std, power = stats.tstd(scores), stats.norm.ppf(0.8)
    count = next(n for n in range(4, 200) if (stats.t.ppf(0.95, n - 1) + power) * std / math.sqrt(n) < distance)
    assert more_seeds(scores, distance) == count - 3


def test_more_seeds_uses_the_same_test_as_the_verdict() -> None:
    scores, noise, n = [100.0, 130.0, 70.0], 5.0**2 / 10, 10  # ours lie six times as far apart as the document's
    power = stats.norm.ppf(0.8)

    def reach(count: int) -> float:
        ours = 30.0**2 / count
        degrees = math.floor((ours + noise) ** 2 / (ours**2 / (count - 1) + noise**2 / (n - 1)))
        return float(stats.t.ppf(0.95, degrees) * math.sqrt(ours + noise) + power * math.sqrt(ours))

    seeds_needed = next(count for count in range(4, 200) if reach(count) < 15.0)
    assert more_seeds(scores, 15.0, noise, n) == seeds_needed - 3


@pytest.mark.parametrize(("reference", "std", "margin"), [(-21.5, 0.8, 2.2), (-19.0, 2.0, 4.5)])
def test_named_number_of_seeds_has_a_power_of_80_percent(reference: float, std: float, margin: float) -> None:
    """Once our spread decides it, once the document's, whose printed mean stays where it is."""
    ours, n = [-22.9, -21.0, -25.3, -20.0, -20.4], 10
    test = welch_test(ours, reference, std, n, margin)
    assert test.word == "INCONCLUSIVE"
    count, draws = len(ours) + test.more, np.random.default_rng(0)
    again = draws.normal(np.mean(ours), np.std(ours, ddof=1), (400, count))
    power = np.mean([welch_test(list(s), reference, std, n, margin).word == "REPRODUCED" for s in again])
    assert 0.74 < power < 0.88


@pytest.mark.parametrize(("n", "seeds", "degrees"), [(4, 20, 4), (10, 20, 18), (10, 3, 3)])
def test_power_of_a_look_is_that_of_welchs_test_at_its_level(n: int, seeds: int, degrees: int) -> None:
    """At n = 4 the squared errors are 1/3 and 4/3/20: 1 / √0.4 = 1.58 stands against t of 4 degrees of freedom."""
    error = math.sqrt(1 / (n - 1) + n / (n - 1) / seeds)
    expected = stats.norm.cdf(3.0 / (2.0 * error) - stats.t.isf(0.04, degrees))
    assert power(2.0, n, 3.0, Look(seeds, 0.04)) == pytest.approx(expected, abs=1e-9)


def test_large_error_of_the_reference_is_undecidable() -> None:
    threshold = stats.t.ppf(0.95, 9) * 3.0
    assert out_of_reach(0.99 * threshold, 9.0, 10)
    assert out_of_reach(-0.99 * threshold, 9.0, 10)
    assert not out_of_reach(1.01 * threshold, 9.0, 10)
    assert not out_of_reach(0.0, 0.0, 10)
    endless = [float(x) for x in np.random.default_rng(0).normal(100.0, 1.0, 2000)]
    for slack, word in ((-0.3, "INCONCLUSIVE"), (0.3, "REPRODUCED")):
        reference = 100.0 + 10.0 - (threshold + slack)  # so far lies our mean above the margin of 10
        assert welch_test(endless, reference, 9.0, 10, 10.0).word == word  # of squared error 9


def test_small_difference_needs_more_than_the_maximum_of_seeds() -> None:
    assert str(Verdict("INCONCLUSIVE", more_seeds([0.0, 1.0, 0.5], 0.01))) == "INCONCLUSIVE (> 100 more seeds)"
    assert more_seeds([0.0, 1.0, 0.5], 0.1, ref_var=1.0, n=10) > 100  # the document itself is too vague
