"""Error rates and coverage of the shipped functions, simulated, within four Monte-Carlo standard errors.

The expected rates are those of the design's own simulations (20,000 repetitions): documented 10 seeds, margin 10 %.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlbench.report.estimate import interval, prediction
from rlbench.report.verdict import against_run, against_seeds, settle

REPEATS = 1500


def bound(rate: float, repeats: int = REPEATS) -> float:
    """Four standard errors of the simulation here and of the one that gave the expected rate."""
    return 4 * math.sqrt(rate * (1 - rate) * (1 / repeats + 1 / 20_000)) + 0.002


def accepted(ratio: float, spread: float, n: int, word: str) -> float:
    """How often seeds whose true mean is ``ratio`` times the documented one get the verdict."""
    draw = np.random.default_rng(1)
    count = 0
    for _ in range(REPEATS):
        document = draw.normal(1, spread, 10)
        scores = draw.normal(ratio, spread, n).tolist()
        claim = against_seeds(
            scores, float(document.mean()), float(document.std(ddof=1)), 10, 0.1 * abs(float(document.mean()))
        )
        count += settle([claim])[0].word == word
    return count / REPEATS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ratio", "spread", "n", "rate"),
    [
        (0.8, 0.15, 5, 0.003),
        (0.8, 0.15, 10, 0.001),
        (0.9, 0.15, 5, 0.045),
        (0.9, 0.05, 10, 0.040),
        (1.0, 0.05, 5, 0.952),
        (1.0, 0.15, 5, 0.293),
        (0.8, 0.15, 3, 0.006),
    ],
)
def test_a_drop_is_accepted_as_rarely_as_designed(ratio: float, spread: float, n: int, rate: float) -> None:
    assert accepted(ratio, spread, n, "REPRODUCED") == pytest.approx(rate, abs=bound(rate))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ratio", "spread", "n", "rate"),
    [
        (1.0, 0.15, 5, 0.002),
        (0.9, 0.15, 5, 0.045),
        (0.8, 0.15, 5, 0.293),
        (0.6, 0.15, 5, 0.953),
        (0.8, 0.05, 10, 0.997),
    ],
)
def test_below_is_said_as_rarely_and_as_often_as_designed(ratio: float, spread: float, n: int, rate: float) -> None:
    assert accepted(ratio, spread, n, "BELOW") == pytest.approx(rate, abs=bound(rate))


@pytest.mark.slow
def test_a_table_of_honest_cells_is_rarely_called_below_anywhere() -> None:
    """Holm: at most 5 % of tables of 30 single-run cells have a wrong BELOW, though each cell is tested at 5 %."""
    draw = np.random.default_rng(2)
    alarms = 0
    tables = 300
    for _ in range(tables):
        claims = [against_run(draw.normal(1, 0.15, 5).tolist(), float(draw.normal(1, 0.15)), 0.0, 0.0) for _ in range(30)]
        alarms += any(verdict.word == "BELOW" for verdict in settle(claims))
    assert alarms / tables <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / tables)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_the_intervals_of_few_seeds_hold_what_they_promise(n: int) -> None:
    draw = np.random.default_rng(3)
    mean_inside = run_inside = 0
    for _ in range(REPEATS):
        scores = draw.normal(1, 0.3, n).tolist()
        low, high = interval(scores)
        mean_inside += low <= 1 <= high
        low, high = prediction(scores)
        run_inside += low <= draw.normal(1, 0.3) <= high
    assert mean_inside / REPEATS == pytest.approx(0.95, abs=bound(0.95))
    assert run_inside / REPEATS == pytest.approx(0.95, abs=bound(0.95))


@pytest.mark.parametrize(("ratio", "rate"), [(1.0, 0.952), (0.8, 0.846), (0.6, 0.543)])
def test_a_single_document_is_held_consistent_as_often_as_designed(ratio: float, rate: float) -> None:
    """The two-sided interval of five seeds against one run at a spread of 15 %: it cannot see much, and says so."""
    draw = np.random.default_rng(4)
    words = [
        settle([against_run(draw.normal(ratio, 0.15, 5).tolist(), float(draw.normal(1, 0.15)), 0.0, 0.0)])[0].word
        for _ in range(REPEATS)
    ]
    assert words.count("CONSISTENT") / REPEATS == pytest.approx(rate, abs=bound(rate))
