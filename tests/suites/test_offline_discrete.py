"""The offline table with discrete actions against its references, transcribed from their scripts."""

from pathlib import Path

import numpy as np
import pytest

from rlbench import suites
from rlbench.assembly import assemble
from rlbench.assembly.environments import describe
from rlbench.assembly.offline import source
from rlbench.cli.app import main
from rlbench.cli.dataset_option import Data
from rlbench.cli.resolve import resolve
from rlbench.config.footprint import footprint
from rlbench.config.offline import (
    DiscreteBCConfig,
    DiscreteBCQConfig,
    DiscreteCQLConfig,
    DiscreteCRRConfig,
    DiscreteOfflineConfig,
)
from rlbench.config.online import DQNHeadConfig, NatureConfig, QRDQNHeadConfig
from rlbench.config.run import Runtime, Spec
from rlbench.config.tasks import OfflineTask
from rlbench.datasets import recording_writer
from rlbench.datasets.recording_format import FINAL, TERMINATED
from rlbench.errors import UsageError
from rlbench.records.store import read_record
from rlbench.training.updates import EagerUpdater

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"


def algo_of(spec: Spec) -> DiscreteOfflineConfig:
    assert isinstance(spec.algo, DiscreteOfflineConfig)
    return spec.algo


@pytest.mark.parametrize(("task", "epochs"), [(PONG, 5), (BREAKOUT, 12)])
@pytest.mark.parametrize("algorithm", ["il", "bcq", "cql", "crr"])
def test_every_cell_has_the_documented_budget_and_network(algorithm: str, task: str, epochs: int) -> None:
    """examples/offline/README.md at v0.4.7: epochs of 10,000 gradient steps, batches of 32, ten test episodes."""
    spec = suites.spec("offline", algorithm, task)
    algo = algo_of(spec)
    assert (spec.budget.steps, spec.budget.epoch) == (epochs * 10_000, 10_000)
    assert (spec.protocol.episodes, spec.protocol.stop, algo.batch, algo.gamma) == (10, None, 32, 0.99)
    assert (algo.torso, algo.hidden, algo.n_step, algo.max_grad_norm) == (NatureConfig(scale=False), 512, 1, None)
    assert spec.protocol.epsilon == (0.001 if algorithm in {"bcq", "cql"} else 0.0)
    assert isinstance(spec.task, OfflineTask)
    assert (spec.task.world.kind, spec.task.stack) == ("atari", 4)


def test_the_settings_are_those_of_the_documented_scripts() -> None:
    """thu-ml/tianshou examples/offline/atari_{il,bcq,cql,crr}.py at v0.4.7."""
    il, bcq, cql, crr = (algo_of(suites.spec("offline", name, PONG)) for name in ("il", "bcq", "cql", "crr"))
    assert (il.method, il.lr) == (DiscreteBCConfig(), 1e-4)
    assert (bcq.method, bcq.lr) == (DiscreteBCQConfig(threshold=0.3, penalty=0.01), 6.25e-5)
    assert (bcq.head, bcq.target_update_interval) == (DQNHeadConfig(huber=1.0), 8_000)
    assert (cql.head, cql.lr, cql.target_update_interval) == (QRDQNHeadConfig(n_quantiles=200), 1e-4, 500)
    assert crr.method == DiscreteCRRConfig(
        mode="exp", beta=1.0, max_weight=20.0, conservative_weight=None, greedy=False
    )
    assert (crr.lr, crr.target_update_interval) == (1e-4, 500)


@pytest.mark.parametrize(
    ("task", "size", "weight"),
    [
        *((PONG, "1e6", 10), (PONG, "1e5", 10), (PONG, "1e4", 1)),
        *((BREAKOUT, "1e6", 50), (BREAKOUT, "1e5", 20), (BREAKOUT, "1e4", 10)),
    ],
)
def test_weight_of_the_gap_follows_the_reference_for_the_sets_size(task: str, size: str, weight: float) -> None:
    name = f"rlb-{'pong' if task == PONG else 'breakout'}-qrdqn-{size}"
    assert Data(name).tasks("offline") == (task,)
    spec = resolve("offline", "cql", task, dataset=Data(name).name("offline", task, smoke=False)).spec
    assert algo_of(spec).method == DiscreteCQLConfig(conservative_weight=weight)
    assert (spec.name, spec.task_folder) == (f"offline/cql/{task}@{name}", f"{task}@{name}")


def test_recording_by_path_has_its_size_in_its_name() -> None:
    spec = resolve("offline", "cql", PONG, dataset="rlb-pong-qrdqn-1e4-01234567").spec
    assert algo_of(spec).method == DiscreteCQLConfig(conservative_weight=1.0)


def test_a_smoke_run_of_a_documented_row_needs_no_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path))
    for dataset in ("rlb-pong-qrdqn-1e5", ""):
        spec = resolve("offline", "bcq", PONG, dataset=dataset, smoke=True).spec
        assert isinstance(spec.task, OfflineTask)
        assert source(spec, spec.task, Runtime()) is None
    spec = resolve("offline", "bcq", PONG, dataset="rlb-pong-qrdqn-1e5").spec
    assert isinstance(spec.task, OfflineTask)
    with pytest.raises(UsageError, match="rlb-pong-qrdqn-1e5: not in"):
        source(spec, spec.task, Runtime())


def test_unknown_data_count_as_a_million_transitions() -> None:
    spec = resolve("offline", "cql", BREAKOUT, dataset="mine-01234567").spec
    assert algo_of(spec).method == DiscreteCQLConfig(conservative_weight=50.0)


def test_environment_without_a_data_set_is_refused() -> None:
    with pytest.raises(UsageError, match="name the data to learn from with --dataset"):
        Data(None).name("offline", PONG, smoke=False)
    assert Data(None).name("offline", PONG, smoke=True) == ""


@pytest.mark.parametrize("algorithm", ["td3bc", "td3bc-raw", "iql"])
@pytest.mark.parametrize("task", [PONG, BREAKOUT, "Catch", "CartPole-v1"])
def test_algorithm_for_continuous_actions_is_refused_in_one_line(algorithm: str, task: str) -> None:
    with pytest.raises(UsageError, match=rf"^offline/{algorithm}: cannot play {task}[^\n]{{0,400}}$"):
        suites.spec("offline", algorithm, task)


def test_memory_counts_each_frame_once() -> None:
    sizes = {
        size: footprint(resolve("offline", "bcq", PONG, dataset=f"rlb-pong-qrdqn-{size}").spec).replay
        for size in ("1e6", "1e5", "1e4")
    }
    assert sizes == {"1e6": 7_075_000_000, "1e5": 707_500_000, "1e4": 70_750_000}
    assert footprint(resolve("offline", "bcq", PONG, smoke=True).spec).replay == 2_000 * 7_075


def test_smoke_run_shortens_evaluation_episodes() -> None:
    spec = resolve("offline", "bcq", PONG, smoke=True).spec
    assert isinstance(spec.task, OfflineTask)
    assert spec.task.world.kind == "atari"
    assert spec.task.world.max_frames == 2_000
    assert spec.budget.steps == 200


@pytest.mark.parametrize("algorithm", ["il", "bcq", "cql", "crr"])
def test_a_smoke_run_records_its_own_data_and_says_so(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "offline", algorithm, "--task", "Catch", "--smoke", "--device", "cpu"]) == 0
    (folder,) = Path("results").glob(f"offline/{algorithm}/Catch/*/seed=0")
    record = read_record(folder)
    assert record.spec.smoke
    assert "data" not in record.environment
    metrics = ["actor_loss", "error"] if algorithm == "il" else ["extra", "loss", "q"]
    assert [epoch.updated and sorted(epoch.updated.means) for epoch in record.epochs[1:]] == [metrics] * 2


def test_recorded_games_reach_the_learner_unchanged(tmp_path: Path) -> None:
    """Stacks of four frames of one game, the first repeated, and points as they were: nothing is clipped."""
    writer, points = recording_writer.RecordingWriter(tmp_path / "rlb-x.frames"), [7.0, 0.0, -4.0, 1.0, 0.0]
    for game in range(2):
        for number, reward in enumerate(points):
            frame = np.full((84, 84), 100 * game + number + 1, np.uint8)
            writer.add(recording_writer.row(0, frame, number % 4, reward, TERMINATED * (number == 4)))
        writer.add(recording_writer.row(0, np.full((84, 84), 100 * game + 6, np.uint8), 0, 0.0, FINAL))
    writer.flush()
    recording_writer.finish(tmp_path / "rlb-x.frames", writer.digests, {"task": BREAKOUT})
    spec = resolve("offline", "bcq", BREAKOUT, dataset="x-01234567").spec
    run = assemble.build(spec, Runtime(device="cpu", dataset=str(tmp_path / "rlb-x.frames")), describe(spec))
    assert isinstance(run.updater, EagerUpdater)
    batch = run.updater.source.sample(200)
    assert batch.obs.shape == batch.next_obs.shape == (200, 4, 84, 84)
    batches = {}
    for obs, led_to, reward, discount in zip(batch.obs, batch.next_obs, batch.reward, batch.discount, strict=True):
        batches[tuple(obs[:, 0, 0].tolist())] = (led_to[:, 0, 0].tolist(), reward.item(), round(discount.item(), 4))
    expected = {}
    for first in (1, 101):
        stack_obs = [first] * 3 + [first + k for k in range(6)]
        for k, reward in enumerate(points):
            expected[tuple(stack_obs[k : k + 4])] = (stack_obs[k + 1 : k + 5], reward, 0.0 if k == 4 else 0.99)
    assert batches == expected
