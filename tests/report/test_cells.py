"""The verdict, score and note of a cell with given runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from rlbench.report.cells import Cell, every_cell
from tests.conftest import RecordRun
from tests.report.conftest import RecordSeeds

Facts = Mapping[str, object]
CATCH = {"suite": "toy", "task": "Catch"}
HOPPER = {"suite": "mujoco", "algo": "ppo", "task": "Hopper-v4"}
SWIMMER = {"suite": "mujoco", "algo": "ppo", "task": "Swimmer-v4"}
PENDULUM = {"suite": "mujoco", "algo": "ppo", "task": "InvertedPendulum-v4"}
"""Documented 1000 ± 0 at its best, 824.1 in the last evaluation within a million steps; the margin is 99.4."""


def cell(results: Path, suite: str = "atari", algo: str = "dqn", task: str = "BreakoutNoFrameskip-v4") -> Cell:
    return next(c for c in every_cell([suite], results) if (c.key.task, c.key.algorithm) == (task, algo))


def facts(row: Cell) -> Facts:
    facts = {"verdict": str(row.verdict), "word": row.verdict.word, "note": row.note, "measured": row.measured}
    return facts | ({} if row.measured is None else asdict(row.measured))


def test_cells_without_a_record_are_not_run(tmp_path: Path) -> None:
    assert {(str(c.verdict), c.measured) for c in every_cell(["atari"], tmp_path)} == {("NOT RUN", None)}


def run(*means: float, **words: object) -> tuple[Sequence[float], Facts]:
    return means, words


GOOD = (run(310.0), run(320.0), run(316.0))
CASES: Mapping[str, tuple[Sequence[tuple[Sequence[float], Facts]], Facts]] = {
    "the measured score is the mean over seeds of each run's best evaluation": (
        [run(0.0, 5.0, 3.0), run(0.0, 7.0, 2.0)],
        {"score": 6.0, "n": 2, "estimator": "best-of-run", "env_steps": 200_000, "env_id": "test/env"}
        # t(0.975, 1), both 1 off
        | {"low": pytest.approx(6 - 12.706204736), "high": pytest.approx(6 + 12.706204736)},
    ),
    "the untrained policy counts as an evaluation": ([run(9.0, 5.0)], {"score": 9.0}),
    "one seed has no interval": ([run(5.0)], {"low": None, "high": None, "verdict": "INCONCLUSIVE (≈ 2 more seeds)"}),
    "three seeds are consistent with a single reference run": (
        [run(0.0, 310.0), run(0.0, 320.0), run(0.0, 316.0)], {"verdict": "CONSISTENT"},
    ),
    "three seeds below one reference run": (
        [run(0.0, 10.0), run(0.0, 12.0), run(0.0, 14.0)], {"verdict": "BELOW"},
    ),
    "three seeds are above a single reference run": (
        [run(0.0, 900.0), run(0.0, 901.0), run(0.0, 902.0)], {"verdict": "ABOVE"},
    ),
    "short runs are partial, and their steps are noted": (
        [run(1.0, 2.0, 4.0, sets=["budget.steps=200000"]), run(1.0, 2.0, status="interrupted")],
        {"verdict": "PARTIAL", "steps": "100,000 of 10,000,000 steps", "score": 3.0, "n": 2, "env_steps": 100_000},
    ),
    "a run without an evaluation yet is partial and has no score": (
        [run(status=None)], {"verdict": "PARTIAL", "measured": None, "note": "0 of 10,000,000 steps"},
    ),
    "a short run beside complete ones is noted and does not count": (
        [run(5.0), run(99.0, status="interrupted")], {"score": 5.0, "n": 1, "note": "1 run incomplete"},
    ),
    "a failed run is noted and counts as the random policy": (
        [*GOOD, run(1.0, status="failed")],
        {"n": 4, "note": "1 of 4 runs failed, counted at 1.7", "word": "CONSISTENT"}
        | {"score": pytest.approx((310 + 320 + 316 + 1.7) / 4)},
    ),
    "a failed run counts at most as the worst": (
        [run(0.5), run(3.0, status="failed")], {"scores": (0.5, 0.5)},
    ),
    "failed runs alone are below": (
        [run(5.0, status="failed")] * 3, {"word": "BELOW", "score": pytest.approx(1.7)},
    ),
    "another environment is shown and not compared": (
        [run(310.0 + seed, sets=["task.sticky=0.25"]) for seed in range(3)], {"word": "NOT COMPARABLE", "score": 311.0},
    ),
    "runs with other settings are noted and do not count": (
        [run(99.0, sets=["algo.lr=0.1"]), run(99.0, sets=["algo.lr=0.1"])]
        + [run(99.0, seed=0, sets=[f"algo.{text}"]) for text in ("dueling=true", "hidden=9", "gamma=0.8", "gamma=0.9")],
        {"verdict": "NOT RUN", "measured": None}
        | {"note": "2 runs with lr=0.1, 1 run with dueling=true, 1 run with gamma=0.8, 2 runs with other settings"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("runs", "expected"), CASES.values(), ids=CASES)
def test_facts_of_a_cell(
    runs: Sequence[tuple[Sequence[float], Facts]], expected: Facts, record_run: RecordRun, results: Path
) -> None:
    for seed, (means, words) in enumerate(runs):
        record_run(means, **{"seed": seed, **words})
    actual = facts(cell(results))
    actual |= {"steps": actual["note"].split(";")[0]}
    assert {name: actual[name] for name in expected} == expected


def test_run_stopped_at_the_references_threshold_is_complete(record_run: RecordRun, results: Path) -> None:
    record_run([-21.0, 20.5], task="PongNoFrameskip-v4")
    assert cell(results, task="PongNoFrameskip-v4").verdict.word == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("algo", "task", "margin"),
    [
        ("dqn", "BreakoutNoFrameskip-v4", pytest.approx(0.1 * (316 - 1.7))),
        ("ddpg", "Ant-v4", pytest.approx(0.1 * (990.4 + 59.3))),
        ("ddpg", "Hopper-v4", 971.6),  # the documented spread is larger
    ],
)
def test_the_margin_is_stored_in_the_cell(algo: str, task: str, margin: float, tmp_path: Path) -> None:
    assert cell(tmp_path, "atari" if algo == "dqn" else "mujoco", algo, task).margin == margin


def test_a_margin_that_reaches_the_random_policy_reproduces_nothing(record_seeds: RecordSeeds, results: Path) -> None:
    """PPO on Swimmer: documented 66.7 ± 99.1, where a random policy has 0.8."""
    record_seeds(*([0.8, 66.0 + seed] for seed in range(5)), **SWIMMER)
    row = cell(results, **SWIMMER)
    assert (str(row.verdict), row.margin) == ("CONSISTENT", 99.1)
    assert "the documented spread reaches the random policy" in row.note


def test_note_of_reproduced_mentions_tied_seeds_and_an_early_peak(record_seeds: RecordSeeds, results: Path) -> None:
    record_seeds(*([5.0, 1000.0, 580.0 + 10 * seed] for seed in range(5)), **PENDULUM)
    row = cell(results, **PENDULUM)
    assert row.verdict.word == "REPRODUCED"
    assert row.note == (
        "all 5 seeds tie at the peak (zero variance): the difference alone decides; "
        "peak at 30,720 steps, final 600.0 (reported final 824.1)"
    )


def test_early_peak_is_noted_with_failed_and_empty_runs(record_seeds: RecordSeeds, results: Path) -> None:
    record_seeds(*[[5.0, 1000.0, 600.0]] * 3, **PENDULUM)
    record_seeds([5.0], start=3, status="failed", **PENDULUM)
    record_seeds([], start=4, **PENDULUM)
    note = cell(results, **PENDULUM).note
    assert "final 600.0" in note and "1 run incomplete; 1 of 4 runs failed" in note


def test_peak_is_at_the_maximum_of_the_mean_over_seeds(record_seeds: RecordSeeds, results: Path) -> None:
    """One seed ends early at its best and keeps it: the moment is that of those that go on."""
    record_seeds([5.0, 900.0], [5.0, 500.0, 600.0, 1000.0, 100.0], **PENDULUM)
    assert "peak at 92,160 steps, final 500.0" in cell(results, **PENDULUM).note


def test_a_peak_within_the_margin_of_the_end_needs_no_note(record_seeds: RecordSeeds, results: Path) -> None:
    record_seeds(*([5.0, 1000.0, 950.0 + seed] for seed in range(5)), **PENDULUM)
    assert "peak at" not in cell(results, **PENDULUM).note


def test_note_of_tied_seeds_at_an_optimum_has_the_possible_failure_rate(
    record_seeds: RecordSeeds, results: Path
) -> None:
    record_seeds(*[[0.0, 1.0]] * 5, **CATCH)
    assert cell(results, **CATCH).note == (
        "all 5 seeds tie (zero variance): the difference alone decides; a failure rate of up to 45% cannot be excluded"
    )
    hidden = (1 - 0.45) ** 5  # the chance that five runs show none of so many failures
    assert hidden == pytest.approx(0.05, abs=0.001)


@pytest.mark.parametrize(
    ("score", "apart", "seeds", "is_noted"),
    [(2200, 900, 3, True), (1700, 900, 3, True), (600, 900, 3, False), (2400, 2000, 3, False), (2200, 9, 2, False)],
)
def test_note_mentions_a_reference_that_is_too_uncertain_to_decide(
    score: int, apart: int, seeds: int, is_noted: bool, record_seeds: RecordSeeds, results: Path
) -> None:
    """PPO on Hopper: 2609.3 ± 700.8, so the margin lies at 1908.5 and t times the mean's error is 428."""
    record_seeds(*([0.0, float(score + apart * (seed - 1))] for seed in range(seeds)), **HOPPER)
    row = cell(results, **HOPPER)
    assert row.verdict.word == "INCONCLUSIVE"
    assert ("undecidable at any number of seeds" in row.note) is is_noted


def test_short_run_on_generated_data_is_partial(record_run: RecordRun, results: Path) -> None:
    record_run([1.0], suite="offline", algo="td3bc", task="Hopper-v4", sets=["task.dataset=rlb-own", "budget.steps=9"])
    (row,) = (c for c in every_cell(["offline"], results) if c.key.dataset == "rlb-own")
    assert (str(row.verdict), row.measured is not None) == ("PARTIAL", True)
    assert row.note == "0 of 1,000,000 steps"


def test_runs_that_do_not_count_are_noted(record_run: RecordRun, results: Path) -> None:
    for seed, file, sets in ((0, "a", []), (1, "a", ["algo.n_step=1"]), (2, "b", []), (3, "b", [])):
        metadata = {"name": "rlb-hopper-medium", "sha256": file * 64}
        record_run([1.0], suite="offline", algo="td3bc", task="rlb-hopper-medium", seed=seed, sets=sets, data=metadata)
    (row,) = (c for c in every_cell(["offline"], results) if c.measured is not None)
    assert row.measured.n == 2
    assert "1 run with n_step=1; seeds 2, 3 instead of 0 to 1; 1 run on another file of that name" in row.note


def test_note_of_a_reference_appears_in_its_cell(tmp_path: Path) -> None:
    assert "s_{t+3}" in cell(tmp_path, algo="rainbow", task="PongNoFrameskip-v4").note


def test_game_without_a_reference_is_listed_last_and_not_compared(record_run: RecordRun, results: Path) -> None:
    record_run([5.0], task="AlienNoFrameskip-v4")
    row = every_cell(["atari"], results)[-1]
    assert (row.key.task, row.documented, str(row.verdict)) == ("AlienNoFrameskip-v4", None, "NOT COMPARABLE")


@pytest.mark.parametrize(
    ("means", "verdict"),
    [((1.0, 1.0, 1.0), "REPRODUCED"), ((0.2, 0.21, 0.19), "BELOW"), ((1.0, 1.0), "INCONCLUSIVE (≈ 1 more seed)")],
)
def test_toy_task_is_tested_against_its_optimum(
    means: Sequence[float], verdict: str, record_seeds: RecordSeeds, results: Path
) -> None:
    record_seeds(*([0.0, score] for score in means), **CATCH)
    assert str(cell(results, **CATCH).verdict) == verdict


def test_reference_from_another_environment_is_not_compared() -> None:
    """The documented limit of 50 steps is a termination: a better score without it is no better algorithm."""
    row = cell(Path("results"), "goals", "ddpg+her", "FetchReach-v4")
    assert row.measured.score > -3
    assert str(row.verdict) == "NOT COMPARABLE"
    assert "limit of 50 steps as a termination" in row.note
