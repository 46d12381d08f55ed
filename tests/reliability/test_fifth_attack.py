"""A fifth attack: seeds that end badly beside good ones, in the gate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import run_command, stderr_of, stdout_of
from tests.conftest import RecordRun
from tests.reliability.test_forged_records import FULL, OLD, WORLD, full_run


def test_a_check_names_seeds_in_other_versions_and_fails_with_them(record_run: RecordRun, tmp_path: Path) -> None:
    for seed in range(3):
        full_run(record_run, 1.0, seed, environment={"env": WORLD})
    check = ["check", "toy", "--results", str(tmp_path / "results")]
    assert run_command(check)[0] == 0
    full_run(record_run, 0.0, 4, environment={"env": OLD["env"]})
    assert run_command(check)[0] == 0
    assert "1 run in other versions of the environment left out" in stdout_of([*check, "--strict"], 4)
    full_run(record_run, 1.0, 3, status="failed", environment={"env": OLD["env"]})
    assert "toy/ppo/Catch run: FAILED: seed 3" in stderr_of(check, 5)


def test_no_unfinished_seed_hides_behind_a_pooled_verdict(record_run: RecordRun, tmp_path: Path) -> None:
    words = ["table", "mujoco", "--algo", "sac", "--json", "--results", str(tmp_path / "results")]
    for task, score in (("Hopper-v4", 3542.2), ("Walker2d-v4", 5007.0), ("HalfCheetah-v4", 12138.8)):  # documented
        for seed in range(3):
            record_run([0.0, (1.1 + seed / 50) * score], seed=seed, suite="mujoco", algo="sac", task=task)
    (row,) = [row for row in json.loads(run_command(words)[1])["pooled"] if row["kind"] == "full"]
    assert (row["word"], row["cells"]) == ("REPRODUCED", 3)
    record_run([0.0, -9.0], seed=3, suite="mujoco", algo="sac", task="Hopper-v4", status="interrupted")
    (row,) = [row for row in json.loads(run_command(words)[1])["pooled"] if row["kind"] == "full"]
    assert (row["cells"], row["left_out"]) == (2, [])
    code, out, _ = run_command(["check", "mujoco", "--pooled", "--strict", *words[-2:]])
    assert code == 4 and "INCONCLUSIVE mujoco/sac/Hopper-v4 score" in " ".join(out.split())


@pytest.mark.parametrize("status", [None, "interrupted"])
def test_no_seed_short_of_its_budget_passes_a_strict_check_against_a_baseline(
    status: str | None, record_run: RecordRun, tmp_path: Path
) -> None:
    for seed in range(3):
        full_run(record_run, 0.9 + seed / 30, seed)
    baseline, results = str(tmp_path / "b.json"), ["--results", str(tmp_path / "results")]
    assert run_command(["baseline", "save", baseline, *results])[0] == 0
    check = ["check", "toy", "--baseline", baseline, *results, "--strict"]
    assert run_command(check)[0] == 0
    record_run([-1.0, -1.0], seed=3, status=status, **FULL)
    code, out, _ = run_command(check)
    assert code == 4 and "TOO FEW" in out and "1 run incomplete" in out
