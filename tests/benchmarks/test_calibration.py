"""Calibration of the verdicts: the simulation uses the shipped test, and the committed tables are current."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import calibration
from rlbench.records.looks import DESIGNS, SHARED_ERROR_DESIGNS
from rlbench.report.reference_table import CellKey
from rlbench.report.verdict import ALPHA, against_seeds

FOLDER = Path(__file__).parents[2] / "results" / "calibration"
TABLES = {name: calibration.read(FOLDER / f"{name}.csv") for name in calibration.TABLES}
BOTH = (DESIGNS[20], SHARED_ERROR_DESIGNS[20])
CELLS = [CellKey("mujoco", "sac", "HalfCheetah-v4", ""), CellKey("atari", "c51", "BreakoutNoFrameskip-v4", "")]


def most(repeats: int) -> float:
    """A simulated rate of a test whose error is 5 % stays below, but for three standard errors."""
    return float(ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / repeats))


@pytest.mark.parametrize("count", [3, 5, 12])
def test_the_simulated_test_is_the_shipped_one(count: int) -> None:
    draw = np.random.default_rng(count)
    scores, mean, std = draw.normal(1, 2, (40, count)), draw.normal(1, 1, 40), draw.uniform(0.1, 4, 40)
    chances = calibration.welch(scores, mean, std, 10, 0.7)
    for row in range(40):
        claim = against_seeds(scores[row].tolist(), float(mean[row]), float(std[row]), 10, 0.7)
        assert (claim.below, claim.above) == pytest.approx((chances.below[row], chances.above[row]), abs=1e-9)
        assert (claim.found == "REPRODUCED") == (chances.worse[row] < ALPHA)


@pytest.mark.parametrize("key", CELLS)
def test_the_committed_rates_of_a_cell_are_those_that_the_script_writes(key: CellKey) -> None:
    written = list(calibration.cell_rows(key, calibration.curves()[key]))
    committed = [row for row in TABLES["equal_steps"] if (row["algorithm"], row["task"]) == key[1:3]]
    assert [row["seeds"] for row in written] == [row["seeds"] for row in committed]
    for name in ("informative_looks", "false_on_track", "false_behind"):
        rates = [[float(row[name]) for row in rows] for rows in (written, committed)]
        assert rates[0] == pytest.approx(rates[1], abs=1e-3)  # rounding of another processor


def test_the_summary_is_that_of_the_tables() -> None:
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == calibration.summary(*TABLES.values())
    assert (FOLDER / "calibration.png").is_file()


def test_false_on_track_and_false_behind_stay_below_5_percent_in_every_cell() -> None:
    rows = TABLES["equal_steps"]
    assert len(rows) == len(calibration.SEEDS) * len(calibration.curves())
    for name in ("false_on_track", "false_behind"):
        rates = [float(row[name]) for row in rows]
        assert max(rates) < most(calibration.REPEATS)
        assert np.mean(rates) < ALPHA


@pytest.mark.parametrize("seeds", calibration.SEEDS)
def test_a_small_simulation_at_the_margin_keeps_both_errors(seeds: int) -> None:
    found = calibration.simulate(CELLS[0], calibration.curves()[CELLS[0]], seeds, -1.0, repeats=1500)
    assert 0 < found.rate_per_look("ON TRACK") < most(1500)
    assert 0 < found.rate_ever("BEHIND") < most(1500)
    farther = calibration.simulate(CELLS[0], calibration.curves()[CELLS[0]], seeds, -3.0, repeats=500)
    assert farther.rate_ever("BEHIND") > 0.5 > farther.rate_per_look("ON TRACK")


@pytest.mark.parametrize("ratio", calibration.STD_RATIOS)
def test_seeds_until_decided_keep_each_error(ratio: float) -> None:
    below, _ = calibration.sequential(1.0, -1.0, ratio, BOTH, repeats=5000)
    above, _ = calibration.sequential(1.0, 1.0, ratio, BOTH, repeats=5000)
    errors = (below["REPRODUCED"] + below["ABOVE"], below["BELOW"], above["ABOVE"])
    assert min(errors[:2]) > 0.02 and max(errors) < most(5000)


def test_seeds_until_decided_take_at_most_7_tenths_of_the_fixed_seeds_of_equal_power() -> None:
    margins = calibration.margins_in_stds()[::6]
    found, fixed = (
        [calibration.sequential(margin, 0.0, 1.0, designs, repeats=1000) for margin in margins]
        for designs in (BOTH, [((16, ALPHA),)])
    )
    powers = [np.mean([rates["REPRODUCED"] + rates["ABOVE"] for rates, _ in runs]) for runs in (found, fixed)]
    assert np.mean([seeds for _, seeds in found]) < 0.71 * 16
    assert powers[0] > powers[1] - 0.01


def test_committed_errors_of_seeds_until_decided_are_within_simulation_error_of_5_percent() -> None:
    rows = [row for row in TABLES["until_decided"] if row["std_ratio"]]
    assert [row["std_ratio"] for row in rows] == [f"{ratio:g}" for ratio in calibration.STD_RATIOS] * len(DESIGNS)
    for row in rows:
        assert all(float(row[name]) < most(20_000) for name in ("false_reproduced", "false_below", "false_above"))
