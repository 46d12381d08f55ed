"""A run that is stopped, killed or crashed equals an uninterrupted one, bit for bit."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rlbench import suites
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.records.store import folder_of, read_record
from rlbench.run import run
from rlbench.signals import Stop
from tests.commands import RLBENCH, run_process
from tests.forging import locked, outcome_of
from tests.reliability import run_one
from tests.reliability.run_one import carry
from tests.slow import slow_but

Endings = dict[str, tuple[object, ...]]
CATCH = (
    "budget.steps=1200", "budget.epoch=400", "budget.segment=500", "algo.replay.capacity=400", "algo.replay.n_step=3",
    "algo.learning_starts=100", "algo.batch=8", "algo.updates_per_step=0.1", "protocol.episodes=8", "protocol.envs=8",
)  # fmt: skip
PONG = (  # to start an emulator takes as long as 100 frames, so few are started
    "task.envs=2", "task.max_frames=300", "budget.steps=240", "budget.epoch=120", "budget.segment=100", "algo.batch=4",
    "algo.replay.capacity=400", "algo.learning_starts=60", "protocol.episodes=2", "protocol.envs=2",
)  # fmt: skip


def spec_of(suite: str, task: str, changes: tuple[str, ...], algorithm: str = "dqn") -> Spec:
    return apply_settings(suites.spec(suite, algorithm, task), [parse(c) for c in changes])


def ending(spec: Spec, results: Path) -> tuple[object, ...]:
    assert outcome_of(folder_of(spec, results)).status == "done"
    return run_one.ending(folder_of(spec, results))


def stopped_ends_as_whole(spec: Spec, folder: Path, stops: Callable[[int], Sequence[int]]) -> None:
    for stop in stops(carry(spec, folder / "whole")):
        carry(spec, folder / "stopped", stop_after=stop)
    carry(spec, folder / "stopped")
    assert ending(spec, folder / "stopped") == ending(spec, folder / "whole")


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Endings:
    results = tmp_path_factory.mktemp("golden")
    endings = {}
    for suite, task, changes in (("toy", "Catch", CATCH), ("atari", "PongNoFrameskip-v4", PONG)):
        spec = spec_of(suite, task, changes)
        carry(spec, results)
        endings[task] = ending(spec, results)
    return endings


def test_equal_specs_give_equal_runs_and_other_seeds_do_not(golden: Endings, tmp_path: Path) -> None:
    spec = spec_of("toy", "Catch", CATCH)
    carry(spec, tmp_path)
    assert ending(spec, tmp_path) == golden["Catch"]
    other = spec.model_copy(update={"seed": 1})
    carry(other, tmp_path)
    assert ending(other, tmp_path)[0] != golden["Catch"][0]


@settings(max_examples=8, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(stops=st.lists(st.integers(1, 170), min_size=1, max_size=4))
def test_catch_interrupted_anywhere_equals_an_uninterrupted_run(
    golden: Endings, tmp_path_factory: pytest.TempPathFactory, stops: list[int]
) -> None:
    """Records come after every vector step and in mid-evaluation: each is a place to stop."""
    results, spec = tmp_path_factory.mktemp("stopped"), spec_of("toy", "Catch", CATCH)
    for stop in stops:
        carry(spec, results, stop_after=stop)
    carry(spec, results)
    assert ending(spec, results) == golden["Catch"]


def test_paused_run_equals_an_uninterrupted_one(golden: Endings, tmp_path: Path) -> None:
    spec = spec_of("toy", "Catch", CATCH)
    for until, steps in ((1, 400), (401, 800), (1200, 1200)):
        store = locked(spec, tmp_path)
        list(run(spec, run_one.QUIET, store, Stop(until=until)))
        store.release()
        record, ended = read_record(store.folder), steps == 1200
        assert record.outcome is not None
        assert (record.epochs[-1].steps, record.outcome.steps) == (steps, steps)
        assert record.outcome.status == ("done" if ended else "interrupted")
        assert [record.has_ended(step) for step in (None, steps, steps + 1)] == [ended, True, ended]
    assert ending(spec, tmp_path) == golden["Catch"]


@pytest.mark.parametrize("algorithm", slow_but(["c51", "qrdqn", "iqn", "fqf", "rainbow", "sac"], 0, 4))
def test_every_algorithm_interrupted_in_epoch_and_evaluation_resumes_exactly(tmp_path: Path, algorithm: str) -> None:
    """Draws of networks (fractions, noise) and priorities survive too; the first two stops are in evaluations."""
    spec = spec_of("toy", "Catch", CATCH, algorithm)
    stopped_ends_as_whole(spec, tmp_path, lambda _: (4, 70, 40))


CURIOUS = ("algo.curiosity=curiosity", "algo.curiosity.torso=mlp", "algo.curiosity.hidden=16")
DOORS = (
    "budget.steps=1200", "budget.epoch=400", "budget.segment=500", "algo.rollout_length=8", "protocol.episodes=8",
    "protocol.envs=8",
)  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "task", "changes"),
    slow_but(
        [("dqn", "Catch", (*CATCH, *CURIOUS)), ("sac", "Catch", (*CATCH, *CURIOUS)), ("ppo+icm", "Doors", DOORS)], 2
    ),
)
def test_icm_run_interrupted_in_epoch_and_evaluation_resumes_exactly(
    tmp_path: Path, algorithm: str, task: str, changes: tuple[str, ...]
) -> None:
    spec = spec_of("toy", task, changes, algorithm)
    stopped_ends_as_whole(spec, tmp_path, lambda _: (4, 70, 40))
    last = read_record(folder_of(spec, tmp_path / "whole")).epochs[-1].updated
    assert last is not None and last.means["bonus"] > 0


@pytest.mark.parametrize("remaining", slow_but([1, 2, 5], 1))
def test_a_run_stopped_in_its_last_evaluation_still_closes_its_last_epoch(
    golden: Endings, tmp_path: Path, remaining: int
) -> None:
    spec = spec_of("toy", "Catch", CATCH)
    carry(spec, tmp_path / "stopped", stop_after=carry(spec, tmp_path / "whole") - remaining)
    carry(spec, tmp_path / "stopped")
    assert ending(spec, tmp_path / "stopped") == golden["Catch"]


PENDULUM = (
    "budget.steps=240", "budget.epoch=100", "budget.segment=150", "algo.replay.capacity=200", "algo.replay.n_step=3",
    "algo.learning_starts=50", "algo.batch=8", "protocol.episodes=2", "protocol.envs=2", "protocol.stop=none",
    "task.envs=2",
)  # fmt: skip
HOPPER = (*PENDULUM[:-2], "task.envs=3", "algo.widths=16,16")
REACH = (*HOPPER, "task.steps=20")
ROLLED = (
    "budget.steps=200", "budget.epoch=90", "budget.segment=70", "protocol.episodes=2", "protocol.envs=2", "task.envs=3",
    "protocol.stop=none", "algo.rollout_length=8", "algo.lr_decay_steps=150", "algo.torso.widths=8,8",
)  # fmt: skip
PASSES = ("algo.method.epochs=2", "algo.method.minibatches=3")


@pytest.mark.parametrize(
    ("suite", "algorithm", "task", "changes"),
    slow_but(
        [
            ("toy", "ddpg", "Pendulum-v1", PENDULUM),
            ("toy", "td3", "Pendulum-v1", PENDULUM),
            ("toy", "sac", "Pendulum-v1", PENDULUM),
            ("toy", "redq", "Pendulum-v1", (*PENDULUM, "algo.updates_per_step=1")),
            ("mujoco", "sac", "Hopper-v4", HOPPER),
            ("mujoco", "sac", "Humanoid-v4", HOPPER),
            ("mujoco", "td3", "Walker2d-v4", (*HOPPER, "algo.replay.priority=priority")),
            ("goals", "ddpg+her", "FetchReach-v4", REACH),
            ("mujoco", "ppo", "Hopper-v4", (*ROLLED, *PASSES)),
            ("mujoco", "a2c", "Walker2d-v4", ROLLED),
            ("mujoco", "trpo", "Hopper-v4", ROLLED),
            ("mujoco", "npg", "Walker2d-v4", ROLLED),
            ("mujoco", "reinforce", "Hopper-v4", ROLLED),
            ("toy", "ppo", "Catch", (*ROLLED, *PASSES)),
            ("toy", "a2c", "CartPole-v1", (*ROLLED, "algo.normalize_obs=true")),
        ],
        1,
        13,
    ),
)
def test_continuous_actions_and_rollouts_interrupted_anywhere_resume_exactly(
    tmp_path: Path, suite: str, algorithm: str, task: str, changes: tuple[str, ...]
) -> None:
    """Stops in the first evaluation, an episode, a rollout and across a segment; scales of observations survive too."""
    spec = spec_of(suite, task, changes, algorithm)
    shares = (0.02, 0.3, 0.25, 0.2)
    stopped_ends_as_whole(spec, tmp_path, lambda whole: [max(1, int(share * whole)) for share in shares])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "algorithm", "task", "changes"),
    [
        ("mujoco", "sac", "Hopper-v4", (*HOPPER, "task.env=envpool", "task.async_batch=2")),
        ("atari", "dqn", "PongNoFrameskip-v4", (*PONG, "task.async_batch=2")),
    ],
)
def test_asynchronous_envs_resume_and_record_inexact_steps(
    tmp_path: Path, suite: str, algorithm: str, task: str, changes: tuple[str, ...]
) -> None:
    spec, at = spec_of(suite, task, changes, algorithm), []
    for stop in (0, 110, 170):  # the first before anything was collected
        carry(spec, tmp_path, stop_at=stop)
        outcome = outcome_of(folder_of(spec, tmp_path))
        assert outcome.status == "interrupted"
        assert outcome.inexact == tuple(at[1:])
        at.append(outcome.env_steps)
    carry(spec, tmp_path)
    outcome = outcome_of(folder_of(spec, tmp_path))
    assert outcome.status == "done"
    assert outcome.inexact == tuple(at[1:])
    assert 0 < at[1] < at[2] < spec.budget.steps <= outcome.env_steps < spec.budget.steps + 3


def test_synchronous_envs_resume_exactly(tmp_path: Path) -> None:
    spec = spec_of("toy", "Catch", CATCH)
    carry(spec, tmp_path, stop_after=50)
    carry(spec, tmp_path)
    assert outcome_of(folder_of(spec, tmp_path)).inexact == ()


def test_rainbow_without_noise_dueling_and_priorities_is_c51(tmp_path: Path) -> None:
    plain = ("algo.noisy=none", "algo.dueling=false", "algo.replay.priority=none")
    rainbow, c51 = spec_of("toy", "Catch", (*CATCH, *plain), "rainbow"), spec_of("toy", "Catch", CATCH, "c51")
    assert rainbow.algo == c51.algo
    carry(rainbow, tmp_path)
    carry(c51, tmp_path)
    assert ending(rainbow, tmp_path) == ending(c51, tmp_path)


@pytest.mark.parametrize("stop", slow_but([40, 110, 250], 1))
def test_pong_interrupted_in_mid_game_resumes_exactly(golden: Endings, tmp_path: Path, stop: int) -> None:
    spec = spec_of("atari", "PongNoFrameskip-v4", PONG)
    assert carry(spec, tmp_path, stop_after=stop) == stop
    carry(spec, tmp_path)
    assert ending(spec, tmp_path) == golden["PongNoFrameskip-v4"]


def test_killed_run_resumes_from_its_last_checkpoint(golden: Endings, tmp_path: Path) -> None:
    """The generator is dropped without a word, as SIGKILL would: epochs on disk are ahead of the checkpoint."""
    spec = spec_of("toy", "Catch", CATCH)
    store = locked(spec, tmp_path)
    records = run(spec, Runtime(device="cpu", threads=1), store, Stop())
    while len(store.epochs) < 3:
        next(records)
    folder = store.folder
    store.release()
    assert (folder / "checkpoint" / "resume").is_dir()
    with (folder / "epochs.jsonl").open("a") as file:
        file.write('{"number":3,"torn')
    carry(spec, tmp_path)
    assert ending(spec, tmp_path) == golden["Catch"]
    assert len(read_record(folder).epochs) == 4
    assert not (folder / "checkpoint" / "resume").exists()


def command(results: Path, task: str, changes: tuple[str, ...], suite: str) -> list[str]:
    sets = [word for change in changes for word in ("--set", change)]
    return [*RLBENCH, *f"run {suite} dqn --task {task} --device cpu --results {results}".split(), *sets]


@pytest.mark.slow
@pytest.mark.timeout(900)  # three processes that start torch and the emulators
def test_pong_killed_by_sigkill_resumes_exactly(golden: Endings, tmp_path: Path) -> None:
    spec = spec_of("atari", "PongNoFrameskip-v4", PONG)
    words, folder = command(tmp_path, spec.task.id, PONG, "atari"), folder_of(spec, tmp_path)
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    waited = time.monotonic() + 120
    while not (folder / "checkpoint" / "resume").is_dir():
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < waited, "no checkpoint within two minutes"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = run_process(words, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert "resumes at" in done.stderr
    assert ending(spec, tmp_path) == golden["PongNoFrameskip-v4"]
    again = run_process(words, OMP_NUM_THREADS="1")
    assert again.returncode == 0
    assert "done already" in again.stderr
