"""Second records, forced runs, other data, longer curves and forged counts lift no score."""

import json
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.records import imported
from rlbench.records.attempts import ATTEMPTS, LOG
from rlbench.records.looks import DESIGN, Looks, record_looks
from rlbench.report.cells import every_cell
from tests.commands import json_of, killed_at, run_command, stderr_of, stdout_of
from tests.conftest import RecordRun, RecordSeeds
from tests.reliability.test_forged_records import full_run
from tests.reliability.test_hostile_curves import CURVE

TOY = {"suite": "toy", "algo": "ppo", "task": "Catch"}
HOPPER = {"suite": "offline", "algo": "td3bc", "task": "hopper-medium-v2"}


def score_and_seeds(results: Path, suite: str, algorithm: str, task: str) -> tuple[float, int]:
    cells = json.loads(stdout_of(f"table {suite} --json --results {results}"))["cells"]
    key = (algorithm, task)
    (row,) = [row for row in cells if (row["algorithm"], row["dataset"] or row["task"]) == key and row["measured"]]
    return row["measured"]["score"], row["measured"]["n"]


def test_a_second_record_of_a_seed_allows_no_good_verdict(record_run: RecordRun, results: Path) -> None:
    """Which of two whole records is the worse depends on what a verdict measures."""
    table = f"table mujoco --algo sac --task HalfCheetah-v4 --results {results} --json"
    words = ("REPRODUCED", "ON TRACK"), ("INCONCLUSIVE", "OPEN")
    for level, last, expected in ((12_150.0, 12_200.0, words[0]), (13_000.0, 100.0, words[1])):
        for seed in range(5):
            means = [0.0, *[level + seed] * 199, last]
            folder = record_run(means, suite="mujoco", algo="sac", task="HalfCheetah-v4", seed=seed)
        (row,) = json_of(table)["cells"]
        assert (row["verdict"], row["at"]["word"]) == expected
        (results / f"{level}").mkdir()
        folder.parent.rename(results / f"{level}" / folder.parent.name)
    assert "seeds 0, 1, 2, 3, 4 have second records with other numbers" in row["note"]


def test_a_copy_of_a_run_from_before_its_end_is_no_second_record(record_run: RecordRun, results: Path) -> None:
    for seed in range(5):
        means = [0.0, *[12_150.0 + seed] * 200]
        for status, place in (("interrupted", "earlier"), ("done", "later")):
            part = means[: -1 if status == "interrupted" else None]
            folder = record_run(part, suite="mujoco", algo="sac", task="HalfCheetah-v4", seed=seed, status=status)
            shutil.move(folder, results / place / folder.relative_to(results))
    (row,) = json_of(f"table mujoco --algo sac --task HalfCheetah-v4 --results {results} --json")["cells"]
    assert (row["verdict"], row["at"]["word"], "record" in row["note"]) == ("REPRODUCED", "ON TRACK", False)
    stdout_of(f"baseline save {results.parent / 'base.json'} --results {results}")


def test_a_forced_run_counts_as_failed_where_its_last_process_failed(record_run: RecordRun, results: Path) -> None:
    old, new = {"python": "3.11"}, {"python": "3.12"}
    for status, environment in (("interrupted", old), ("failed", new)):  # resumed by a newer Python, then failed
        record_run([0.0, 0.0], suite="toy", algo="ppo", task="Catch", status=status, environment=environment)
    full_run(record_run, 1.0, 0, environment=new, force=True)
    assert score_and_seeds(results, "toy", "ppo", "Catch") == (-0.6, 1)
    full_run(record_run, 1.0, 0, environment=old, force=True)
    assert score_and_seeds(results, "toy", "ppo", "Catch") == (1.0, 1)
    assert "FAILED" not in stderr_of(f"check toy --results {results}", 0)


def test_a_seed_that_fails_within_fewer_steps_counts_as_failed_until_its_code_changes(
    record_run: RecordRun, results: Path
) -> None:
    old = {"commit": "that failed"}
    for seed in range(3):
        full_run(record_run, 1.0, seed)
    record_run([0.0, 0.0], seed=3, status="failed", sets=["budget.steps=2000"], environment=old, **TOY)
    assert score_and_seeds(results, "toy", "ppo", "Catch") == (pytest.approx((3 - 0.6) / 4), 4)
    full_run(record_run, 1.0, 3, environment=old)
    assert score_and_seeds(results, "toy", "ppo", "Catch") == (pytest.approx((3 - 0.6) / 4), 4)
    assert "FAILED: seed 3" in stderr_of(f"check toy --results {results}", 5)
    full_run(record_run, 1.0, 3, environment={"commit": "mended"}, force=True)
    assert score_and_seeds(results, "toy", "ppo", "Catch") == (1.0, 4)
    record_run([0.0], seed=3, sets=["budget.steps=2000"], environment={"commit": "mended"}, force=True, **TOY)
    assert score_and_seeds(results, "toy", "ppo", "Catch") == (1.0, 4)
    full_run(record_run, 1.0, 3, environment=old, force=True)
    assert score_and_seeds(results, "toy", "ppo", "Catch") == (pytest.approx((3 - 0.6) / 4), 4)
    full_run(record_run, 1.0, 3, environment={"commit": "mended"}, force=True)
    assert "FAILED" not in stderr_of(f"check toy --results {results}", 0)


def test_a_strict_check_names_seeds_on_other_data(record_run: RecordRun, results: Path) -> None:
    budget = suites.spec("offline", "td3bc", "hopper-medium-v2").budget
    epochs = -(-budget.steps // budget.epoch)
    baseline = str(results.with_name("b.json"))
    for seed in range(5):
        good = seed < 3
        record_run([0.0] * epochs + [2_000.0 * good + seed], seed=seed, data={"sha256": str(good) * 8}, **HOPPER)
        if seed == 2:
            assert run_command(f"baseline save {baseline} --results {results}")[0] == 0
    check = ["check", "offline", "--baseline", baseline, "--results", str(results)]
    assert run_command(check)[0] == 0
    assert "2 runs on other data left out" in stdout_of([*check, "--strict"], 4)


def test_no_imported_evaluation_beyond_the_budget_counts(tmp_path: Path) -> None:
    budget = suites.spec("toy", "ppo", "Catch").budget.steps
    for seed in range(3):
        toy = replace(CURVE, suite="toy", algorithm="ppo", task="Catch", seed=seed)
        imported.write_curves([replace(toy, steps=(0, budget, 9 * budget), returns=(0.0, 0.1, 1.0 + seed))], tmp_path)
        imported.write_curves([replace(toy, seed=3 + seed, steps=(2 * budget,), returns=(1.0,))], tmp_path)
    assert score_and_seeds(tmp_path, "toy", "ppo", "Catch") == pytest.approx((0.1, 3))


def test_a_failed_seed_stays_in_n_wherever_a_forced_run_is_killed(
    record_run: RecordRun, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in count():
        record_run([0.0, 0.0], **TOY, status="failed", force=True)
        if not killed_at(monkeypatch, number, lambda: record_run([], **TOY, status=None, force=True)):
            break
        assert score_and_seeds(results, "toy", "ppo", "Catch")[1] == 1, f"after {number} passes"
        record_run([], **TOY, status=None)
        assert score_and_seeds(results, "toy", "ppo", "Catch")[1] == 1, f"resumed after {number} passes"
    assert number > 6


@pytest.mark.parametrize("jobs", [(), ("--jobs", "1")])
def test_a_forced_run_that_cannot_be_built_leaves_its_record(
    jobs: tuple[str, ...], record_run: RecordRun, results: Path
) -> None:
    folder = record_run([10.0, 20.0], suite="toy", algo="reinforce", task="CartPole-v1")
    (folder / "checkpoint" / "best").mkdir(parents=True)

    def content() -> dict[str, bytes]:
        return {
            p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name not in {".lock", ATTEMPTS, LOG}
        }

    before = content()
    line = ["run", "toy", "reinforce", "CartPole-v1", "--force", "--update-engine", "numpy", *jobs, "--quiet"]
    assert "update_engine=numpy: only" in stderr_of([*line, "--results", str(results)])
    assert (content(), (folder / "checkpoint" / "best").is_dir()) == (before, True)
    assert not list(folder.glob("attempt-*"))


INVERTED = {"suite": "mujoco", "algo": "ppo", "task": "InvertedPendulum-v4"}


@pytest.mark.parametrize("look_count", [0, 1])
@pytest.mark.parametrize("scores", [[300.0, 301.0, 302.0, 301.0, 300.0], [880.0, *[860.0, 870.0, 860.0] * 2, 865.0]])
def test_a_forged_count_of_looks_hides_no_verdict(
    scores: list[float], look_count: int, record_seeds: RecordSeeds, tmp_path: Path
) -> None:
    folder, *_ = record_seeds(*([5.0, score] for score in scores), **INVERTED)
    record_looks(folder.parent, Looks(DESIGN, look_count))
    (row,) = [cell for cell in every_cell(["mujoco"], tmp_path / "results") if cell.measured]
    assert row.verdict.word == "BELOW"
