"""Comparison of two folders: one setting per cell and folder, equal rules, and every omission reported."""

import shutil
from pathlib import Path

import pytest

from rlbench.report.aggregate import scores_of
from rlbench.report.compare import Comparison, compare
from rlbench.report.evidence import Evidence
from rlbench.report.run_index import gather
from tests.commands import json_of, run_command, stderr_of, stdout_of
from tests.conftest import RecordRun, RecordSeeds

pytestmark = pytest.mark.usefixtures("empty_folder")

NOWHERE, LATER = Path("nowhere"), {"env": {"env": "test/later"}}


def scores(comparison: Comparison) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    return [(task.first, task.second) for task in comparison.tasks]


@pytest.fixture
def usual(record_seeds: RecordSeeds) -> str:
    """A folder with two seeds of the documented setting of DQN on Catch, at 0.5."""
    record_seeds(*[[-0.6, 0.5]] * 2, suite="toy", task="Catch")
    Path("results").rename("usual")
    return "usual"


def test_variant_is_compared_with_the_documented_setting(usual: str, record_seeds: RecordSeeds) -> None:
    variant = {"suite": "toy", "task": "Catch", "sets": ["algo.lr=0.5"]}
    record_seeds([-0.6, 0.75], [-0.6, 1.0], environment=LATER, **variant)
    record_seeds([1.0], start=2, status=None, **variant)  # not at its end
    assert scores(compare(usual, "results", Evidence(NOWHERE), None)) == [((0.5, 0.5), (0.75, 1.0))]
    text = " ".join(stdout_of(["compare", usual, "results"]).split())
    assert "toy/dqn/Catch: test/env against test/later. toy/dqn/Catch: settings published against lr=0.5." in text


def test_two_algorithms_with_other_numbers_of_evaluations_are_named(record_seeds: RecordSeeds) -> None:
    for algo, epoch in (("ppo", 1024), ("a2c", 64)):
        sets = ["budget.steps=3072", f"budget.epoch={epoch}"]
        record_seeds([10.0], [20.0], suite="toy", algo=algo, task="CartPole-v1", sets=sets)
    text = " ".join(stdout_of(["compare", "ppo", "a2c", "--suite", "toy", "--results", "results"]).split())
    assert "settings published budget.epoch=1024 against published budget.epoch=64." in text


@pytest.mark.parametrize(
    ("algorithm", "dataset", "score"),
    [
        ("iql", "hopper-medium-v2", 20.0),  # CORL's last evaluation
        ("td3bc", "hopper-random-v2", 30.0),  # the higher mean of OfflineRL-Lib's last two
        ("bcq", "hopper-expert-v2", 190 / 10),  # the mean of robomimic's last ten
        ("il", "rlb-hopper-medium", 20.0),  # without a reference the last, as in a table
    ],
)
def test_offline_scores_are_raw_returns_by_the_references_estimator(
    algorithm: str, dataset: str, score: float, record_run: RecordRun
) -> None:
    means = [999.0, *[17.5] * 8, 30.0, 20.0]
    record_run(means, suite="offline", algo=algorithm, task=dataset)
    ((key, runs),) = gather(Path("results")).items()
    assert scores_of(key, runs) == [pytest.approx(score)]


def test_failed_seed_of_a_variant_counts_as_the_random_policy(usual: str, record_seeds: RecordSeeds) -> None:
    record_seeds([-0.6, 0.875], suite="toy", task="Catch", sets=["algo.lr=0.5"])
    record_seeds([], [], start=1, suite="toy", task="Catch", sets=["algo.lr=0.5"], status="failed")
    assert scores(compare(usual, "results", Evidence(NOWHERE), None)) == [((0.5, 0.5), (0.875, -0.6, -0.6))]


def test_a_variant_that_was_killed_after_its_last_evaluation_counts(usual: str, record_run: RecordRun) -> None:
    steps = {"suite": "toy", "task": "Catch", "sets": ["algo.lr=0.5"]}
    for seed, mean in enumerate((0.875, -0.5)):
        record_run([-0.6] * 6 + [mean], seed=seed, status="done" if seed == 0 else None, **steps)
    assert scores(compare(usual, "results", Evidence(NOWHERE), None)) == [((0.5, 0.5), (0.875, -0.5))]


def test_a_failed_seed_of_fewer_steps_stays_beside_the_finished_ones(record_run: RecordRun) -> None:
    short = {"suite": "toy", "task": "Catch", "sets": ["budget.steps=2000"]}
    for folder, seeds in (("good", 3), ("bad", 4)):
        for seed in range(seeds):
            record_run([-0.6, 0.5], seed=seed, status="failed" if seed == 3 else "done", **short)
        Path("results").rename(folder)
    assert scores(compare("good", "bad", Evidence(NOWHERE), None)) == [((0.5,) * 3, (0.5, 0.5, 0.5, -0.6))]


@pytest.mark.parametrize(
    ("side", "sets"), [("results", []), ("results@published", []), ("results@lr=0.5", ["algo.lr=0.5"])]
)
def test_seeds_that_are_left_out_are_counted(side: str, sets: list[str], usual: str, record_run: RecordRun) -> None:
    record_run([0.5], suite="toy", task="Catch", sets=sets)
    record_run([0.5], suite="toy", task="Catch", seed=1, status="interrupted", sets=sets)
    record_run([0.5], suite="toy", task="Catch", seed=2, environment=LATER, sets=sets)
    reasons = "in other versions of the environment", "short of the budget"
    left_out = [f"toy/dqn/Catch: 1 of {side} {reason}" for reason in reasons]
    assert json_of(["compare", usual, side, "--json"])["left_out"] == left_out
    assert scores(compare(usual, side, Evidence(NOWHERE), None)) == [((0.5, 0.5), (0.5,))]


def test_a_seed_in_two_versions_is_compared_in_the_version_of_most_runs(record_run: RecordRun) -> None:
    run = {"suite": "toy", "task": "Catch", "sets": ["algo.lr=0.5"]}
    for folder, score, environment in (("later", -0.6, LATER), ("first", 0.5, {}), ("second", 0.5, {})):
        for seed in range(2 if folder == "later" else 3):
            record_run([score], seed=seed, environment=environment, **run)
        Path("results").rename(folder)
    Path("later").rename("first/later")
    assert scores(compare("first", "second", Evidence(NOWHERE), None)) == [((0.5,) * 3, (0.5,) * 3)]
    left_out = "toy/dqn/Catch: 2 of first in other versions of the environment"
    assert json_of("compare first second --json")["left_out"] == [left_out]


def test_short_runs_in_other_versions_are_counted(record_run: RecordRun) -> None:
    for folder, steps in (("first", 2_000), ("second", 4_000)):  # of the second those in other versions are shorter
        for seed in range(3):
            sets = [f"budget.steps={2_000 if seed < 2 else steps}"]
            versions = LATER if seed == 2 else {}
            record_run([0.5], suite="toy", task="Catch", seed=seed, sets=sets, environment=versions)
        Path("results").rename(folder)
    text = "toy/dqn/Catch: 1 of {} in other versions of the environment"
    assert json_of("compare first second --json")["left_out"] == [text.format("first"), text.format("second")]


def test_failed_documented_seeds_alone_are_not_replaced_by_another_setting(usual: str, record_run: RecordRun) -> None:
    record_run([], suite="toy", task="Catch", status="failed")
    record_run([-0.6, 0.875], suite="toy", task="Catch", sets=["algo.lr=0.5"])
    assert scores(compare(usual, "results", Evidence(NOWHERE), None)) == [((0.5, 0.5), (-0.6,))]


STEPS = (
    "results has runs of lr=0.5 with other steps, protocols or data files; "
    "keep those to compare in a results folder of their own"
)
TWO = "results has 2 settings of it, lr=0.25, lr=0.5; name one, as in 'results@lr=0.25'"


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        ([["algo.lr=0.5"], ["algo.lr=0.25"]], TWO),
        ([["algo.lr=0.5"], ["algo.lr=0.5", "budget.steps=2000"]], STEPS),
        ([["budget.steps=2000"]], "they differ in budget: 24,000 and 2,000 steps; train both with --steps 2000"),
        ([["budget.epoch=100"]], "they differ in budget"),
        ([["protocol.episodes=128"]], "they differ in protocol"),
        ([["protocol.episodes=128", "algo.lr=0.5"]], "they differ in protocol"),
        ([["task.envs=3", "algo.lr=0.5"]], "they differ in task"),
    ],
)
def test_cells_with_two_settings_or_other_rules_are_not_compared(
    sets: list[list[str]], why: str, usual: str, record_run: RecordRun
) -> None:
    """With another common cell the rest is compared, and the message names what is left out."""
    for texts in sets:
        record_run([0.75], suite="toy", task="Catch", sets=texts)
    assert stderr_of(["compare", usual, "results"]).rstrip().endswith(f"can be compared: toy/dqn/Catch: {why}")
    pole = record_run([20.0, 500.0], suite="toy", task="CartPole-v1").parents[1]
    shutil.copytree(pole, Path(usual, pole.relative_to(Path("results").resolve())))
    assert f"Not compared: toy/dqn/Catch: {why}." in " ".join(stdout_of(["compare", usual, "results"]).split())
    assert json_of(["compare", usual, "results", "--json"])["left_out"] == [f"toy/dqn/Catch: {why}"]


def test_settings_of_one_folder_are_compared_with_each_other_and_with_the_published_one(
    record_seeds: RecordSeeds,
) -> None:
    for score, sets in ((0.25, []), (0.5, ["algo.lr=0.5"]), (0.75, ["algo.lr=0.25"])):
        record_seeds([score], [score], suite="toy", task="Catch", sets=sets)
    quick, slow = "results@lr=0.5", "results@lr=0.25"
    assert scores(compare(quick, slow, Evidence(NOWHERE), None)) == [((0.5, 0.5), (0.75, 0.75))]
    assert scores(compare("results@published", slow, Evidence(NOWHERE), None)) == [((0.25, 0.25), (0.75, 0.75))]
    assert "toy/dqn/Catch" in stdout_of(["compare", quick, slow])
    error = stderr_of(["compare", "results@lr=0.05", slow])
    assert "results: unknown setting 'lr=0.05'; did you mean 'lr=0.5'" in error


@pytest.mark.parametrize("text", ["protocol.episodes=128", "budget.steps=2000", "algo.lr=0.5"])
def test_folders_with_equal_rules_are_compared_whole(text: str, record_run: RecordRun) -> None:
    for best, folder in [(0.5, "left"), (0.75, "right")]:
        record_run([best], suite="toy", task="Catch", sets=[text])
        Path("results").rename(folder)
    assert scores(compare("left", "right", Evidence(NOWHERE), None)) == [((0.5,), (0.75,))]
    assert json_of("compare left right --json")["left_out"] == []


def test_evaluations_beyond_the_references_steps_count_for_two_variants(record_run: RecordRun) -> None:
    """A budget of three times the documented one on both sides: the best of each run is its last evaluation."""
    long = ["budget.steps=3000000", "budget.epoch=1000000"]
    for folder, more in [("left", []), ("right", ["algo.lr=1e-4"])]:
        record_run([10.0, 31.0, 60.0, 89.0], suite="mujoco", task="Hopper-v4", algo="ppo", sets=[*long, *more])
        Path("results").rename(folder)
    assert scores(compare("left", "right", Evidence(NOWHERE), None)) == [((89.0,), (89.0,))]


@pytest.mark.parametrize("files", ["ab", "aa"])
def test_runs_on_another_file_are_not_repeats(files: str, record_run: RecordRun) -> None:
    for digest, folder in zip(files, ("left", "right"), strict=True):
        metadata = {"name": "rlb-hopper-medium", "sha256": digest * 64}
        record_run([5.0], suite="offline", task="rlb-hopper-medium", algo="il", data=metadata)
        Path("results").rename(folder)
    differ = files == "ab"
    assert ("they differ in data" in stderr_of(["compare", "left", "right"], 2 if differ else 0)) is differ


def test_runs_on_a_second_file_of_the_same_name_are_reported(record_run: RecordRun) -> None:
    def runs(files: str, folder: str, *sets: str) -> None:
        for seed, digest in enumerate(files):
            metadata = {"name": "rlb-hopper-medium", "sha256": digest * 64}
            words = {"suite": "offline", "task": "rlb-hopper-medium", "algo": "il", "data": metadata}
            record_run([float(seed)], seed=seed, sets=sets, **words)
        Path("results").rename(folder)

    runs("aab", "left")
    runs("aaa", "right")
    assert scores(compare("left", "right", Evidence(NOWHERE), None)) == [((0.0, 1.0), (0.0, 1.0, 2.0))]
    assert "1 of left on another file of that name" in " ".join(stdout_of(["compare", "left", "right"]).split())
    runs("abb", "short", "budget.steps=9")
    runs("aaa", "shorter", "budget.steps=9")
    assert "short has runs of published with other steps" in " ".join(
        stderr_of(["compare", "short", "shorter"]).split()
    )


def test_a_folder_without_ended_runs_is_named(usual: str, record_run: RecordRun) -> None:
    Path("empty").mkdir()
    assert "empty: no run has ended there" in stderr_of(["compare", usual, "empty"])
    record_run([0.5], suite="toy", task="Catch", status=None)
    assert "results: no run of toy has ended there" in stderr_of(["compare", "results", usual, "--suite", "toy"])


def test_unfinished_runs_are_compared_at_the_largest_step_of_three_seeds_a_side(record_seeds: RecordSeeds) -> None:
    """Evaluations each 5,000 steps: 20,000 on the left, where a fourth seed is behind, 15,000 on the right."""
    words = {"suite": "mujoco", "task": "Hopper-v4", "algo": "sac", "status": "interrupted"}
    record_seeds(
        [0.0, 1.0, 2.0, 3.0, 90.0], [0.0, 2.0, 4.0, 6.0, 90.0], [0.0, 3.0, 6.0, 9.0, 90.0], [7.0, 7.0], **words
    )
    Path("results").rename("left")
    record_seeds(*([0.0, 10.0, 20.0, 30.0 + 3 * seed] for seed in range(3)), **words)
    Path("results").rename("right")
    comparison = compare("left", "right", Evidence(NOWHERE), None, at=True)
    assert [task.step for task in comparison.tasks] == [15_000]
    assert scores(comparison) == [((2.0, 4.0, 6.0), (20.0, 21.0, 22.0))]
    assert comparison.left_out == ("mujoco/sac/Hopper-v4: 1 of left below 15,000 steps",)
    assert "mujoco/sac/Hopper-v4 @15k" in stdout_of(["compare", "left", "right", "--at"])
    (row,) = json_of(["compare", "left", "right", "--at", "--json"])["tasks"]
    assert (row["step"], row["improvement"]["value"]) == (15_000, 1.0)


def test_variants_are_compared_at_equal_steps_and_several_are_named(record_run: RecordRun) -> None:
    words = {"suite": "mujoco", "task": "Hopper-v4", "algo": "sac", "status": "interrupted"}
    record_run([0.0, 10.0, 20.0, 30.0], **words)
    record_run([], seed=1, **words)
    Path("results").rename("left")
    record_run([0.0, 1.0, 2.0], sets=["algo.actor_lr=0.5", "budget.steps=500000"], **words)
    comparison = compare("left", "results", Evidence(NOWHERE), None, at=True)
    assert comparison.left_out == ("mujoco/sac/Hopper-v4: 1 of left without an evaluation",)
    assert (scores(comparison), comparison.tasks[0].step) == ([((10.0,), (1.0,))], 10_000)
    record_run([0.0, 1.0, 2.0], sets=["algo.actor_lr=0.25"], **words)
    several = "can be compared: mujoco/sac/Hopper-v4: results has 2 settings of it, actor_lr=0.25, actor_lr=0.5;"
    assert several in stderr_of(["compare", "left", "results", "--at"])
    assert scores(compare("left", "results@actor_lr=0.5", Evidence(NOWHERE), None, at=True)) == scores(comparison)
    Path("results").rename("several")
    record_run([0.0, 1.0, 2.0], sets=["protocol.episodes=20", "budget.steps=500000"], **words)
    assert stderr_of(["compare", "left", "results", "--at"]).endswith("mujoco/sac/Hopper-v4: they differ in protocol\n")


def test_comparison_at_equal_steps_without_common_tasks_is_refused(record_run: RecordRun) -> None:
    record_run([1.0], suite="toy", task="Catch")
    Path("results").rename("left")
    Path("right").mkdir()
    error = stderr_of(["compare", "left", "right", "--at"])
    assert "left and right have no cell in common that can be compared" in error


def test_algorithms_with_other_settings_are_compared_by_name(record_run: RecordRun) -> None:
    def compared(*words: str) -> str:
        _, out, error = run_command(["compare", *words, "--results", "results"])
        return out or error

    for algo, lr, best in (("dqn", 0.25, 0.5), ("c51", 0.25, 0.75), ("c51", 0.5, 1.0)):
        sets = [f"algo.lr={lr}", "budget.steps=10"]
        record_run([-0.6, best], suite="toy", algo=algo, task="Catch", sets=sets)
    assert "c51 has 2 settings of it, lr=0.25, lr=0.5; name one, as in 'c51@lr=0.25'" in compared("dqn", "c51")
    assert "toy/Catch  0.50 (1)  1.00 (1)" in compared("dqn", "c51@lr=0.5")
    assert "unknown setting 'lr=0.3'" in compared("dqn", "c51@lr=0.3")
    record_run([-0.6, 1.0], suite="toy", algo="ppo", task="Catch", sets=["budget.steps=20"])
    assert "10 and 20 steps; train both with --steps 10" in compared("dqn", "ppo")
    assert "toy/Catch @" in compared("dqn", "ppo", "--at")
