"""The runners of other libraries: each algorithm trains briefly, and ``rlbench import`` reads its lines."""

import json
import os
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from benchmarks.children import D3RLPY_PYTHON, PEERS_PYTHON, ROOT
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
    steps = next(text.partition("=")[2] for text in CASES[cell] if text.startswith("budget.epoch="))
    line = peer_record(
        [PEERS_PYTHON, "benchmarks/peers/tianshou_curves.py", *cell.split(), "3", steps, *CASES[cell]], tmp_path
    )
    assert line["steps"] >= int(steps) and line["settings"] != suites.spec(*cell.split()).id


@pytest.mark.skipif(not D3RLPY_PYTHON.is_file(), reason="benchmarks/peers/setup_d3rlpy has not been run")
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["il", "td3bc", "cql", "iql", "bcq", "crr"])
def test_d3rlpy_trains_the_settings_of_a_row(algorithm: str, tmp_path: Path) -> None:
    draw, rows = np.random.default_rng(0), 400
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        file["observations"] = draw.standard_normal((rows, 11), np.float32)
        file["actions"] = draw.uniform(-1, 1, (rows, 3)).astype(np.float32)
        file["rewards"] = draw.standard_normal(rows, np.float32)
        file["terminals"], file["timeouts"] = np.zeros(rows, np.bool_), np.arange(1, rows + 1) % 100 == 0
    words = [algorithm, "rlb-hopper-medium", tmp_path / "data.hdf5", "3", "4"]
    small = ["budget.epoch=4", "algo.batch=8", "protocol.episodes=1", "protocol.envs=1"]
    line = peer_record([D3RLPY_PYTHON, "benchmarks/peers/d3rlpy_curves.py", *words, *small], tmp_path)
    assert (line["steps"], line["data"]) == (4, sha256((tmp_path / "data.hdf5").read_bytes()).hexdigest())


def peer_record(words: Sequence[object], folder: Path) -> dict[str, Any]:
    """The one line of a runner, after ``rlbench import`` has read it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(word) for word in words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    (line,) = (json.loads(text) for text in done.stdout.splitlines())
    assert (line["seed"], len(line["returns"]), len(line["lengths"])) == (3, 1, 1)
    (folder / "curve.jsonl").write_text(done.stdout)
    assert main(["import", str(folder / "curve.jsonl"), "--results", str(folder / "results")]) == 0
    (place,) = imported.curve_folders(folder / "results")
    assert imported.read_curve(place).origin.unknown == ()
    return dict(line)
