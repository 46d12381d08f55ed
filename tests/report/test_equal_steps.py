"""Verdicts at equal steps against hand computations: the reference, alpha spending, and the verdict."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from rlbench.config.names import steps_text
from rlbench.records.looks import DESIGN, Looks
from rlbench.report import equal_steps
from rlbench.report.cells import every_cell
from rlbench.report.equal_steps import EqualSteps, ReferenceCurve, at_equal_steps, reference_curve, score_at
from rlbench.report.reference_files import Curve
from rlbench.report.reference_scores import reference_curves
from rlbench.report.reference_table import CellKey
from rlbench.report.run_index import gather
from rlbench.report.runs import Evaluation
from rlbench.report.verdict import welch_test
from tests.conftest import RecordRun
from tests.report.test_estimate import run

HALF_CHEETAH = CellKey("mujoco", "sac", "HalfCheetah-v4", "")
CURVE = ReferenceCurve(
    curve=Curve(
        n=10, uncounted_steps=10_000, source="", env_steps=(0, 50_000, 100_000, 200_000),
        mean=(0.0, 50.0, 100.0, 150.0), std=(0.0, 1.0, 2.0, 3.0),
    ),
    budget=1_000_000,
    epoch=50_000,
)  # fmt: skip


def test_checkpoints_are_fixed_shares_of_the_budget() -> None:
    assert CURVE.end == 1.005 * 200_000 + 10_000
    assert CURVE.test_steps == (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)


@pytest.mark.parametrize(
    ("step", "window", "mean", "std"),
    [
        (20_000, [0], 0.0, 0.0),  # before the clock starts the first point stands
        (50_000, [0, 50_000], (0 + 40) / 2, (0 + 0.8) / 2),
        (100_000, [0, 50_000, 100_000], (0 + 40 + 90) / 3, (0 + 0.8 + 1.8) / 3),
        (200_000, [100_000, 150_000, 200_000], (90 + 120 + 145) / 3, (1.8 + 2.4 + 2.9) / 3),
        (500_000, [400_000, 450_000, 500_000], 150.0, 3.0),  # after the last point it stays
    ],
)
def test_reference_at_a_step_is_the_window_mean_on_its_own_clock(
    step: int, window: list[int], mean: float, std: float
) -> None:
    level = CURVE.point(step)
    assert equal_steps.window(step, CURVE.epoch) == window
    assert (level.mean, level.std, level.reference_step) == pytest.approx((mean, std, step - 10_000))


@pytest.mark.parametrize(
    ("changes", "informative"),
    [
        ({}, [50_000, 100_000, 200_000, 500_000, 1_000_000]),
        ({"std": (0.0, 30.0, 30.0, 30.0)}, [200_000, 500_000, 1_000_000]),  # 43.3 is less than 3 stds of 18
        ({"mean": (0.0, 50.0, 100.0, 1000.0)}, [200_000, 500_000, 1_000_000]),  # 43.3 is less than a tenth of 1000
        ({"mean": (9.0, 5.0, 4.0, 3.0)}, []),  # learning makes it worse
    ],
)
def test_checkpoint_is_informative_three_stds_and_a_tenth_above_the_start(
    changes: dict[str, tuple[float, ...]], informative: list[int]
) -> None:
    curve = replace(CURVE, curve=replace(CURVE.curve, **changes))
    assert [step for step in curve.test_steps if curve.is_informative(step)] == informative
    assert curve.first_informative() == (informative[0] if informative else None)


def test_behind_spends_alpha_over_checkpoints_by_the_obrien_fleming_function() -> None:
    spent = [CURVE.alpha_share(step) for step in CURVE.test_steps]
    total = [2 * stats.norm.sf(stats.norm.isf(0.025) / (number / 7) ** 0.5) / 0.05 for number in range(1, 8)]
    assert [sum(spent[: place + 1]) for place in range(len(spent))] == pytest.approx(total)
    assert total[-1] == pytest.approx(1.0)
    assert spent[2] == pytest.approx(0.0551 - 0.0049, abs=1e-4)  # at 5 %, whatever was informative before


def test_a_seeds_score_is_the_mean_of_its_evaluations_in_the_window() -> None:
    curve = [Evaluation(step, 0.0, mean) for step, mean in ((0, 1.0), (50_008, 5.0), (100_016, 9.0))]
    assert score_at(curve, [0, 50_000, 100_000]) == 5.0
    assert score_at(curve[:2], [50_000, 100_000, 150_000]) == 5.0  # a run that stopped keeps its last evaluation


@pytest.mark.parametrize(("steps", "text"), [(10_000, "10k"), (1_000_000, "1M"), (1_500_000, "1.5M"), (123, "123")])
def test_steps_are_abbreviated_in_a_label(steps: int, text: str) -> None:
    assert steps_text(steps) == text


@pytest.mark.parametrize(
    ("status", "step", "expected"),
    [
        ("interrupted", 3014, True),  # the last evaluation is at 3000, and may come half a percent late
        ("interrupted", 3016, False),
        ("done", 5024, True),  # ended by its protocol before its budget of 5000
        ("done", 5026, False),
        ("done", 996, True),
        ("done", 995, False),  # before the first evaluation, at 1000
    ],
)
def test_a_run_has_reached_a_step_between_its_first_evaluation_and_its_end(
    status: str, step: int, expected: bool
) -> None:
    whole = run(0.0, 1.0, 2.0, 3.0)
    late = replace(whole, evaluations=whole.evaluations[1:], budget=5000, status=status)
    assert equal_steps.has_reached_step(late, step) == expected


def test_the_offsets_of_the_documented_clocks_are_declared() -> None:
    offsets = {(key.suite, key.algorithm): curve.uncounted_steps for key, curve in reference_curves().items()}
    nonzero = {key: steps for key, steps in offsets.items() if steps}
    assert nonzero == {
        ("mujoco", "sac"): 10_000,
        ("mujoco", "redq"): 10_000,
        ("mujoco", "ddpg"): 25_000,
        ("mujoco", "td3"): 25_000,
    }


def at(results: Path) -> EqualSteps:
    cell = next(cell for cell in every_cell(["mujoco"], results) if cell.key == HALF_CHEETAH)
    assert cell.at.note in cell.note
    return cell.at


def record_cell(record_run: RecordRun, levels: Sequence[float], steps: int = 100_000, **more: object) -> None:
    """A run that stands at the reference's own curve times each level, up to ``steps``."""
    curve = reference_curve(HALF_CHEETAH)
    for seed, share in enumerate(levels, start=int(str(more.pop("start", 0)))):
        means = [share * curve.point(step).mean for step in range(0, steps + 1, curve.epoch)]
        status = more.get("status", "interrupted")
        record_run(means, suite="mujoco", algo="sac", task="HalfCheetah-v4", seed=seed, status=status)


@pytest.mark.parametrize(
    ("levels", "label"),
    [
        ([0.98, 1.0, 1.02], "ON TRACK @100k"),
        ([0.30, 0.31, 0.32], "BEHIND @100k"),
        ([1.98, 2.0, 2.02], "AHEAD @100k"),
        ([1.0], "OPEN @100k (≈ 2 more seeds)"),
    ],
)
def test_three_seeds_are_tested_at_the_step_that_they_have_reached(
    record_run: RecordRun, results: Path, levels: list[float], label: str
) -> None:
    record_cell(record_run, levels)
    row = at(results)
    assert str(row) == label
    assert (row.reference.step, row.reference.reference_step, row.reference.n) == (100_000, 90_000, 10)
    assert row.note.startswith("at 100,000 steps (the reference's 90,000, without 10,000 random ones) the margin is ")


def test_a_given_share_replaces_the_margin_at_equal_steps(record_run: RecordRun, results: Path) -> None:
    record_cell(record_run, [0.98, 1.0, 1.02])
    row = at_equal_steps(HALF_CHEETAH, gather(results)[HALF_CHEETAH], 1e-3)
    assert row is not None and not row.margin_is_std
    assert row.margin == pytest.approx(1e-3 * (row.reference.mean + 284), rel=1e-3) and row.margin < row.reference.std


def test_looks_not_yet_taken_do_not_weaken_the_verdict(record_run: RecordRun, results: Path) -> None:
    record_cell(record_run, [0.98, 1.0, 1.02])
    runs = gather(results)[HALF_CHEETAH]
    rows = [at_equal_steps(HALF_CHEETAH, replace(runs, looks=Looks(DESIGN, count))) for count in (0, 1)]
    assert rows[0] == at_equal_steps(HALF_CHEETAH, runs) != rows[1]


def test_before_the_curve_rises_the_verdict_is_too_early(record_run: RecordRun, results: Path) -> None:
    record_cell(record_run, [1.0, 1.0, 1.0], steps=10_000)
    row = at(results)
    assert (str(row), row.test, row.informative_at) == ("TOO EARLY @10k", None, 50_000)
    assert row.note.endswith("the reference does not differ from its own start; informative at 50,000")


def test_step_is_the_largest_of_three_seeds_and_the_note_counts_the_others(
    record_run: RecordRun, results: Path
) -> None:
    record_cell(record_run, [0.98, 1.0, 1.02], steps=200_000)
    record_cell(record_run, [1.0, 1.0], steps=50_000, start=3)
    record_run([], suite="mujoco", algo="sac", task="HalfCheetah-v4", seed=5, status=None)  # killed
    row = at(results)
    assert (row.reference.step, len(row.scores), row.short_seeds) == (200_000, 3, 3)
    assert row.note.endswith("; 3 seeds below that step")


def test_a_failed_seed_counts_as_the_random_policy(record_run: RecordRun, results: Path) -> None:
    record_cell(record_run, [0.98, 1.0, 1.02, 1.0])
    before = at(results)
    record_cell(record_run, [1.0], status="failed", start=4, steps=5_000)
    after = at(results)
    assert (before.word, after.word) == ("ON TRACK", "OPEN")
    assert after.scores[:-1] == before.scores
    assert after.scores[-1] < 0  # a random policy's return on HalfCheetah


def test_a_failed_seed_counts_no_more_than_the_worst_of_the_others(record_run: RecordRun, results: Path) -> None:
    record_cell(record_run, [1.0, 1.0, -5.0])
    record_cell(record_run, [1.0], status="failed", start=3, steps=5_000)
    scores = at(results).scores
    assert len(scores) == 4
    assert scores[-1] == min(scores[:-1])


def test_behind_spends_its_share_where_a_failed_seed_makes_the_third(record_run: RecordRun, results: Path) -> None:
    record_cell(record_run, [0.30, 0.31])  # two seeds are not tested, and with the failed one they are
    record_cell(record_run, [1.0], status="failed", start=2, steps=5_000)
    comparison, curve = at(results), reference_curve(HALF_CHEETAH)
    level = comparison.reference
    test = welch_test(comparison.scores, level.mean, level.std, level.n, comparison.margin)
    assert comparison.test.below == pytest.approx(test.below / curve.alpha_share(100_000)) and test.below > 0


@pytest.mark.parametrize(("scores", "sign"), [([0.80, 0.85, 0.90], 1), ([1.25, 1.30, 1.35], -1)])
def test_below_above_and_shortfall_equal_scipys_welch_test(
    scores: list[float], sign: int, record_run: RecordRun, results: Path
) -> None:
    record_cell(record_run, scores)
    row = at(results)
    level, random = row.reference, -284.0
    ours = stats.describe(row.scores)
    error = (ours.variance / 3 + level.std**2 / 9) ** 0.5
    squared, printed = max(ours.variance, level.std**2 * 10 / 9) / 3, level.std**2 / 9  # ours may be closer together
    degrees = int((squared + printed) ** 2 / (squared**2 / 2 + printed**2 / 9))
    curve = reference_curve(HALF_CHEETAH)
    chance = stats.t.cdf(sign * (ours.mean - level.mean + sign * row.margin) / error, degrees)
    p_value = row.test.below if sign > 0 else row.test.above
    assert p_value == pytest.approx(chance / curve.alpha_share(100_000), rel=1e-6) and p_value < 1
    bound = level.mean - ours.mean + stats.t.isf(0.05, degrees) * error
    assert row.shortfall_percent == pytest.approx(100 * bound / (level.mean - random), rel=2e-2)
