"""Calibration of the verdicts: the simulation uses the shipped test, and the committed tables are current."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks import calibration
from rlbench.cli.until_decided import LITTLE_POWER
from rlbench.records.looks import DESIGNS, SHARED_ERROR_DESIGNS
from rlbench.report.equal_steps import at_equal_steps, decide_at_equal_steps
from rlbench.report.reference_table import CellKey, scale_of
from rlbench.report.run_index import Runs, gather
from rlbench.report.verdict import ALPHA, welch_test

RESULTS = Path(__file__).parents[2] / "results"
FOLDER = RESULTS / "calibration"
PAGE = " ".join((RESULTS.parent / "docs" / "verdicts.md").read_text(encoding="utf-8").split())
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
        test = welch_test(scores[row].tolist(), float(mean[row]), float(std[row]), 10, 0.7)
        assert (test.below, test.above) == pytest.approx((chances.below[row], chances.above[row]), abs=1e-9)
        assert (test.word == "REPRODUCED") == (chances.worse[row] < ALPHA)


@pytest.mark.parametrize("key", CELLS)
def test_the_committed_rates_of_a_cell_are_those_that_the_script_writes(key: CellKey) -> None:
    rows_by_script = list(calibration.cell_rows(key, calibration.curves()[key]))
    committed = [row for row in TABLES["equal_steps"] if (row["algorithm"], row["task"]) == key[1:3]]
    assert [row["seeds"] for row in rows_by_script] == [row["seeds"] for row in committed]
    for name in ("informative_looks", *calibration.AT_STEPS):
        rates = [[float(row[name]) for row in rows] for rows in (rows_by_script, committed)]
        assert rates[0] == pytest.approx(rates[1], abs=1e-3)  # rounding of another processor


def test_the_summary_is_that_of_the_tables() -> None:
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == calibration.summary(*TABLES.values())
    assert (FOLDER / "calibration.png").is_file()


def test_false_words_at_equal_steps_stay_below_5_percent_in_every_cell() -> None:
    rows = TABLES["equal_steps"]
    assert len(rows) == len(calibration.SEEDS) * len(calibration.curves())
    for name in calibration.AT_STEPS:
        rates = [float(row[name]) for row in rows]
        assert max(rates) < most(calibration.REPEATS)
        assert np.mean(rates) < ALPHA


@pytest.mark.parametrize("seeds", calibration.SEEDS)
def test_a_small_simulation_at_the_margin_keeps_each_error(seeds: int) -> None:
    curve = calibration.curves()[CELLS[0]]
    lower, upper = (calibration.simulate(CELLS[0], curve, seeds, shift, repeats=1500) for shift in (-1.0, 1.0))
    assert 0 < lower.rate_per_look("ON TRACK") < most(1500)
    assert 0 < lower.rate_ever("BEHIND") < most(1500) and 0 < upper.rate_ever("AHEAD") < most(1500)
    farther = [calibration.simulate(CELLS[0], curve, seeds, shift, repeats=500) for shift in (-3.0, 3.0)]
    assert farther[0].rate_ever("BEHIND") > 0.5 > farther[0].rate_per_look("ON TRACK")
    assert farther[1].rate_ever("AHEAD") > 0.5


@pytest.mark.parametrize("ratio", calibration.STD_RATIOS)
def test_seeds_until_decided_keep_each_error(ratio: float) -> None:
    errors = calibration.errors(1.0, ratio, BOTH, 5000)
    assert min(errors[:2]) > 0.02 and max(errors) < most(5000)


def test_errors_below_the_margin_are_the_same_for_every_margin_and_above_it_smaller_for_a_larger() -> None:
    small, large = (calibration.errors(margin, 2.0, BOTH, 20_000) for margin in (0.9, 3.0))
    assert small[:2] == pytest.approx(large[:2], abs=0.008)
    assert small[2] > large[2]


def test_seeds_until_decided_take_at_most_7_tenths_of_the_fixed_seeds_of_equal_power() -> None:
    margins = calibration.margins_in_stds()[::6]
    looks, fixed = (
        [calibration.sequential(margin, 0.0, 1.0, designs, repeats=1000) for margin in margins]
        for designs in (BOTH, [((16, ALPHA),)])
    )
    powers = [np.mean([rates["REPRODUCED"] + rates["ABOVE"] for rates, _ in runs]) for runs in (looks, fixed)]
    assert np.mean([seeds for _, seeds in looks]) < 0.71 * 16
    assert powers[0] > powers[1] - 0.01
    rows = {row["most seeds"]: row for row in calibration.sequential_summary(TABLES["until_decided"])}
    assert all(int(rows[most]["share"].removesuffix("%")) <= 70 for most in ("20", "32"))


def test_committed_errors_of_seeds_until_decided_are_at_most_5_percent() -> None:
    rows = [row for row in TABLES["until_decided"] if row["std_ratio"] and row["design"].startswith("at most")]
    assert [row["std_ratio"] for row in rows] == [f"{ratio:g}" for ratio in calibration.STD_RATIOS] * len(DESIGNS)
    assert all(0 < float(row[name]) <= ALPHA for row in rows for name in calibration.ERRORS)


def test_the_page_states_the_levels_and_rates_of_the_tables() -> None:
    equal_steps, looks = TABLES["equal_steps"], calibration.sequential_summary(TABLES["until_decided"])
    row = next(row for row in looks if row["most seeds"] == "20")
    shares = (BOTH[0][0].level / (3 / 20) ** 3, BOTH[1][0].level / ((1 / 20 + 1 / 9) / (1 / 3 + 1 / 9)) ** 4)
    uncounted = {steps: set[str]() for steps in (0, 10_000, 25_000)}
    for key, curve in calibration.curves().items():
        uncounted[curve.curve.uncounted_steps].add(key.algorithm)
    assert (uncounted[10_000], uncounted[25_000]) == ({"sac", "redq"}, {"ddpg", "td3"})
    for design in BOTH:
        *levels, last = (f"{look.level:.2g}" for look in design)
        assert f"{', '.join(levels)} and {last}" in PAGE
    sums = " or ".join(f"{sum(look.level for look in design):.3f}" for design in BOTH)
    errors = [row for row in TABLES["until_decided"] if row["false_below"]]
    most = max(float(row[name]) for row in errors for name in calibration.ERRORS)
    track, behind, ahead = (
        f"{100 * max(float(row[name]) for row in equal_steps):.1f} %" for name in calibration.AT_STEPS
    )
    after = calibration.after_fixed(TABLES["until_decided"])
    for text in (
        f"{shares[0] / ALPHA:.2g} · 5 % · (k / N)³ is spent",
        f"{shares[1] / ALPHA:.2g} · 5 % · t⁴ is spent",
        f"at most {calibration.MAX_STD_RATIO:g} times the reference's",
        f"a probability below {LITTLE_POWER:.0%}".replace("%", " %"),
        f"the sum of the levels ({sums})",
        f"each error is at most {100 * most:.1f} %",
        f"seeds, {row['mean seeds']} on average, reproduce {row['power'].replace('%', ' %')} of MuJoCo's cells",
        f"takes {row['fixed seeds of equal power']} for that:",
        f"the looks need {row['share'].replace('%', ' %')}",
        f"up to {float(after.split(' ')[0]):.1f} % of the cells at the margin would be called `REPRODUCED`",
        f"{len(calibration.curves())} simulated cells at the margin, false `ON TRACK` is {track}",
        f"false `BEHIND` {behind} and false `AHEAD` {ahead}",
    ):
        assert text in PAGE


def test_the_example_of_the_page_is_that_of_the_records() -> None:
    runs = gather(RESULTS)[CELLS[0]]
    short = [
        replace(run, status="interrupted", evaluations=tuple(e for e in run.evaluations if e.env_steps < 55_000))
        for run in (*runs.complete, *runs.short)
        if run.seed < 3
    ]
    at = at_equal_steps(CELLS[0], Runs(short=short))
    assert at is not None and at.test is not None and at.shortfall_percent is not None
    (setting,) = decide_at_equal_steps([at])
    ours, level, random = stats.describe(at.scores), at.reference, scale_of(CELLS[0])
    assert random is not None and random.random is not None
    difference, own, theirs = ours.mean - level.mean, (ours.variance / 3) ** 0.5, level.std / 3
    error = float(np.hypot(own, theirs))
    t, way = (difference + at.margin) / error, level.mean - random.random
    first, second, third = at.scores
    for text in (
        f"score {first:,.0f}, {second:,.0f} and {third:,.0f}",
        f"is {level.mean:,.0f}, its std {level.std:.0f}, over ten seeds. A random policy scores −{-random.random:.0f}.",
        f"{level.mean:,.0f} + {-random.random:.0f} is {at.margin:.0f}, more than the std",
        f"Difference: {ours.mean:,.0f} − {level.mean:,.0f} = {difference:.0f}.",
        f"ours {ours.variance**0.5:.0f} / √3 = {own:.0f}, theirs {level.std:.0f} / √9 = {theirs:.0f}",
        f"together {error:.0f}.",
        f"= {t:.2f}, p = {stats.t.sf(t, 3):.3f} < 0.05: `{setting}`",
        f"−{difference:.0f} + {stats.t.isf(0.05, 3):.3f} × {error:.0f} = {at.shortfall_percent * way / 100:.0f}",
        f"{at.shortfall_percent:.1f} % of {way:,.0f}: `≤ {at.shortfall_percent:.0f} %`",
        f"spend {100 * calibration.curves()[CELLS[0]].alpha_share(50_000):.1f} % of its 5 % here",
        f"= {ALPHA * calibration.curves()[CELLS[0]].alpha_share(50_000):.4f}, and needs",
    ):
        assert text in PAGE
