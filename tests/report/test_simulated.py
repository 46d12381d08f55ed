"""Error rates and coverage of the shipped functions, simulated, within four Monte-Carlo standard errors.

The expected rates are those of the design's own simulations (20,000 repetitions): documented 10 seeds, margin 10 %.
"""

import math

import numpy as np
import pytest

from rlbench.report.estimate import correct_optimism, interval, mean
from rlbench.report.reference_scores import margin_of, primary
from rlbench.report.reference_table import task_scales
from rlbench.report.runs import Evaluation
from rlbench.report.verdict import decide, prediction_test, welch_test

REPEATS = 1500


def bound(rate: float, repeats: int = REPEATS) -> float:
    """Four standard errors of the simulation here and of the one that gave the expected rate."""
    return 4 * math.sqrt(rate * (1 - rate) * (1 / repeats + 1 / 20_000)) + 0.002


def accepted(ratio: float, spread: float, n: int, word: str) -> float:
    """The rate at which seeds whose true mean is ``ratio`` times the documented one get the verdict."""
    draw = np.random.default_rng(1)
    count = 0
    for _ in range(REPEATS):
        reference = draw.normal(1, spread, 10)
        scores = draw.normal(ratio, spread, n).tolist()
        test = welch_test(
            scores, float(reference.mean()), float(reference.std(ddof=1)), 10, 0.1 * abs(float(reference.mean()))
        )
        count += decide([test])[0].word == word
    return count / REPEATS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "ratio", "spread", "n", "rate"),
    [
        ("REPRODUCED", 0.8, 0.15, 5, 0.003),
        ("REPRODUCED", 0.8, 0.15, 10, 0.001),
        ("REPRODUCED", 0.9, 0.15, 5, 0.045),
        ("REPRODUCED", 0.9, 0.05, 10, 0.040),
        ("REPRODUCED", 1.0, 0.05, 5, 0.952),
        ("REPRODUCED", 1.0, 0.15, 5, 0.293),
        ("REPRODUCED", 0.8, 0.15, 3, 0.006),
        ("BELOW", 1.0, 0.15, 5, 0.002),
        ("BELOW", 0.9, 0.15, 5, 0.045),
        ("BELOW", 0.8, 0.15, 5, 0.293),
        ("BELOW", 0.6, 0.15, 5, 0.953),
        ("BELOW", 0.8, 0.05, 10, 0.997),
    ],
)
def test_error_rate_and_power_are_as_designed(word: str, ratio: float, spread: float, n: int, rate: float) -> None:
    assert accepted(ratio, spread, n, word) == pytest.approx(rate, abs=bound(rate))


@pytest.mark.slow
def test_family_wise_error_rate_of_below_is_as_designed() -> None:
    """Holm: at most 5 % of tables of 30 single-run cells have a wrong BELOW, though each cell is tested at 5 %."""
    draw, alarms, tables = np.random.default_rng(2), 0, 300
    for _ in range(tables):
        claims = [
            prediction_test(draw.normal(1, 0.15, 5).tolist(), float(draw.normal(1, 0.15)), 0.0, 0.0) for _ in range(30)
        ]
        alarms += any(verdict.word == "BELOW" for verdict in decide(claims))
    assert alarms / tables <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / tables)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_of_few_seeds_have_nominal_coverage(n: int) -> None:
    draw, inside = np.random.default_rng(3), 0
    for _ in range(REPEATS):
        low, high = interval(draw.normal(1, 0.3, n).tolist())
        inside += low <= 1 <= high
    assert inside / REPEATS == pytest.approx(0.95, abs=bound(0.95))


@pytest.mark.parametrize(("ratio", "rate"), [(1.0, 0.952), (0.8, 0.846), (0.6, 0.543)])
def test_rate_of_consistent_with_a_single_run_is_as_designed(ratio: float, rate: float) -> None:
    """The two-sided interval of five seeds against one run at a spread of 15 %: it cannot see much, and says so."""
    draw = np.random.default_rng(4)
    words = [
        decide([prediction_test(draw.normal(ratio, 0.15, 5).tolist(), float(draw.normal(1, 0.15)), 0.0, 0.0)])[0].word
        for _ in range(REPEATS)
    ]
    assert words.count("CONSISTENT") / REPEATS == pytest.approx(rate, abs=bound(rate))


CELLS = {"narrow": ("sac", "Walker2d"), "wide": ("ppo", "Walker2d")}
"""Documented 5,007.0 ± 251.5, so that the margin is a tenth, and 3,588.5 ± 756.6, so that it is the spread."""

MOMENTS = 50
SHAPES = {"flat": np.ones(MOMENTS), "rising": 1 - np.exp(np.linspace(0, -6, MOMENTS))}
DRAWS = 500


def curves(draw: np.random.Generator, n: int, shape: str, level: float, std: float, fraction: float) -> np.ndarray:
    """Learning curves of ``n`` seeds, (DRAWS, n, MOMENTS): half of the variance the seed's, half the evaluation's.

    ``fraction`` is the correlation of the noise of two evaluations that follow each other.
    """
    noise = draw.normal(size=(DRAWS, n, MOMENTS))
    for moment in range(1, MOMENTS):
        noise[..., moment] = fraction * noise[..., moment - 1] + math.sqrt(1 - fraction**2) * noise[..., moment]
    return level * SHAPES[shape] + std / math.sqrt(2) * (draw.normal(size=(DRAWS, n, 1)) + noise)


def reproduced(n: int, cell: str, shape: str, fraction: float, *, shortfall: float) -> float:
    """The rate at which ``n`` seeds with a curve so many margins lower reproduce the documented ten."""
    algorithm, task = CELLS[cell]
    reference = primary("mujoco", algorithm, f"{task}-v4")
    draw, random = np.random.default_rng(5), task_scales()[task].random
    level = reference.score - random
    theirs = curves(draw, 10, shape, level, reference.std, fraction)
    ours = curves(draw, n, shape, level, reference.std, fraction) - shortfall * max(0.1 * level, reference.std)
    count = 0
    for their, our in zip(theirs, ours, strict=True):
        peak = their[:, their.mean(0).argmax()]
        rows = [[Evaluation(step, 0.0, value) for step, value in enumerate(row)] for row in our.tolist()]
        middle, std = float(peak.mean()), float(peak.std())
        test = welch_test(correct_optimism(rows, mean, 10), middle, std, 10, margin_of(middle, std, 0.0))
        count += test.word == "REPRODUCED"
    return count / DRAWS


NOISES = [("narrow", "flat", 0.0), ("narrow", "flat", 0.8), ("narrow", "rising", 0.0), ("wide", "flat", 0.0)]


@pytest.mark.parametrize("n", [3, 5, 10])
def test_maximum_over_evaluations_does_not_inflate_false_reproduced(n: int) -> None:
    """At three seeds 4 of 100 cases pass (3,000 draws); without the correction 11, and 6 at five seeds."""
    rate = np.mean([reproduced(n, *noise, shortfall=1.0) for noise in NOISES])
    assert rate <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / (len(NOISES) * DRAWS))


@pytest.mark.parametrize(("n", "power"), [(3, 0.66), (5, 0.93)])
def test_correction_of_the_maximum_costs_little_power(n: int, power: float) -> None:
    """Scores at the moment that the others pick, alone, reach 0.60 and 0.83: the document's peak is lucky, too."""
    assert np.mean([reproduced(n, *noise, shortfall=0.0) for noise in NOISES[:3]]) > power
