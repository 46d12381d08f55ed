"""The verdict, score and note of a cell with given runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlbench.report.cells import Cell, every_cell

Record = Callable[..., Path]


def cell(results: Path, task: str = "BreakoutNoFrameskip-v4", suite: str = "atari", algo: str = "dqn") -> Cell:
    return next(c for c in every_cell([suite], results) if (c.key.task, c.key.algorithm) == (task, algo))


def test_cells_without_a_record_are_not_run(tmp_path: Path) -> None:
    assert {(str(c.verdict), c.measured) for c in every_cell(["atari"], tmp_path)} == {("NOT RUN", None)}


def test_the_measured_score_is_the_mean_over_seeds_of_each_runs_best_evaluation(
    record_run: Record, tmp_path: Path
) -> None:
    record_run([0.0, 5.0, 3.0], seed=0)
    record_run([0.0, 7.0, 2.0], seed=1)
    row = cell(tmp_path / "results").measured
    assert row is not None
    assert (row.score, row.n, row.estimator) == (6.0, 2, "best-of-run")
    assert (row.low, row.high) == pytest.approx((6 - 12.706204736, 6 + 12.706204736))  # t(0.975, 1), both 1 off
    assert (row.env_steps, row.env_id) == (200_000, "test/env")


def test_the_untrained_policy_counts_as_an_evaluation(record_run: Record, tmp_path: Path) -> None:
    record_run([9.0, 5.0])
    row = cell(tmp_path / "results").measured
    assert row is not None
    assert row.score == 9.0


def test_one_seed_has_no_interval(record_run: Record, tmp_path: Path) -> None:
    record_run([5.0])
    row = cell(tmp_path / "results")
    assert row.measured is not None
    assert (row.measured.low, row.measured.high, str(row.verdict)) == (
        None,
        None,
        "INCONCLUSIVE (≈ 2 more seeds)",
    )


@pytest.mark.parametrize(
    ("best", "verdict"),
    [([310.0, 320.0, 316.0], "CONSISTENT"), ([10.0, 12.0, 14.0], "BELOW"), ([900.0, 901.0, 902.0], "ABOVE")],
)
def test_three_seeds_are_tested_against_a_single_reference_run(
    record_run: Record, tmp_path: Path, best: list[float], verdict: str
) -> None:
    for seed, score in enumerate(best):
        record_run([0.0, score], seed=seed)
    assert str(cell(tmp_path / "results").verdict) == verdict


def test_run_stopped_at_the_references_threshold_is_complete(record_run: Record, tmp_path: Path) -> None:
    record_run([-21.0, 20.5], task="PongNoFrameskip-v4")
    assert cell(tmp_path / "results", "PongNoFrameskip-v4").verdict.word == "INCONCLUSIVE"


def test_cell_of_short_runs_is_partial_and_its_note_has_their_steps(record_run: Record, tmp_path: Path) -> None:
    record_run([1.0, 2.0, 4.0], sets=["budget.steps=200000"])
    record_run([1.0, 2.0], seed=1, status="interrupted")
    row = cell(tmp_path / "results")
    assert (str(row.verdict), row.note.split(";")[0]) == ("PARTIAL", "200,000 of 10,000,000 steps")
    assert row.measured is not None
    assert (row.measured.score, row.measured.n, row.measured.env_steps) == (3.0, 2, 100_000)


def test_a_run_without_an_evaluation_yet_is_partial_and_has_no_score(record_run: Record, tmp_path: Path) -> None:
    record_run([], status=None)
    row = cell(tmp_path / "results")
    assert (str(row.verdict), row.measured, row.note) == ("PARTIAL", None, "0 of 10,000,000 steps")


def test_short_run_beside_complete_ones_is_noted_and_does_not_count(record_run: Record, tmp_path: Path) -> None:
    record_run([5.0], seed=0)
    record_run([99.0], seed=1, status="interrupted")
    row = cell(tmp_path / "results")
    assert row.measured is not None
    assert (row.measured.score, row.measured.n, row.note) == (5.0, 1, "1 run incomplete")


def test_failed_run_is_noted_and_counts_as_the_random_policy(record_run: Record, tmp_path: Path) -> None:
    for seed, score in enumerate([310.0, 320.0, 316.0]):
        record_run([score], seed=seed)
    record_run([1.0], seed=3, status="failed")
    row = cell(tmp_path / "results")
    assert row.measured is not None
    assert row.measured.n == 4
    assert row.note == "1 of 4 runs failed, counted at 1.7"
    assert row.measured.score == pytest.approx((310 + 320 + 316 + 1.7) / 4)
    assert row.verdict.word == "CONSISTENT"


def test_failed_run_counts_at_most_as_the_worst_ended_run(record_run: Record, tmp_path: Path) -> None:
    record_run([0.5], seed=0)
    record_run([3.0], seed=1, status="failed")
    row = cell(tmp_path / "results").measured
    assert row is not None
    assert row.seeds == (0.5, 0.5)


def test_a_cell_of_failed_runs_alone_is_below(record_run: Record, tmp_path: Path) -> None:
    for seed in range(3):
        record_run([5.0], seed=seed, status="failed")
    row = cell(tmp_path / "results")
    assert (row.verdict.word, row.measured and row.measured.score) == ("BELOW", pytest.approx(1.7))


def test_another_environment_is_shown_and_not_compared(record_run: Record, tmp_path: Path) -> None:
    for seed in range(3):
        record_run([310.0 + seed], seed=seed, sets=["task.sticky=0.25"])
    row = cell(tmp_path / "results")
    assert (row.verdict.word, row.measured and row.measured.score) == ("NOT COMPARABLE", 311.0)


def test_the_margin_is_stored_in_the_cell(tmp_path: Path) -> None:
    assert cell(tmp_path).margin == pytest.approx(0.1 * (316 - 1.7))
    assert cell(tmp_path, "Ant-v4", "mujoco", "ddpg").margin == pytest.approx(0.1 * (990.4 + 59.3))
    assert cell(tmp_path, "Hopper-v4", "mujoco", "ddpg").margin == 971.6  # the documented spread is larger


def test_a_margin_that_reaches_the_random_policy_reproduces_nothing(record_run: Record, tmp_path: Path) -> None:
    """PPO on Swimmer: documented 66.7 ± 99.1, where a random policy has 0.8."""
    for seed in range(5):
        record_run([0.8, 66.0 + seed], suite="mujoco", algo="ppo", task="Swimmer-v4", seed=seed)
    row = cell(tmp_path / "results", "Swimmer-v4", "mujoco", "ppo")
    assert (str(row.verdict), row.margin) == ("CONSISTENT", 99.1)
    assert "the documented spread reaches the random policy" in row.note


PENDULUM = {"suite": "mujoco", "algo": "ppo", "task": "InvertedPendulum-v4"}
"""Documented 1000 ± 0 at its best, 824.1 in the last evaluation within a million steps; the margin is 99.4."""


def test_note_of_reproduced_mentions_tied_seeds_and_an_early_peak(record_run: Record, tmp_path: Path) -> None:
    for seed in range(5):
        record_run([5.0, 1000.0, 580.0 + 10 * seed], seed=seed, **PENDULUM)
    row = cell(tmp_path / "results", "InvertedPendulum-v4", "mujoco", "ppo")
    assert row.verdict.word == "REPRODUCED"
    assert row.note == (
        "all 5 seeds tie at the peak (zero variance), so no test is possible; "
        "peak at 30,720 steps, final 600.0 (reported final 824.1)"
    )


def test_early_peak_is_noted_with_failed_and_empty_runs(record_run: Record, tmp_path: Path) -> None:
    for seed in range(3):
        record_run([5.0, 1000.0, 600.0], seed=seed, **PENDULUM)
    record_run([5.0], seed=3, status="failed", **PENDULUM)
    record_run([], seed=4, **PENDULUM)
    note = cell(tmp_path / "results", "InvertedPendulum-v4", "mujoco", "ppo").note
    assert "final 600.0" in note and "1 of 5 runs failed" in note


def test_peak_is_at_the_maximum_of_the_mean_over_seeds(record_run: Record, tmp_path: Path) -> None:
    """One seed ends early at its best and keeps it: the moment is that of those that go on."""
    record_run([5.0, 900.0], seed=0, **PENDULUM)
    record_run([5.0, 500.0, 600.0, 1000.0, 100.0], seed=1, **PENDULUM)
    note = cell(tmp_path / "results", "InvertedPendulum-v4", "mujoco", "ppo").note
    assert "peak at 92,160 steps, final 500.0" in note


def test_a_peak_within_the_margin_of_the_end_needs_no_note(record_run: Record, tmp_path: Path) -> None:
    for seed in range(5):
        record_run([5.0, 1000.0, 950.0 + seed], seed=seed, **PENDULUM)
    assert "peak at" not in cell(tmp_path / "results", "InvertedPendulum-v4", "mujoco", "ppo").note


def test_note_of_tied_seeds_at_an_optimum_has_the_possible_failure_rate(record_run: Record, tmp_path: Path) -> None:
    for seed in range(5):
        record_run([0.0, 1.0], suite="toy", task="Catch", seed=seed)
    note = cell(tmp_path / "results", "Catch", "toy").note
    assert note == (
        "all 5 seeds tie (zero variance), so no test is possible; a failure rate of up to 45% cannot be excluded"
    )
    hidden = (1 - 0.45) ** 5  # the chance that five runs show none of so many failures
    assert hidden == pytest.approx(0.05, abs=0.001)


@pytest.mark.parametrize(
    ("score", "apart", "seeds", "is_noted"),
    [
        (2200.0, 900, 3, True),
        (1700.0, 900, 3, True),
        (600.0, 900, 3, False),
        (2400.0, 2000, 3, False),
        (2200.0, 9, 2, False),
    ],
)
def test_note_mentions_a_reference_that_is_too_uncertain_to_decide(
    record_run: Record, tmp_path: Path, score: float, apart: float, seeds: int, is_noted: bool
) -> None:
    """PPO on Hopper: 2609.3 ± 700.8, so the margin lies at 1908.5 and t times the mean's error is 428."""
    for seed in range(seeds):
        record_run([0.0, score + apart * (seed - 1)], suite="mujoco", algo="ppo", task="Hopper-v4", seed=seed)
    row = cell(tmp_path / "results", "Hopper-v4", "mujoco", "ppo")
    assert row.verdict.word == "INCONCLUSIVE"
    assert ("undecidable at any number of seeds" in row.note) is is_noted


def test_runs_with_other_settings_are_noted_and_do_not_count(record_run: Record, tmp_path: Path) -> None:
    for seed, sets in ((0, "algo.lr=0.1"), (1, "algo.lr=0.1"), (0, "algo.dueling=true"), (0, "algo.hidden=9")):
        record_run([99.0], seed=seed, sets=[sets])
    for gamma in (0.8, 0.9):
        record_run([99.0], sets=[f"algo.gamma={gamma}"])
    row = cell(tmp_path / "results")
    assert (str(row.verdict), row.measured) == ("NOT RUN", None)
    assert row.note == "2 runs with lr=0.1, 1 run with dueling=true, 1 run with gamma=0.8, 2 runs with other settings"


def test_short_run_on_generated_data_is_partial(record_run: Record, tmp_path: Path) -> None:
    record_run([1.0], suite="offline", algo="td3bc", task="Hopper-v4", sets=["task.dataset=rlb-own", "budget.steps=9"])
    (row,) = (c for c in every_cell(["offline"], tmp_path / "results") if c.key.dataset == "rlb-own")
    assert (str(row.verdict), row.measured is not None) == ("PARTIAL", True)
    assert row.note == "0 of 1,000,000 steps"


def test_runs_that_do_not_count_are_noted(record_run: Record, tmp_path: Path) -> None:
    for seed, file, sets in ((0, "a", []), (1, "a", ["algo.n_step=1"]), (2, "b", []), (3, "b", [])):
        metadata = {"name": "rlb-hopper-medium", "sha256": file * 64}
        record_run([1.0], suite="offline", algo="td3bc", task="rlb-hopper-medium", seed=seed, sets=sets, data=metadata)
    (row,) = (c for c in every_cell(["offline"], tmp_path / "results") if c.measured is not None)
    assert row.measured is not None and row.measured.n == 2
    assert "1 run with n_step=1; seeds 2, 3 instead of 0 to 1; 1 run on another file of that name" in row.note


def test_note_of_a_reference_appears_in_its_cell(tmp_path: Path) -> None:
    assert "s_{t+3}" in cell(tmp_path, algo="rainbow", task="PongNoFrameskip-v4").note


def test_game_without_a_reference_is_listed_last_and_not_compared(record_run: Record, tmp_path: Path) -> None:
    record_run([5.0], task="AlienNoFrameskip-v4")
    row = every_cell(["atari"], tmp_path / "results")[-1]
    assert (row.key.task, row.documented, str(row.verdict)) == ("AlienNoFrameskip-v4", None, "NOT COMPARABLE")


@pytest.mark.parametrize(
    ("means", "verdict"),
    [((1.0, 1.0, 1.0), "REPRODUCED"), ((0.2, 0.21, 0.19), "BELOW"), ((1.0, 1.0), "INCONCLUSIVE (≈ 1 more seed)")],
)
def test_toy_task_is_tested_against_its_optimum(
    record_run: Record, tmp_path: Path, means: tuple[float, ...], verdict: str
) -> None:
    for seed, score in enumerate(means):
        record_run([0.0, score], suite="toy", task="Catch", seed=seed)
    assert str(cell(tmp_path / "results", "Catch", "toy").verdict) == verdict


def test_reference_from_another_environment_is_not_compared() -> None:
    """The documented limit of 50 steps is a termination: a better score without it is no better algorithm."""
    row = cell(Path("results"), "FetchReach-v4", "goals", "ddpg+her")
    assert row.measured is not None
    assert row.measured.score > -3
    assert str(row.verdict) == "NOT COMPARABLE"
    assert "limit of 50 steps as a termination" in row.note
