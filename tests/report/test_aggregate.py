"""Aggregates over tasks against scipy and independent implementations of rliable's definitions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlbench.report import aggregate
from rlbench.report.reference_table import CellKey
from rlbench.report.run_index import Runs
from tests.report.test_estimate import run

MATRICES = st.integers(1, 5).flatmap(
    lambda tasks: st.integers(1, 6).flatmap(
        lambda seeds: st.lists(
            st.lists(st.floats(-2, 3), min_size=seeds, max_size=seeds), min_size=tasks, max_size=tasks
        )
    )
)


def mean_of_means(scores: aggregate.Scores) -> aggregate.Array:
    return np.stack([np.asarray(row).mean(-1) for row in scores], -1).mean(-1)


@given(MATRICES)
def test_interquartile_mean_equals_scipys_trimmed_mean_of_all_runs(scores: list[list[float]]) -> None:
    assert aggregate.pooled_interquartile_mean(scores) == pytest.approx(
        stats.trim_mean(np.asarray(scores), 0.25, axis=None)
    )


@given(MATRICES, st.floats(0.1, 2))
def test_optimality_gap_equals_the_mean_shortfall(scores: list[list[float]], goal: float) -> None:
    everything = list(itertools.chain(*scores))
    missing = sum(max(0.0, goal - score) for score in everything) / len(everything)
    assert aggregate.optimality_gap(scores, goal) == pytest.approx(missing, abs=1e-12)


@given(MATRICES)
def test_probability_of_improvement_equals_mann_whitney_u(scores: list[list[float]]) -> None:
    rng = np.random.default_rng(0)
    others = [rng.normal(0, 1, 4).round(1).tolist() for _ in scores]
    expected = np.mean(
        [
            stats.mannwhitneyu(a, b, alternative="greater", method="asymptotic", use_continuity=False).statistic
            / (len(a) * len(b))
            if len(set(a) | set(b)) > 1
            else 0.5
            for a, b in zip(scores, others, strict=True)
        ]
    )
    assert aggregate.probability_of_improvement(scores, others).value == pytest.approx(expected)
    assert aggregate.probability_of_improvement(others, scores).value == pytest.approx(1 - expected)


@given(MATRICES)
def test_performance_profile_falls_from_one_to_zero_and_its_area_is_the_mean(scores: list[list[float]]) -> None:
    thresholds = np.linspace(-2.0, 3.0, 5001)
    value = aggregate.profile(scores, thresholds.tolist())
    assert (np.diff(value) <= 0).all() and value[-1] == 0.0
    area = -2.0 + float(np.trapezoid(value, thresholds))
    assert area == pytest.approx(mean_of_means(scores), abs=5.01e-4)  # half a step, at which a profile may fall


def test_aggregates_equal_a_hand_computation() -> None:
    scores = [[0.0, 1.0], [2.0, 3.0]]
    assert aggregate.pooled_interquartile_mean(scores) == 1.5
    assert aggregate.optimality_gap(scores) == 0.25
    assert mean_of_means(scores) == 1.5
    assert aggregate.profile(scores, [-1.0, 0.0, 0.5, 1.0, 2.5]).tolist() == [1.0, 0.75, 0.75, 0.5, 0.25]
    assert aggregate.probability_of_improvement([[1.0, 2.0]], [[1.0, 0.0]]).value == 0.875
    assert aggregate.probability_of_improvement(scores, [[0.5], [2.5]], fixed=True).value == 0.5


def test_tasks_may_have_unequal_numbers_of_seeds() -> None:
    scores = [[0.0], [1.0, 1.0, 1.0]]
    assert aggregate.pooled_interquartile_mean(scores) == 1.0
    assert aggregate.profile(scores, [0.5]).tolist() == [0.5]


def test_bootstrap_interval_approximates_all_possible_resamples() -> None:
    """Three seeds can be drawn in 27 ways; the interval of the mean must be that of the exact distribution."""
    row = [0.0, 1.0, 5.0]
    exact = sorted(sum(draw) / 3 for draw in itertools.product(row, repeat=3))
    value = aggregate.bootstrap(mean_of_means, [row], resamples=20_000, confidence=0.8)
    assert value.value == 2.0
    assert (value.low, value.high) == pytest.approx((np.quantile(exact, 0.1), np.quantile(exact, 0.9)), abs=0.35)


def test_bootstrap_resamples_runs_within_their_task() -> None:
    """Two tasks whose seeds agree leave nothing to chance, however far apart the tasks are."""
    assert aggregate.bootstrap(aggregate.pooled_interquartile_mean, [[0.0] * 4, [10.0] * 4]) == (5.0, 5.0, 5.0)


def test_bootstrap_is_deterministic_and_its_default_number_of_resamples_suffices() -> None:
    scores = [[0.1, 0.4, 0.3], [0.9, 0.8, 1.1]]
    assert aggregate.bootstrap(aggregate.pooled_interquartile_mean, scores) == aggregate.bootstrap(
        aggregate.pooled_interquartile_mean, scores
    )
    assert aggregate.RESAMPLES >= 2_000


def solved(wins: float, m: int, n: int, p: float) -> float:
    """Newcombe's equation for a limit p, less its right side; written out as in the paper."""
    spread = p * (1 - p) * (1 + ((m + n) / 2 - 1) * ((1 - p) / (2 - p) + p / (1 + p))) / (m * n)
    return abs(wins - p) - 1.959964 * math.sqrt(spread)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1.0], [0.0], (1.0, 0.20654, 1.0)),  # (1 − p)² = z² p (1 − p): p = 1 / (1 + z²)
        ([1.0, 2.0], [0.0, 0.5], (1.0, 0.3856, 1.0)),  # 0.6144 = 1.96 √(0.3856 · 0.6144 (1 + 0.3806 + 0.2783) / 4)
        ([0.0, 0.0], [0.0, 0.0], (0.5, 0.1122, 0.8878)),
    ],
)
def test_a_probability_from_few_runs_has_a_wide_interval(
    ours: list[float], theirs: list[float], expected: tuple[float, float, float]
) -> None:
    estimate = aggregate.probability_of_improvement([ours], [theirs])
    assert estimate == pytest.approx(expected, abs=1e-4)
    mirrored = aggregate.probability_of_improvement([theirs], [ours])
    assert mirrored == pytest.approx((1 - estimate.value, 1 - estimate.high, 1 - estimate.low))


@pytest.mark.parametrize(("above", "below"), [(3, 0), (0, 5), (4, 6)])
def test_limits_against_a_fixed_score_equal_wilsons(above: int, below: int) -> None:
    value = aggregate.probability_of_improvement([[1.0] * above + [0.0] * below], [[0.5]], fixed=True)
    low, high = stats.binomtest(above, above + below).proportion_ci(0.95, method="wilson")
    assert value == pytest.approx((above / (above + below), low, high), abs=1e-9)


@pytest.mark.parametrize(("m", "n"), [(2, 2), (3, 5), (10, 10)])
def test_limits_of_a_probability_solve_newcombes_equation(m: int, n: int) -> None:
    estimate = aggregate.probability_of_improvement([[1.0, *[0.0] * (m - 1)]], [[0.5, *[0.25] * (n - 1)]])
    assert estimate.value == pytest.approx(1 / m)
    for limit in (estimate.low, estimate.high):
        assert solved(estimate.value, m, n, limit) == pytest.approx(0, abs=1e-6)


def test_independent_tasks_narrow_an_interval_by_the_root_of_their_number() -> None:
    one, four = (aggregate.probability_of_improvement([[0.0, 2.0]] * k, [[1.0, 1.0]] * k) for k in (1, 4))
    assert four.value == one.value == 0.5
    assert 0.5 - four.low == pytest.approx((0.5 - one.low) / 2)


@pytest.mark.parametrize(
    ("task", "scores", "floor"),
    [
        ("BreakoutNoFrameskip-v4", [5.0], 1.7),  # the random policy's
        ("BreakoutNoFrameskip-v4", [5.0, 0.5], 0.5),
        ("Unknown-v4", [5.0, 6.0], 1.0),  # the lowest first evaluation
        ("Unknown-v4", [5.0, 0.5], 0.5),
    ],
)
def test_failed_runs_score_as_the_worst_of_the_others_and_the_random_policy(
    task: str, scores: list[float], floor: float
) -> None:
    runs = Runs(failed=[run(1.0), run(2.0)])
    assert aggregate.with_failed(CellKey("atari", "dqn", task, ""), scores, runs) == (*scores, floor, floor)


def test_confidence_band_contains_the_profile() -> None:
    scores = [[0.1, 0.4, 0.3, 0.8], [0.9, 0.8, 1.1, 0.2]]
    thresholds = [0.0, 0.25, 0.5, 1.0]
    low, high = aggregate.band(scores, thresholds)
    assert (low <= aggregate.profile(scores, thresholds)).all() and (
        high >= aggregate.profile(scores, thresholds)
    ).all()
    assert low[2] < high[2]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "rate"), [(3, 0.70), (5, 0.84), (10, 0.90)])
def test_bootstrap_of_one_task_undercovers(n: int, rate: float) -> None:
    """Why a cell's interval is Student's and the bootstrap is left to suites."""
    draw = np.random.default_rng(7)
    repeats = 400
    inside = 0
    for _ in range(repeats):
        value = aggregate.bootstrap(mean_of_means, [draw.normal(1, 0.3, n)], resamples=400)
        inside += value.low <= 1 <= value.high
    assert inside / repeats == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / repeats) + 0.01)


@pytest.mark.slow
def test_bootstrap_of_a_suite_has_near_nominal_coverage() -> None:
    """Ten tasks of five seeds: between 85 and 99 % of nominal 95 % intervals hold the truth."""
    draw = np.random.default_rng(8)
    truth = np.linspace(0.2, 1.4, 10)
    middle = float(stats.trim_mean(draw.normal(truth[:, None], 0.15, (10, 20_000)), 0.25, axis=None))
    inside = 0
    for _ in range(200):
        value = aggregate.bootstrap(
            aggregate.pooled_interquartile_mean, draw.normal(truth[:, None], 0.15, (10, 5)), resamples=300
        )
        inside += value.low <= middle <= value.high
    assert 0.85 <= inside / 200 <= 0.99
