"""The runners of other libraries: each family trains for a moment, and its lines are read by ``rlbench import``."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.children import PEERS_PYTHON, ROOT
from rlbench import suites
from rlbench.cli.app import main
from rlbench.records import imported

ON_POLICY = ("budget.epoch=2048", "protocol.episodes=1", "protocol.envs=1")
OFF_POLICY = ("algo.learning_starts=40", "algo.batch=8", "budget.epoch=60", "protocol.episodes=1", "protocol.envs=1")
ATARI = ("task.max_frames=400", "protocol.episodes=1", "protocol.envs=1")
CASES = {
    "mujoco reinforce Hopper-v4": ON_POLICY,
    "mujoco a2c Hopper-v4": ON_POLICY,
    "mujoco ppo Hopper-v4": ON_POLICY,
    "mujoco npg Hopper-v4": ON_POLICY,
    "mujoco trpo Hopper-v4": ON_POLICY,
    "mujoco sac Hopper-v4": OFF_POLICY,
    "mujoco td3 Hopper-v4": OFF_POLICY,
    "mujoco ddpg Hopper-v4": OFF_POLICY,
    "mujoco redq Ant-v4": OFF_POLICY,
    "atari ppo PongNoFrameskip-v4": (*ATARI, "budget.epoch=1000"),
    **{
        f"atari {name} PongNoFrameskip-v4": (*ATARI, "algo.learning_starts=100", "algo.batch=4", "budget.epoch=150")
        for name in ("dqn", "c51", "qrdqn", "iqn", "rainbow")
    },
}


@pytest.mark.skipif(not PEERS_PYTHON.is_file(), reason="benchmarks/peers/setup has not been run")
@pytest.mark.slow
@pytest.mark.parametrize("cell", CASES)
def test_tianshou_trains_the_settings_of_a_row(cell: str, tmp_path: Path) -> None:
    suite, algorithm, task = cell.split()
    steps = next(text.partition("=")[2] for text in CASES[cell] if text.startswith("budget.epoch="))
    words = [str(PEERS_PYTHON), "benchmarks/peers/tianshou_curves.py", suite, algorithm, task, "3", steps]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*words, *CASES[cell]], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=170
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    (line,) = (json.loads(text) for text in done.stdout.splitlines())
    assert (line["seed"], len(line["returns"]), len(line["lengths"])) == (3, 1, 1)
    assert line["steps"] >= int(steps) and line["settings"] != suites.spec(suite, algorithm, task).id
    (tmp_path / "curve.jsonl").write_text(done.stdout)
    assert main(["import", str(tmp_path / "curve.jsonl"), "--results", str(tmp_path / "results")]) == 0
    (folder,) = imported.folders(tmp_path / "results")
    assert imported.read(folder).origin.unknown == ()
