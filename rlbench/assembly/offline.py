"""Build an offline run from its Spec: its data set, checked against the environment of the evaluation, and its ring."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.assembly.components import AlgorithmParts
from rlbench.assembly.device import eval_workers_of, stepping_threads, threads_of
from rlbench.assembly.engine import engine_of, select_engine
from rlbench.assembly.environments import environments
from rlbench.assembly.evaluation import EvaluationSetup, evaluation
from rlbench.buffers.dataset import dataset_ring
from rlbench.config.footprint import SMOKE
from rlbench.config.names import printable
from rlbench.config.offline import DiscreteOfflineConfig, OfflineConfig
from rlbench.config.run import Runtime, Spec
from rlbench.config.tasks import OfflineTask, env_task_of
from rlbench.datasets import catalogue, checksums, loader, recording_reader
from rlbench.datasets.checksums import Seal
from rlbench.datasets.episodes import Dataset, ObsScaler, episodes, fit_obs_scaler, terminated_on_end
from rlbench.datasets.recipes import PREFIX, RECIPES
from rlbench.envs.base import Box, Discrete, EnvInfo, VectorEnv
from rlbench.errors import RefusedFile
from rlbench.evaluation.pool import EvalPool, WorkerConfig
from rlbench.records.machine import available_memory
from rlbench.seeds import Seeds
from rlbench.suites.offline import MUJOCO_ENVS
from rlbench.suites.offline_discrete import RECORDINGS
from rlbench.training import offline as trainer
from rlbench.training.clock import RngState
from rlbench.training.updates import EagerUpdater, MeanMetrics

OBS_WIDTHS = {"Ant-v4": 27}
"""Widths of an environment's observations; D4RL's data sets append contact forces to them, which are all zero."""


class LoadedData(NamedTuple):
    """The data set of a run."""

    data: Dataset
    sha256: str  # of the file; or the origin of a smoke run's data
    normalized: bool = True  # actions lie in [−1, 1]; else they are in the environment's units


def load_data(spec: Spec, task: OfflineTask, runtime: Runtime, seal: Seal | None = None) -> LoadedData:
    """Read the data of a run. A smoke run without a data set records random actions; of a recording it reads a part.

    The file is hashed before HDF5 opens it, since damage could end the process. A ``seal`` of the unchanged file saves
    the second hash.

    Raises:
        UsageError: the data are not found; the message names the folders searched, and what to do.
        RefusedFile: they are damaged, or change before they are read.
    """
    path = source(spec, task, runtime)
    if path is None:
        return LoadedData(_random(task), "random actions")
    file = loader.data_file(path)
    current = seal if seal is not None and checksums.is_unchanged(file, seal) else checksums.verify(file)
    if seal is not None and seal.sha256 != current.sha256:
        raise RefusedFile(f"{file}: was replaced while the run began; run the same command again")
    result = _read(path, spec, task, current.sha256)
    if not checksums.is_unchanged(file, current) and checksums.compute_seal(file).sha256 != current.sha256:
        raise RefusedFile(f"{file}: changed while it was read; run the same command again")
    return result


def _read(path: Path, spec: Spec, task: OfflineTask, sha256: str) -> LoadedData:
    check_identity(task, path)
    if catalogue.is_recording(path):  # a million frames take longer than a smoke run
        max_bytes = available_memory()
        steps = recording_reader.read_steps(path, max_bytes=max_bytes) if spec.smoke else None
        limit = None if steps is None else min(SMOKE, int((~steps.final).sum()))
        return LoadedData(recording_reader.read_recording(path, limit, max_bytes=max_bytes), sha256)
    made_here = "rlbench" in loader.dataset_metadata(path)
    features = OBS_WIDTHS.get(task.world.id)
    data = loader.load_dataset(path, task.data, features=features, max_bytes=available_memory())
    return LoadedData(data, sha256, made_here)


def source(spec: Spec, task: OfflineTask, runtime: Runtime) -> Path | None:
    """The path of a run's data; None if a smoke run has no data set and records its own.

    Raises:
        UsageError: the data are not found.
    """
    if spec.smoke and runtime.dataset is None:
        table = not task.dataset or task.dataset in RECORDINGS
        if table and (not task.dataset or not catalogue.is_present(catalogue.locate(task.dataset))):
            return None
    return catalogue.find(task.data, None if runtime.dataset is None else Path(runtime.dataset))


def build_offline(
    spec: Spec,
    algo: OfflineConfig | DiscreteOfflineConfig,
    parts: AlgorithmParts,
    info: EnvInfo,
    device: torch.device,
    runtime: Runtime,
    seal: Seal | None = None,
) -> trainer.OfflineTrainer:
    """Build the training of an offline run; ``seal`` is the checksum of data that was just verified."""
    data, sha256, obs_transform = _preprocessed(spec, algo, info, runtime, seal)
    if obs_transform is not None:
        obs_transform.normalize_in_place(data.obs)
    generator = Seeds(spec.seed).child("replay").torch(device)
    buffer = dataset_ring(
        data, n_step=algo.n_step, gamma=algo.gamma, generator=generator, device=device, stack=spec.task.stack
    )
    setup = EvaluationSetup(parts.learner, stepping_threads(runtime), parts.eval_explorer, obs_transform=obs_transform)
    moments = None if obs_transform is None else {k: torch.tensor(v) for k, v in obs_transform._asdict().items()}
    config = WorkerConfig(spec.model_dump_json(), threads_of(spec, runtime, device), moments or {})
    eager = EagerUpdater(source=buffer, learner=parts.learner, batch=algo.batch, metrics=MeanMetrics(device))
    engine, workers = engine_of(spec, runtime, device), eval_workers_of(spec, runtime, device)
    return trainer.OfflineTrainer(
        updater=select_engine(eager, engine, learner=parts.learner, sampler=buffer.sampler, generators=(generator,)),
        sampler=buffer.sampler,
        learner=parts.learner,
        rng=RngState(device if device.type == "cuda" else None),
        evaluate=lambda epoch: evaluation(spec, info, setup, device, epoch),
        eval_pool=EvalPool(parts.learner.policy_net(), config, max_workers=workers, env_timeout=runtime.env_timeout),
        budget=spec.budget,
        schedules=parts.schedules,
        data=trainer.DatasetIdentity(sha256, None if moments is None else {**moments}),
    )


def _preprocessed(
    spec: Spec, algo: OfflineConfig | DiscreteOfflineConfig, info: EnvInfo, runtime: Runtime, seal: Seal | None
) -> tuple[Dataset, str, ObsScaler | None]:
    """The data with scaled rewards, the SHA-256 of their file, and the normalization of observations.

    With a ``return_span`` the best episode's return lies that far above the worst's.
    """
    if not isinstance(spec.task, OfflineTask):
        raise TypeError(spec.task)
    data, sha256, normalized = load_data(spec, spec.task, runtime, seal)
    data = check_compatibility(spec.task, data, info, normalized=normalized)
    if not isinstance(algo, OfflineConfig):
        return data, sha256, None
    if algo.terminate_on_end:
        data = terminated_on_end(data)
    if algo.return_span is not None:
        returns = episodes(data).returns
        if (width := float(returns.max() - returns.min())) > 0:
            data = data._replace(reward=(data.reward * (algo.return_span / width)).astype(np.float32))
    return data, sha256, fit_obs_scaler(data) if algo.normalize_obs else None


def _random(task: OfflineTask) -> Dataset:
    envs = environments(task.world, seeds=(0,), training=False)
    try:
        draw, actions = np.random.default_rng(0), envs.info.actions
        if isinstance(actions, Discrete):
            return _play(envs, draw.integers(actions.n, size=(SMOKE, 1)))
        return _play(envs, draw.uniform(-1, 1, (SMOKE, 1, *actions.low.shape)).astype(np.float32))
    finally:
        envs.close()


def _play(envs: VectorEnv, actions: NDArray[np.float32] | NDArray[np.int64]) -> Dataset:
    """The steps of one env under actions ``[N, 1, A]`` or ``[N, 1]``."""
    obs, rows = envs.reset(), []
    for number, action in enumerate(actions, 1):
        envs.send(action)
        step = envs.recv()
        terminated, truncated = step.terminated[0], step.truncated[0]
        rows.append((obs[0], action[0], step.reward[0], terminated, truncated, False))
        if terminated or truncated or number == len(actions):
            rows.append((step.obs[0], np.zeros_like(action[0]), 0.0, False, False, True))
            envs.send(action)  # its observation begins the next episode, or is not used
            step = envs.recv()
        obs = step.obs
    columns = zip(*rows, strict=True)
    dtypes = (envs.info.obs_dtype, actions.dtype, np.float32, np.bool_, np.bool_, np.bool_)
    return Dataset(*(np.asarray(column, dtype) for column, dtype in zip(columns, dtypes, strict=True)))


def check_identity(task: OfflineTask, path: Path) -> None:
    """Refuse a data set whose metadata or name say that it is not the task's.

    Raises:
        RefusedFile: it was recorded in another environment, is another data set than the task's, or was generated by
            another version of its recipe.
    """
    metadata, expected_env = loader.dataset_metadata(path), env_task_of(task).id
    name, env_id = metadata.get("name", ""), recorded_on(metadata, task.data, path) or expected_env
    otherwise = f"learn from it with --task {env_id} --dataset {path}"
    if env_id != expected_env:
        raise RefusedFile(f"{path}: was recorded on {env_id}, not {expected_env}; {otherwise}")
    # a run on a generated data set never counts as a run on D4RL's
    is_generated = name.startswith(PREFIX) and name != task.data
    if task.dataset and not (is_generated and task.data in catalogue.d4rl()):
        return
    if is_generated or (name not in {"", task.data} and catalogue.MINARI_NAME.fullmatch(task.data)):
        raise RefusedFile(f"{path}: is {printable(name)}, not {task.data}; {otherwise}")
    recipe = RECIPES.get(name)
    if recipe is not None and metadata.get("recipe", recipe.to_json()) != recipe.to_json():
        again = f"make it again: rlbench data generate {name} --force"
        raise RefusedFile(
            f"{path}: was made by another recipe of that name than this version's; {again}, or {otherwise}"
        )
    if name != task.data and not catalogue.has_name(path, task.data):
        raise RefusedFile(
            f"{path}: is not called as {task.data} is; if it is that set, name it "
            f"{catalogue.locate(task.data).path.name}, "
            f"else {otherwise}"
        )


def recorded_on(metadata: Mapping[str, str], name: str, path: Path) -> str | None:
    """The environment of a data set by its metadata, Minari's metadata or D4RL's name; None if none names it.

    Policies of Minari's and D4RL's data are evaluated on version 4 of MuJoCo's tasks, whichever version they were
    recorded on.
    """
    if "task" in metadata:
        return metadata["task"]
    if "env_id" in metadata:
        current = re.sub(r"-v\d+$", "-v4", metadata["env_id"])
        return current if current in MUJOCO_ENVS else metadata["env_id"]
    file_name = path.resolve().name
    by_file = (entry for entry in catalogue.d4rl().values() if file_name in {entry.file, f"{entry.name}.hdf5"})
    entry = catalogue.d4rl().get(name) or next(by_file, None)
    return None if entry is None else entry.env_id


def check_compatibility(task: OfflineTask, data: Dataset, info: EnvInfo, *, normalized: bool) -> Dataset:
    """Data in the environment's units: actions in [−1, 1] unless already ``normalized``.

    Raises:
        RefusedFile: their shapes or actions are not those of the environment.
    """
    if isinstance(info.actions, Discrete):
        _check_discrete(task, data, info, info.actions.n)
        return data
    if data.obs.ndim != 2 or data.action.ndim != 2:
        raise RefusedFile(
            f"{task.data}: holds discrete actions, {task.world.id} has continuous ones; choose another task"
        )
    theirs = data.obs.shape[1], data.action.shape[1]
    ours = info.obs_shape[0], len(info.actions.low)
    if theirs != ours:
        raise RefusedFile(
            f"{task.data}: observations and actions of {theirs[0]} and {theirs[1]} dimensions, "
            f"{task.world.id} has {ours[0]} and {ours[1]}; choose the task that was recorded"
        )
    return data if normalized else _normalize_actions(data, info.actions)


def _normalize_actions(data: Dataset, box: Box) -> Dataset:
    """The data with actions mapped from the environment's bounds to [−1, 1]."""
    center, half = (box.low + box.high) / 2, (box.high - box.low) / 2
    if not center.any() and (half == 1).all():
        return data
    return data._replace(action=((data.action - center) / half).astype(np.float32))


def _check_discrete(task: OfflineTask, data: Dataset, info: EnvInfo, count: int) -> None:
    """Refuse actions or frames that the environment, which has discrete actions, does not have."""
    if data.action.ndim != 1:
        raise RefusedFile(
            f"{task.data}: holds continuous actions, {task.world.id} has discrete ones; choose another task"
        )
    theirs, ours = (data.obs.shape[1:], data.obs.dtype), (info.obs_shape, np.dtype(info.obs_dtype))
    if theirs != ours:
        raise RefusedFile(
            f"{task.data}: observations of {theirs[1]} {list(theirs[0])}, {task.world.id} shows {ours[1]} "
            f"{list(ours[0])}; choose the task that was recorded"
        )
    low, high = int(data.action.min()), int(data.action.max())
    if low < 0 or high >= count:
        raise RefusedFile(
            f"{task.data}: actions {low} to {high}, {task.world.id} has 0 to {count - 1}; choose the task recorded"
        )
