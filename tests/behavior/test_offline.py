"""Offline runs: from a data file to a record, with resumes, and refused without their data."""

import os
from contextlib import nullcontext
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from rlbench import checkpoint, suites
from rlbench.assembly.assemble import build
from rlbench.assembly.environments import describe
from rlbench.assembly.offline import load_data
from rlbench.cli.app import main
from rlbench.cli.dataset_option import Data, check_data, refuse_other_data
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.datasets import checksums, loader
from rlbench.datasets.checksums import seal_of
from rlbench.datasets.d4rl import read_d4rl
from rlbench.datasets.episodes import Dataset, episodes
from rlbench.datasets.recipes import RECIPES
from rlbench.errors import RefusedFile, UsageError
from rlbench.records.store import folder_of, read_record
from rlbench.records.types import Epoch
from rlbench.run import run
from rlbench.signals import Stop
from rlbench.training.offline import OfflineTrainer
from tests.conftest import Patch
from tests.forging import locked, outcome_of
from tests.reliability import run_one
from tests.slow import slow_but

SMALL = (
    "budget.steps=120", "budget.epoch=40", "budget.segment=50", "algo.batch=16", "algo.widths=16,16",
    "protocol.episodes=2", "protocol.envs=2",
)  # fmt: skip
ALGORITHMS = tuple(suites.algorithms("offline"))


def spec_of(algorithm: str, *changes: str, task: str = "rlb-hopper-medium") -> Spec:
    return apply_settings(suites.spec("offline", algorithm, task), [parse(c) for c in (*SMALL, *changes)])


def write(path: Path, *, seed: int = 0, steps: int = 300) -> Path:
    """A file in D4RL's layout with episodes of 25 steps, every second one terminated."""
    path.parent.mkdir(exist_ok=True)
    draw = np.random.default_rng(seed)
    obs = draw.standard_normal((steps + 1, 11)).astype(np.float32)
    ends = np.arange(1, steps + 1) % 25 == 0
    with h5py.File(path, "w") as file:
        file["observations"], file["next_observations"] = obs[:-1], obs[1:]
        file["actions"] = draw.uniform(-1, 1, (steps, 3)).astype(np.float32)
        file["rewards"] = draw.standard_normal(steps).astype(np.float32)
        file["terminals"] = ends & (np.arange(steps) // 25 % 2 == 0)
        file["timeouts"] = ends & (np.arange(steps) // 25 % 2 == 1)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "rlb-hopper-medium.hdf5")


def ending(spec: Spec, results: Path) -> tuple[object, ...]:
    return run_one.ending(folder_of(spec, results))


def carry(spec: Spec, results: Path, data: Path, stop_after: int | None = None) -> int:
    return run_one.carry(spec, results, stop_after, runtime=run_one.QUIET.model_copy(update={"dataset": str(data)}))


@pytest.mark.parametrize("algorithm", slow_but(ALGORITHMS, 3))
def test_run_counts_gradient_steps_and_evaluates_after_every_epoch(algorithm: str, data: Path, tmp_path: Path) -> None:
    spec = spec_of(algorithm)
    carry(spec, tmp_path, data)
    record = read_record(folder_of(spec, tmp_path))
    assert [e.updates for e in record.epochs] == [0, 40, 80, 120]
    assert [e.env_steps for e in record.epochs] == [0, 0, 0, 0]
    assert all(e.collected is None and e.evaluated is not None for e in record.epochs)
    assert [e.updated and e.updated.count for e in record.epochs] == [None, 40, 40, 40]
    assert (record.outcome.updates, record.outcome.steps, record.outcome.status) == (120, 120, "done")


REFERENCED = (
    ("il", "hopper-medium-v2"), ("td3bc", "hopper-medium-v2"), ("iql", "hopper-medium-v2"),
    ("iql", "hopper-medium-expert-v2"), ("cql", "hopper-medium-v2"), ("bcq", "hopper-expert-v2"),
    ("td3bc", "hopper-random-v2"), ("iql", "hopper-random-v2"),
    ("cql", "hopper-expert-v2"), ("td3bc", "hopper-expert-v2"), ("iql", "hopper-expert-v2"),
)  # fmt: skip
"""A cell of each kind whose settings are CORL's, robomimic's or OfflineRL-Lib's."""


@pytest.mark.parametrize(
    ("algorithm", "task"), [*slow_but(REFERENCED[:7], 1), *slow_but(REFERENCED[7:], mark=pytest.mark.soak)]
)
def test_cell_with_reference_settings_resumes_exactly(algorithm: str, task: str, tmp_path: Path) -> None:
    data = write(tmp_path / f"{task}.hdf5")
    cloning = suites.spec("offline", algorithm, task).algo.method.model_dump().get("bc_steps")
    spec = spec_of(algorithm, *(["algo.method.bc_steps=80"] if cloning else []), task=task)
    records = carry(spec, tmp_path / "whole", data)
    golden = ending(spec, tmp_path / "whole")
    carry(spec, tmp_path / "stopped", data, records // 2)
    carry(spec, tmp_path / "stopped", data)
    assert ending(spec, tmp_path / "stopped") == golden


def test_other_seeds_draw_other_batches_and_other_networks(data: Path, tmp_path: Path) -> None:
    ends = []
    for seed in (0, 0, 1):
        folder = tmp_path / str(len(ends))
        spec = spec_of("td3bc", f"seed={seed}")
        carry(spec, folder, data)
        ends.append(ending(spec, folder))
    assert ends[0] == ends[1] != ends[2]


def test_a_checkpoint_made_with_other_data_is_refused(data: Path, tmp_path: Path) -> None:
    spec = spec_of("il")
    carry(spec, tmp_path, data, stop_after=20)
    assert checkpoint.exists(folder_of(spec, tmp_path) / "checkpoint" / "resume")
    with pytest.raises(RefusedFile, match="made with other data"):
        carry(spec, tmp_path, write(tmp_path / "rlb-hopper-medium.hdf5", seed=1))
    carry(spec, tmp_path, data)
    assert outcome_of(folder_of(spec, tmp_path)).status == "done"


def test_generated_set_is_never_taken_for_another(tmp_path: Path) -> None:
    own = write(tmp_path / "own.hdf5")
    with h5py.File(own, "a") as file:
        file.attrs["name"] = "rlb-hopper-expert"
    runtime = Runtime(device="cpu", threads=1, dataset=str(own))
    for task in ("hopper-medium-v2", "rlb-hopper-medium"):
        spec = spec_of("il", task=task)
        with pytest.raises(RefusedFile, match=f"is rlb-hopper-expert, not {task}; .*--task Hopper-v4"):
            load_data(spec, spec.task, runtime)
    for spec in (spec_of("il", task="rlb-hopper-expert"), spec_of("il", "task.dataset=own-1", task="Hopper-v4")):
        assert (~load_data(spec, spec.task, runtime).data.final).sum() == 300


@pytest.mark.parametrize("task", ["hopper-medium-v2", "rlb-hopper-medium", "mujoco/hopper/medium-v0"])
def test_file_of_another_name_is_not_taken_for_the_set(task: str, tmp_path: Path) -> None:
    """Nothing in D4RL's files says which one they are: a row of the table must not hold whatever was at hand."""
    runtime = Runtime(device="cpu", threads=1, dataset=str(write(tmp_path / "hopper_expert-v2.hdf5")))
    spec = spec_of("il", task=task)
    with pytest.raises(RefusedFile, match=rf"is not called as {task} is; .*--task Hopper-v4"):
        load_data(spec, spec.task, runtime)
    spec = spec_of("il", "task.dataset=mine-1", task="Hopper-v4")
    assert (~load_data(spec, spec.task, runtime).data.final).sum() == 300


def test_file_is_hashed_once_unless_it_changes(data: Path, monkeypatch: Patch) -> None:
    hashed: list[Path] = []
    measure = checksums.compute_seal

    def count_hash(path: Path, url: str | None = None) -> checksums.Seal:
        hashed.append(path)
        return measure(path, url)

    monkeypatch.setattr(checksums, "compute_seal", count_hash)
    spec, runtime = spec_of("il"), Runtime(device="cpu", threads=1, dataset=str(data))
    check = check_data(spec, runtime)
    assert check is not None and hashed == [data]
    build(spec, runtime, describe(spec), check.seal)
    assert hashed == [data]
    os.utime(data, ns=(0, check.seal.modified + 1))
    assert load_data(spec, spec.task, runtime, check.seal).sha256 == check.seal.sha256
    load_data(spec, spec.task, runtime)
    assert hashed == [data] * 3


@pytest.mark.parametrize("task", ["Hopper-v4", "hopper-medium-v2"])
def test_file_that_is_replaced_after_the_command_began_is_refused(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "hopper-medium-v2.hdf5")
    option = Data(str(data))
    spec = suites.spec("offline", "td3bc", task, dataset=option.name("offline", task, smoke=False))
    runtime = Runtime(device="cpu", dataset=str(data), dataset_sha256=option.sha256)
    assert check_data(spec, runtime) is not None
    checksums.remove_seal(data)
    write(data, seed=1)
    with pytest.raises(RefusedFile, match="was replaced since this command began"):
        check_data(spec, runtime)
    assert Data(str(data), option.sha256).name("offline", task, smoke=False) == getattr(spec.task, "dataset", None)
    assert Data(".", "ab" * 32).name("offline", "Hopper-v4", smoke=False) == f"{Path.cwd().name}-abababab"
    argv = ["run", "offline", "td3bc", task, "--dataset", str(data), "--sha256", str(option.sha256), "--smoke"]
    assert main([*argv, "--results", str(tmp_path / "results"), "--json"]) == 2
    assert "was replaced since this command began" in capsys.readouterr().out


def test_epochs_on_other_data_are_not_replaced_without_a_checkpoint(data: Path, tmp_path: Path) -> None:
    spec, runtime = spec_of("il"), run_one.QUIET.model_copy(update={"dataset": str(data)})
    for sha256, expectation in (
        ("a", nullcontext()),
        ("b", pytest.raises(RefusedFile, match="another data file than b")),
    ):
        store = locked(spec, tmp_path, {"data": {"sha256": sha256}})
        with expectation:
            next(record for record in run(spec, runtime, store, Stop()) if isinstance(record, Epoch))
        store.release()


@pytest.mark.parametrize("moment", ["began", "read"])
def test_file_that_changes_before_it_is_read_is_refused(moment: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """The record names the former file; nothing else would tell that the run learned from another."""
    path = write(tmp_path / "rlb-hopper-medium.hdf5")
    spec, runtime, read = spec_of("il"), Runtime(device="cpu", dataset=str(path)), loader.load_dataset
    seal = seal_of(path)

    def replace(*arguments, **options) -> Dataset:
        write(path, seed=1)
        return read(*arguments, **options)

    if moment == "began":
        checksums.remove_seal(path)
        write(path, seed=1)
    else:
        monkeypatch.setattr(loader, "load_dataset", replace)
    with pytest.raises(RefusedFile, match=f"{moment}; run the same command again"):
        load_data(spec, spec.task, runtime, seal)


def test_finished_run_on_another_file_is_refused(data: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """Also where nobody names a file: the set may have been made again, by another recipe."""
    spec, other = spec_of("il"), write(tmp_path / "new" / "rlb-hopper-medium.hdf5", seed=1)
    locked(spec, tmp_path, {"data": {"file": data.name, "sha256": seal_of(data).sha256}}).release()
    ended = read_record(folder_of(spec, tmp_path))
    refuse_other_data(ended, Runtime(dataset=str(data)))
    for folder in (tmp_path / "none", data.parent):
        monkeypatch.setenv("RLBENCH_DATASETS", str(folder))
        refuse_other_data(ended, Runtime())
    monkeypatch.setenv("RLBENCH_DATASETS", str(other.parent))
    for runtime in (Runtime(), Runtime(dataset=str(other))):
        with pytest.raises(RefusedFile, match=r"learned from rlb-hopper-medium.hdf5 .* is another"):
            refuse_other_data(ended, runtime)


def test_set_of_a_former_versions_recipe_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rlb-hopper-medium.hdf5")
    spec, runtime = spec_of("il"), Runtime(device="cpu", threads=1, dataset=str(path))
    recipe = RECIPES["rlb-hopper-medium"]
    former = recipe.model_copy(update={"seed": 1})
    for recipe_version, is_refused in [(recipe, False), (former, True)]:
        with h5py.File(path, "a") as file:
            file.attrs.update({"name": recipe.name, "task": recipe.task, "recipe": recipe_version.to_json()})
        checksums.remove_seal(path)
        again = "another recipe .* generate rlb-hopper-medium --force"
        with pytest.raises(RefusedFile, match=again) if is_refused else nullcontext():
            load_data(spec, spec.task, runtime)


def test_empty_name_of_data_is_refused() -> None:
    with pytest.raises(UsageError, match="name its environment with --task"):
        Data("").tasks("offline")


def test_the_rate_of_iqls_actor_follows_the_updates_of_the_run(data: Path) -> None:
    trainer = trainer_of(spec_of("iql", "algo.method.lr_decay_steps=80"), data)
    optimizer = trainer.learner.actor_optimizer
    rates = {}
    for record in trainer:
        rates[record.updates] = float(optimizer.param_groups[0]["lr"])
    assert rates[40] <= 3e-4 * 0.9 and rates[80] < rates[40]  # at the stride's first update
    assert trainer.learner.critics_optimizer.param_groups[0]["lr"] == 3e-4


def test_evaluation_does_not_advance_training_generators(data: Path) -> None:
    """The evaluated policy's own noise is another stream: with and without evaluations the weights are the same."""
    spec = spec_of("bcq", "budget.steps=40", "budget.epoch=20")
    other = trainer_of(spec, data)
    list(other)
    unjudged = trainer_of(spec, data)  # what networks draw is seeded anew
    unjudged.updater.run(0, 20)
    unjudged.updater.run(20, 20)
    ones, others = other.learner.policy_net().state_dict(), unjudged.learner.policy_net().state_dict()
    assert all(torch.equal(ones[name], others[name]) for name in ones)


def test_data_by_path_are_named_by_their_checksum(tmp_path: Path) -> None:
    copies = [write(tmp_path / name / "mine.hdf5", seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    names = [Data(str(path)).name("offline", "Hopper-v4", smoke=False) for path in copies]
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("mine-")


def trainer_of(spec: Spec, data: Path) -> OfflineTrainer:
    return build(spec, Runtime(device="cpu", threads=1, dataset=str(data)), describe(spec))


def test_training_and_evaluation_use_the_datas_normalization(data: Path) -> None:
    trainer = trainer_of(spec_of("td3bc"), data)
    with h5py.File(data) as file:
        obs = np.asarray(file["observations"], np.float64)
    batch = trainer.updater.source.sample(4096)
    batch_obs, (mean, spread) = batch.obs.double(), (obs.mean(0), obs.std(0) + 1e-3)
    assert torch.allclose(batch_obs.mean(0), torch.zeros(11, dtype=torch.float64), atol=0.1)
    raw = batch_obs.numpy() * spread + mean
    assert all(np.abs(obs - row).max(1).min() < 1e-5 for row in raw[:50])
    scaled_obs = trainer.evaluate(0).envs.obs_transform(np.float32(obs[:5]))
    assert np.allclose(scaled_obs, (obs[:5] - mean) / spread, atol=1e-5)
    assert trainer_of(spec_of("td3bc-raw"), data).evaluate(0).envs.__class__.__name__ == "MujocoVector"


def test_rewards_are_scaled_by_the_span_of_returns(data: Path) -> None:
    with h5py.File(data) as file:
        reward = np.asarray(file["rewards"], np.float64)
    returns = reward.reshape(-1, 25).sum(1)
    rewards = trainer_of(spec_of("iql"), data).updater.source.sample(2048).reward.double().numpy()
    expected = reward * 1000 / (returns.max() - returns.min())
    assert all(np.abs(expected - value).min() < 1e-3 for value in rewards[:100])
    assert rewards.std() == pytest.approx(expected.std(), rel=0.1)


def test_episode_returns_are_in_order_and_include_unfinished_episodes(tmp_path: Path) -> None:
    """Rows that do not continue one another end an episode too: the seam of two files laid together."""
    flags = np.array([0, 1, 0, 0, 1, 0], bool)
    obs = np.array([[0], [1], [2], [7], [8], [9]], np.float32)  # between 2 and 7 there is a seam
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file["observations"], file["actions"] = obs, np.zeros((6, 1), np.float32)
        file["rewards"] = np.array([1, 2, 4, 8, 16, 32], np.float32)
        file["terminals"] = flags & np.array([1, 1, 1, 0, 0, 0], bool)
        file["timeouts"] = flags & np.array([0, 0, 0, 1, 1, 1], bool)
    assert episodes(read_d4rl(tmp_path / "x.hdf5")).returns.tolist() == [3, 28, 32]
    with h5py.File(tmp_path / "x.hdf5", "a") as file:
        file["next_observations"] = obs + 1
    assert episodes(read_d4rl(tmp_path / "x.hdf5")).returns.tolist() == [3, 4, 24, 32]


def test_cql_clones_behavior_only_in_its_first_gradient_steps(data: Path) -> None:
    trainer = trainer_of(spec_of("cql", "algo.method.bc_steps=80"), data)
    learner = trainer.learner
    cloned = {progress.updates: bool(learner.sac.cloning) for progress in trainer if progress.updates}
    assert cloned == {updates: updates <= 80 for updates in (25, 40, 65, 80, 105, 120)}


def test_time_limit_terminates_if_configured(data: Path) -> None:
    usual, ended = (trainer_of(spec_of("td3bc", f"algo.terminate_on_end={v}"), data) for v in ("false", "true"))
    marks = [trainer.updater.source.terminated.sum().item() for trainer in (usual, ended)]
    assert marks == [6, 12]  # of 12 episodes every second one terminates by itself
