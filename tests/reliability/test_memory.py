"""R6: memory is estimated within a tenth, refused if missing, and lack of memory fails no run."""

import json
import re
import sys
from collections import deque
from pathlib import Path
from unittest.mock import Mock

import h5py
import numpy as np
import pytest

import rlbench.run
from rlbench import suites
from rlbench.assembly.assemble import build
from rlbench.cli.app import main
from rlbench.config.footprint import footprint
from rlbench.config.overrides import apply_settings, parse
from rlbench.datasets import rl_unplugged
from rlbench.records.store import read_record
from tests.commands import run_command, run_process, stderr_of
from tests.conftest import Patch
from tests.datasets.rl_unplugged_writer import Transition, shard
from tests.datasets.test_recordings import write
from tests.reliability.broken import words
from tests.reliability.run_one import only_run

EVALUATION = ("protocol.episodes=1", "protocol.envs=1")
ROWS = ("algo.rollout_length=1000", "task.envs=40", "algo.torso.widths=512,512", *EVALUATION)
PONG = ("task.max_frames=200", "protocol.episodes=2", "protocol.envs=2")
REPLAYED_PONG = ("algo.replay.capacity=20000", "algo.learning_starts=120", *PONG)


def measurement(*words: str) -> dict[str, int]:
    """The memory that a process of its own reports."""
    done = run_process([sys.executable, "-m", "tests.reliability.measured", *words], timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def budget(steps: int) -> list[str]:
    return [f"budget.{part}={steps}" for part in ("steps", "epoch", "segment")]


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("suite", "algorithm", "task", "steps", "changes"),
    [
        ("toy", "sac", "Pendulum-v1", 300, ("algo.replay.capacity=1000000", "algo.learning_starts=200", *EVALUATION)),
        ("mujoco", "sac", "HalfCheetah-v4", 600, ("algo.learning_starts=500", *EVALUATION)),
        ("mujoco", "ppo", "HalfCheetah-v4", 2048, EVALUATION),
        ("toy", "npg", "CartPole-v1", 40_000, (*ROWS, "algo.method.critic_steps=1")),
        ("toy", "trpo", "CartPole-v1", 40_000, (*ROWS, "algo.method.critic_steps=1")),
        ("toy", "fqf", "CartPole-v1", 1100, ("algo.batch=8192", *EVALUATION)),
        ("goals", "ddpg+her", "FetchReach-v4", 1200, ("algo.learning_starts=1000", *EVALUATION)),
        *(
            ("atari", algorithm, "PongNoFrameskip-v4", 160, REPLAYED_PONG)
            for algorithm in ("dqn", "rainbow", "iqn", "sac")
        ),
        ("atari", "ppo", "PongNoFrameskip-v4", 1300, PONG),
    ],
)
def test_memory_of_a_run_is_estimated_within_a_tenth(
    suite: str, algorithm: str, task: str, steps: int, changes: tuple[str, ...], tmp_path: Path
) -> None:
    memory = measurement("run", suite, algorithm, task, str(tmp_path), *budget(steps), *changes)
    assert abs(memory["growth"] / memory["foreseen"] - 1) < 0.1, memory


def write_dataset(path: Path, steps: int, features: int = 17, actions: int = 6) -> Path:
    """A file of halfcheetah's widths: episodes of 100 steps, whose last next observation is no row of its own."""
    draw, ends = np.random.default_rng(0), np.arange(1, steps + 1) % 100 == 0
    obs = draw.standard_normal((steps + 1, features), dtype=np.float32)
    following = obs[1:].copy()
    following[ends] += 1
    with h5py.File(path, "w") as file:
        file["observations"], file["next_observations"] = obs[:-1], following
        file["actions"] = draw.uniform(-1, 1, (steps, actions)).astype(np.float32)
        file["rewards"] = draw.standard_normal(steps, dtype=np.float32)
        file["terminals"], file["timeouts"] = ends & (draw.random(steps) < 0.5), ends
    return path


@pytest.mark.soak
@pytest.mark.parametrize(("algorithm", "steps"), [("td3bc", 200_000), ("td3bc", 1_000_000), ("cql", 1_000_000)])
def test_loading_a_million_steps_takes_a_quarter_of_a_gigabyte(algorithm: str, steps: int, tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "rlb-halfcheetah-medium.hdf5", steps)
    memory = measurement("data", str(path), algorithm)
    assert memory["growth"] <= 250 * steps + 12_000_000, memory  # and networks, their libraries and chunks
    if steps == 1_000_000:
        assert memory["growth"] <= 250_000_000
        assert abs(memory["growth"] / memory["foreseen"] - 1) < 0.1, memory


def test_loading_a_state_does_not_double_the_rings_memory() -> None:
    """Resuming a run of a million frames took 14 GB instead of 7."""
    memory = measurement("ring")
    assert memory["growth"] < 0.1 * memory["ring"], memory


READERS = ("records.machine", "cli.sweep", "assembly.offline")
"""Modules that have a name of their own for the function."""


def leave_free(count: int, monkeypatch: Patch) -> None:
    for module in READERS:
        monkeypatch.setattr(f"rlbench.{module}.available_memory", lambda: count)


def test_run_that_does_not_fit_into_memory_is_refused_with_the_number(tmp_path: Path, monkeypatch: Patch) -> None:
    need = footprint(suites.spec("atari", "dqn", "PongNoFrameskip-v4"))
    leave_free(need.total - 1, monkeypatch)
    results = tmp_path / "results"
    arguments = ["run", "atari", "dqn", "--task", "Pong*", "--device", "cpu", "--results", str(results)]
    message = stderr_of(arguments)
    assert f"{need.total / 1e9:.2f} GB" in message
    assert "lower algo.replay.capacity" in message
    assert not results.exists()


def write_empty_dataset(path: Path, rows: int) -> Path:
    """A file of some kilobytes with so many rows of hopper's widths, none of them written."""
    with h5py.File(path, "w") as file:
        for key, shape in {"observations": (rows, 11), "actions": (rows, 3), "rewards": (rows,)}.items():
            file.create_dataset(key, shape, "f4", chunks=(1000, *shape[1:]))
        for key in ("terminals", "timeouts"):
            file.create_dataset(key, (rows,), "?", chunks=(1000,))
    return path


@pytest.mark.parametrize("jobs", [(), ("--jobs", "1")])
def test_memory_of_a_data_set_is_estimated_from_its_rows(
    jobs: tuple[str, ...], tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path))
    path = write_empty_dataset(tmp_path / "rlb-hopper-medium.hdf5", 30_000_000)
    spec = suites.spec("offline", "td3bc", "rlb-hopper-medium")
    assert path.stat().st_size < 10_000
    assert footprint(spec, steps=2_000_000).replay == 2 * footprint(spec).replay
    need = footprint(spec, steps=30_000_000).total
    leave_free(need - 1, monkeypatch)
    command = ["run", "offline", "td3bc", "--task", "rlb-hopper-medium", "--device", "cpu", "--eval-workers", "0"]
    assert f"{need / 1e9:.2f} GB" in stderr_of([*command, "--results", str(tmp_path / "results"), *jobs])
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("verb", ["show", "verify", "import"])
def test_data_sets_larger_than_memory_are_refused_by_every_command(
    verb: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "sets").mkdir()
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path / "sets"))
    path = write_empty_dataset(tmp_path / "rlb-large.hdf5", 30_000)
    leave_free(2_000_000, monkeypatch)
    code, out, error = run_command(["data", verb, str(path), *(["--name", "rlb-large"] if verb == "import" else [])])
    assert code == 2 and f"{path}: holds " in out + error and "2.0 MB free" in out + error


@pytest.mark.parametrize(
    ("words", "copies"), [(("show",), 0), (("verify",), 2), (("subset", "--steps", "3", "--name", "rlb-less"), 2)]
)
def test_rows_of_recorded_play_are_counted_over_all_files(
    words: tuple[str, ...], copies: int, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path))
    write(tmp_path / "own" / "rlb-x.frames", [[(20, True)], [(20, True)]])  # 42 rows in 6 files
    need = 42 * 64 + copies * 4 * 12  # bytes: of the rows, and of the frames of the last file's larger chunk
    for free, code in ((need - 1, 2), (need, 0)):
        leave_free(free, monkeypatch)
        actual, out, error = run_command(["data", words[0], str(tmp_path / "own" / "rlb-x.frames"), *words[1:]])
        assert actual == code, out + error
        assert ("play.00005.segment: with it the set takes 0.0 MB of memory" in out + error) == bool(code)


EMPTY = [np.zeros((84, 84), np.uint8)] * 4


def test_shard_larger_than_memory_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path))
    path = shard(tmp_path / "s.gz", [Transition(EMPTY, 0, 0.0, 1.0, EMPTY, 0, 5)] * 40)
    for free, code in ((40 * rl_unplugged.RECORD, 2), (42 * rl_unplugged.RECORD, 0)):
        leave_free(free, monkeypatch)
        assert (
            "with it the shard takes 0.0 MB of memory" in stderr_of(f"data import rlu {path} --name rlb-x", code)
        ) == bool(code)


def test_equal_records_of_a_shard_are_moved_at_most_twice(monkeypatch: Patch) -> None:
    class Counted(deque[int]):
        moves = 0

        def popleft(self) -> int:
            Counted.moves += 1
            return super().popleft()

    monkeypatch.setattr(rl_unplugged, "deque", Counted)
    n, still = 1_000, [(0,) * 4] * 1_000
    columns = {"action": [0] * n, "next_action": [0] * n, "terminated": [False] * n, "episode": [0] * n}
    assert rl_unplugged.Shard(Path("s"), stacks=still, next_stacks=still, **columns).trajectories() == [list(range(n))]
    assert n <= Counted.moves <= 2 * n


@pytest.mark.parametrize(
    "line",
    [
        *(f"toy dqn Catch protocol.envs={envs} protocol.episodes=1000000000" for envs in (1, 1_000_000_000)),
        "toy dqn Catch task.envs=1000000000 algo.replay.capacity=100000000000 algo.learning_starts=1000000000000",
        "toy dqn Catch algo.torso.widths=" + ",".join(["8"] * 101),
        *("toy sac Catch algo.critics=1000000000", "toy sac Pendulum-v1 algo.critics=1000000000"),
        *(f"toy dqn Catch algo.updates_per_step={10**9}", f"toy ppo Catch algo.method.epochs={10**9}"),
        *(f"atari dqn Pong* task.{name}={10**12}" for name in ("noops", "frame_skip", "max_frames", "size")),
        *(f"toy npg Catch algo.method.{name}={10**9}" for name in ("iterations", "critic_steps", "max_backtracks")),
    ],
)
def test_numbers_that_no_run_survives_are_bounded(line: str, tmp_path: Path) -> None:
    command = f"run {re.sub('(?= [a-z]+[.])', ' --set', line)} --results {tmp_path / 'results'}"
    assert re.search("less than or equal to|at most 100 items", stderr_of(command))
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "line",
    [
        *(f"toy iqn networks algo.head.{name}=1000" for name in ("n_policy_taus", "n_eval_taus")),
        "offline crr networks algo.method.critics=1000",
        "toy dqn emulators protocol.envs=10000 protocol.episodes=10000",
    ],
)
def test_memory_estimate_counts_what_a_setting_enlarges(line: str) -> None:
    suite, algorithm, part, *changes = line.split()
    spec = suites.spec(suite, algorithm, suites.tasks(suite)[0])
    assert getattr(footprint(apply_settings(spec, map(parse, changes))), part) > 2 * getattr(footprint(spec), part)


@pytest.mark.parametrize(
    ("algorithm", "heads", "pairs"),
    [
        *((algorithm, ("n_quantiles=2000",), 2000**2) for algorithm in ("qrdqn", "fqf")),
        ("c51", ("n_atoms=2000",), 2000**2),
        ("iqn", ("n_taus=1000", "n_target_taus=2000"), 1000 * 2000),
    ],
)
def test_memory_estimate_counts_the_pairs_of_a_distributional_loss(
    algorithm: str, heads: tuple[str, ...], pairs: int
) -> None:
    changes = ["algo.batch=32", *(f"algo.head.{head}" for head in heads)]
    spec = apply_settings(suites.spec("toy", algorithm, "Catch"), map(parse, changes))
    assert 3 < footprint(spec).networks / (4 * 32 * pairs) < 5


LIMITED = """
import resource, sys
from rlbench.cli.app import main
import rlbench.run
from rlbench.envs.gymnasium import ClassicVector
from tests.reliability.measured import resident
recv, steps = ClassicVector.recv, [0]
def limited(self):
    steps[0] += 1
    if steps[0] == 250:
        resource.setrlimit(resource.RLIMIT_AS, (resident("VmSize") + 2**20, resource.RLIM_INFINITY))
        {what}
    return recv(self)
ClassicVector.recv = limited
sys.exit(main(sys.argv[1:]))
"""
WANTING = ("import torch; torch.ones(2**30)", "import numpy; numpy.ones(2**30)", "bytearray(2**30)")


@pytest.mark.slow
@pytest.mark.parametrize("what", [WANTING[0], *(pytest.param(w, marks=pytest.mark.soak) for w in WANTING[1:])])
def test_run_out_of_memory_halts_with_a_remedy_and_resumes(what: str, tmp_path: Path) -> None:
    done = run_process([sys.executable, "-c", LIMITED.format(what=what), *words(tmp_path)], timeout=150)
    assert done.returncode == 5, done.stderr
    assert "memory is exhausted" in done.stderr
    assert "run the same command again: it resumes" in done.stderr
    assert "Traceback" not in done.stderr
    assert read_record(only_run(tmp_path)).outcome is None
    assert main(words(tmp_path, "--quiet")) == 0


def test_lack_of_memory_during_setup_halts_the_run(tmp_path: Path, monkeypatch: Patch) -> None:
    error = RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory")
    monkeypatch.setattr(rlbench.run, "build", Mock(side_effect=error))
    assert "halted" in stderr_of(words(tmp_path), 5)
    monkeypatch.setattr(rlbench.run, "build", build)
    assert main(words(tmp_path, "--quiet")) == 0
