"""Verdicts and intervals, against scipy and against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlbench.report import estimate
from rlbench.report.student import distribution, quantile
from rlbench.report.verdict import Verdict, against_optimum, against_run, more_seeds, with_failures

RANK = {"BELOW": 0, "INCONCLUSIVE": 1, "CONSISTENT": 2, "ABOVE": 3}
SCORES = st.lists(st.integers(-1000, 1000).map(float), min_size=3, max_size=12)


@given(st.floats(-50, 50), st.integers(1, 300))
def test_students_distribution_is_that_of_scipy(t: float, degrees: int) -> None:
    assert distribution(t, degrees) == pytest.approx(stats.t.cdf(t, degrees), abs=1e-8)  # scipy errs by 2e-9 near 0


@given(st.floats(0.001, 0.999), st.integers(1, 300))
def test_students_quantiles_are_those_of_scipy(probability: float, degrees: int) -> None:
    assert quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-8, abs=1e-8)


@given(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=20))
def test_the_interval_of_the_mean_is_that_of_scipy(scores: list[float]) -> None:
    error = stats.sem(scores)
    low, high = estimate.interval(scores)
    if error > 1e-9:
        assert (low, high) == pytest.approx(
            stats.t.interval(0.95, len(scores) - 1, loc=sum(scores) / len(scores), scale=error), rel=1e-6, abs=1e-6
        )


def test_a_prediction_interval_by_hand() -> None:
    half = 4.302652729696142 * 2 * math.sqrt(1 + 1 / 3)  # t(0.975, 2), the standard deviation of 10 12 14, one more run
    assert estimate.prediction([10.0, 12.0, 14.0]) == pytest.approx((12 - half, 12 + half))


@pytest.mark.parametrize(
    ("document", "word"), [(2.0, "ABOVE"), (2.1, "CONSISTENT"), (21.9, "CONSISTENT"), (22.0, "BELOW")]
)
def test_a_single_run_is_judged_by_where_one_more_run_would_fall(document: float, word: str) -> None:
    assert against_run([10.0, 12.0, 14.0], document).word == word  # from 2.064 to 21.936


@pytest.mark.parametrize(
    ("scores", "text"),
    [([], "3 more seeds"), ([20.0], "2 more seeds"), ([20.0, 20.0], "1 more seed")],
)
def test_fewer_than_three_seeds_say_nothing(scores: list[float], text: str) -> None:
    assert str(against_run(scores, 20.0)) == f"INCONCLUSIVE (≈ {text})"
    assert str(against_optimum(scores, 20.0, 1.0)) == f"INCONCLUSIVE (≈ {text})"


def test_seeds_that_agree_to_the_last_digit_leave_no_room() -> None:
    same = [20.5, 20.5, 20.5]
    assert [against_run(same, d).word for d in (20.0, 20.5, 21.0)] == ["ABOVE", "CONSISTENT", "BELOW"]


@given(SCORES, st.integers(-1000, 1000), st.integers(0, 500))
def test_better_seeds_never_get_a_worse_verdict(scores: list[float], document: int, more: int) -> None:
    before, after = against_run(scores, document), against_run([s + more for s in scores], document)
    assert RANK[after.word] >= RANK[before.word]


@given(SCORES, st.integers(-1000, 1000), st.integers(1, 5))
def test_a_failed_seed_never_improves_a_verdict(scores: list[float], document: int, failed: int) -> None:
    before = against_run(scores, document)
    assert RANK[with_failures(before, failed).word] <= RANK[before.word]


def test_a_failed_seed_withholds_a_good_verdict_and_leaves_a_bad_one() -> None:
    assert with_failures(Verdict("CONSISTENT"), 2) == Verdict("INCONCLUSIVE", 2)
    assert with_failures(Verdict("BELOW"), 2) == Verdict("BELOW")
    assert with_failures(Verdict("ABOVE"), 0) == Verdict("ABOVE")


def test_the_optimum_is_reproduced_missed_or_not_yet_told() -> None:
    assert against_optimum([1.0, 1.0, 1.0], 1.0, 0.05) == Verdict("REPRODUCED")
    assert against_optimum([0.5, 0.51, 0.49], 1.0, 0.05) == Verdict("BELOW")
    assert against_optimum([1.0, 0.9, 1.0], 1.0, 0.05).word == "INCONCLUSIVE"


def test_the_seeds_still_needed_are_the_fewest_whose_bound_would_settle_it() -> None:
    scores, threshold = [1.0, 0.9, 1.0], 0.95
    mean, deviation = sum(scores) / 3, stats.tstd(scores)
    needed = next(n for n in range(4, 200) if stats.t.ppf(0.95, n - 1) * deviation / math.sqrt(n) < mean - threshold)
    assert more_seeds(scores, threshold) == needed - 3


def test_a_difference_too_small_to_settle_is_said_to_need_too_many_seeds() -> None:
    assert str(Verdict("INCONCLUSIVE", more_seeds([0.0, 1.0, 0.5], 0.5))) == "INCONCLUSIVE (> 100 more seeds)"
