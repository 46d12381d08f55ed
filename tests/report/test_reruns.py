"""The gate on unchanged reruns that were really trained: twenty of twenty pass."""

from __future__ import annotations

import pytest

from rlbench.report.gate import drop, rule_scores

SEEDS = (
    0.878, 0.884, 0.769, 0.884, 0.831, 0.866, 0.889, 0.844, 0.9, 0.38, 0.772, 0.873, 0.869, 0.911, 0.817, 0.878, 0.833,
    0.891, 0.92, 0.944, 0.825, 0.828, 0.847, 0.795, 0.914, 0.178, 0.469, 0.758, 0.755, 0.927, 0.892, 0.866, 0.877,
    0.855, 0.8, 0.816, 0.759, 0.887, 0.944, 0.173, 0.778, 0.933, 0.745, 0.858, 0.867, 0.756, 0.881, 0.795, 0.872,
    0.898, 0.869, 0.873, 0.887, 0.947, 0.784, 0.816, 0.866, 0.772, 0.764, 0.881, 0.755, 0.836, 0.916, 0.756, 0.845,
    0.9, 0.861, 0.798, 0.963, 0.761,
)  # fmt: skip
"""Levels of ``rlbench run toy a2c --task Catch --seeds 100-169``, trained with the settings of the table."""

TENFOLD = (-0.592, 0.184, -0.181, -0.573, 0.958)
"""Likewise of ``--seeds 10-14 --set algo.lr=0.05``, ten times the learning rate."""

RANDOM = -0.6


@pytest.mark.parametrize("repetition", range(20))
def test_unchanged_rerun_of_three_other_seeds_passes(repetition: int) -> None:
    later = SEEDS[10 + 3 * repetition : 13 + 3 * repetition]
    assert rule_scores([drop(SEEDS[:10], later, RANDOM)])[0].word != "REGRESSED"


@pytest.mark.parametrize("repetition", range(12))
def test_unchanged_rerun_of_five_other_seeds_passes(repetition: int) -> None:
    later = SEEDS[10 + 5 * repetition : 15 + 5 * repetition]
    assert rule_scores([drop(SEEDS[:10], later, RANDOM)])[0].word != "REGRESSED"


def test_a_tenfold_learning_rate_regresses() -> None:
    assert rule_scores([drop(SEEDS[:10], TENFOLD, RANDOM)])[0].word == "REGRESSED"
