"""Build an offline run from its Spec: the data set, its ring, and the evaluation of its policies."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.algorithms.base import Compiler
from rlbench.assembly import offline_continuous, offline_discrete
from rlbench.assembly.components import AlgorithmParts
from rlbench.assembly.dataset_compatibility import check_compatibility, check_identity
from rlbench.assembly.device import eval_workers_of, stepping_threads, threads_of
from rlbench.assembly.engine import compiler_of, engine_of, select_engine
from rlbench.assembly.environments import environments
from rlbench.assembly.evaluation import EvaluationSetup, evaluation
from rlbench.buffers.dataset import dataset_ring
from rlbench.config.footprint import SMOKE
from rlbench.config.offline import OfflineConfig
from rlbench.config.offline_discrete import DiscreteOfflineConfig
from rlbench.config.run import Runtime, Spec
from rlbench.config.tasks import OfflineTask
from rlbench.datasets import checksums, loader, locations, recording_reader
from rlbench.datasets.checksums import Seal
from rlbench.datasets.episodes import ObsScaler, episodes, fit_obs_scaler, terminated_on_end
from rlbench.datasets.types import Dataset
from rlbench.envs.base import Discrete, EnvInfo, VectorEnv
from rlbench.errors import RefusedFile
from rlbench.evaluation.pool import EvalPool, WorkerConfig
from rlbench.records.machine import available_memory
from rlbench.seeds import Seeds
from rlbench.suites.offline_discrete import RECORDINGS
from rlbench.training import offline as trainer
from rlbench.training.clock import RngState
from rlbench.training.updates import EagerUpdater, MeanMetrics


class Experience(NamedTuple):
    """The data set of a run."""

    data: Dataset
    sha256: str  # of the file; or the origin of a smoke run's data
    normalized: bool = True  # actions lie in [−1, 1]; else they are in the environment's units


def experience(spec: Spec, task: OfflineTask, runtime: Runtime, seal: Seal | None = None) -> Experience:
    """Read the data of a run; a smoke run without a data set records random actions, and reads few recorded frames.

    The file is hashed before HDF5 opens it, since damage could end the process. A ``seal`` of the unchanged file saves
    the second hash.

    Raises:
        UsageError: the data are not found; the message names the folders searched, and what to do.
        RefusedFile: they are damaged, or change before they are read.
    """
    path = source(spec, task, runtime)
    if path is None:
        return Experience(_random(task), "random actions")
    file = loader.data_file(path)
    checked = seal if seal is not None and checksums.is_unchanged(file, seal) else checksums.verify(file)
    if seal is not None and seal.sha256 != checked.sha256:
        raise RefusedFile(f"{file}: was replaced while the run began; run the same command again")
    result = _read(path, spec, task, checked.sha256)
    if not checksums.is_unchanged(file, checked):
        raise RefusedFile(f"{file}: changed while it was read; run the same command again")
    return result


def _read(path: Path, spec: Spec, task: OfflineTask, sha256: str) -> Experience:
    check_identity(task, path)
    if recording_reader.is_recording(path):  # a million frames take longer than a smoke run
        max_bytes = available_memory()
        steps = recording_reader.read_steps(path, max_bytes=max_bytes) if spec.smoke else None
        limit = None if steps is None else min(SMOKE, int((~steps.final).sum()))
        return Experience(recording_reader.read_recording(path, limit, max_bytes=max_bytes), sha256)
    made_here = "rlbench" in loader.dataset_metadata(path)
    data = loader.load_dataset(path, task.data, deduplicate=True, max_bytes=available_memory())
    return Experience(data, sha256, made_here)


def source(spec: Spec, task: OfflineTask, runtime: Runtime) -> Path | None:
    """The path of a run's data; None if a smoke run has no data set and records its own.

    Raises:
        UsageError: the data are not found.
    """
    if spec.smoke and runtime.dataset is None:
        table = not task.dataset or task.dataset in RECORDINGS
        if table and (not task.dataset or not locations.is_present(locations.locate(task.dataset))):
            return None
    return locations.find(task.data, None if runtime.dataset is None else Path(runtime.dataset))


def build_offline(
    spec: Spec,
    algo: OfflineConfig | DiscreteOfflineConfig,
    info: EnvInfo,
    device: torch.device,
    runtime: Runtime,
    seal: Seal | None = None,
) -> trainer.OfflineTrainer:
    """Build the training of an offline run; ``seal`` is the checksum of data that was just verified."""
    seeds, parts = Seeds(spec.seed), offline_parts_of(spec, algo, info, device, compiler_of(spec, runtime, device))
    dataset = _compatible_data(spec, info, runtime, seal)
    data, scale = _preprocess(algo, dataset.data)
    normalized_in_place = scale is not None and data.final is not None and scale.normalize_in_place(data.obs)
    generator = seeds.child("replay").torch(device)
    buffer = dataset_ring(
        data,
        n_step=algo.n_step,
        gamma=algo.gamma,
        generator=generator,
        device=device,
        scale=None if normalized_in_place else scale,
        stack=spec.task.stack,
    )
    setup = EvaluationSetup(parts.learner, stepping_threads(runtime), parts.eval_explorer, scale=scale)
    normalization = {} if scale is None else {part: torch.tensor(getattr(scale, part)) for part in scale._fields}
    config = WorkerConfig(spec.model_dump_json(), threads_of(spec, runtime, device), normalization)
    eager = EagerUpdater(source=buffer, learner=parts.learner, batch=algo.batch, metrics=MeanMetrics(device))
    engine, max_workers = engine_of(spec, runtime, device), eval_workers_of(spec, runtime, device)
    return trainer.OfflineTrainer(
        updater=select_engine(eager, engine, learner=parts.learner, sampler=buffer.sampler, generators=(generator,)),
        sampler=buffer.sampler,
        learner=parts.learner,
        rng=RngState(device if device.type == "cuda" else None),
        evaluate=lambda epoch: evaluation(spec, info, setup, device, epoch),
        eval_pool=EvalPool(parts.learner.policy(), config, max_workers=max_workers, env_timeout=runtime.env_timeout),
        budget=spec.budget,
        schedules=parts.schedules,
        data=trainer.DatasetIdentity(dataset.sha256, None if scale is None else {**normalization}),
    )


def _compatible_data(spec: Spec, info: EnvInfo, runtime: Runtime, seal: Seal | None) -> Experience:
    """The data of a run, checked against its environment."""
    if not isinstance(spec.task, OfflineTask):
        raise TypeError(spec.task)
    dataset = experience(spec, spec.task, runtime, seal)
    return dataset._replace(data=check_compatibility(spec.task, dataset.data, info, normalized=dataset.normalized))


def offline_parts_of(
    spec: Spec,
    algo: OfflineConfig | DiscreteOfflineConfig,
    info: EnvInfo,
    device: torch.device,
    compiler: Compiler | None = None,
) -> AlgorithmParts:
    """The parts of an algorithm that never explores."""
    if isinstance(algo, OfflineConfig):
        return offline_continuous.continuous_parts(spec.name, algo, info, device, compiler)
    return offline_discrete.discrete_parts(spec, algo, info, device, compiler)


def _preprocess(algo: OfflineConfig | DiscreteOfflineConfig, data: Dataset) -> tuple[Dataset, ObsScaler | None]:
    """The data with scaled rewards, and the normalization of observations; data with discrete actions unchanged."""
    if not isinstance(algo, OfflineConfig):
        return data, None
    if algo.terminate_on_end:
        data = terminated_on_end(data)
    return _scale_rewards(data, algo.return_span), fit_obs_scaler(data) if algo.normalize_obs else None


def _scale_rewards(data: Dataset, span: float | None) -> Dataset:
    """The data with rewards scaled so that the best episode's return lies ``span`` above the worst's."""
    if span is None:
        return data
    returns = episodes(data).returns
    width = float(returns.max() - returns.min()) if len(returns) else 0.0
    if width <= 0:
        return data
    return data._replace(reward=(data.reward * (span / width)).astype(np.float32))


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
    obs, observations, led_to, answers = envs.reset(), [], [], []
    for action in actions:
        envs.send(action)
        step = envs.recv()
        observations.append(obs[0])
        led_to.append(step.obs[0])
        answers.append((step.reward[0], step.terminated[0], step.truncated[0]))
        obs = step.obs
        if step.terminated[0] or step.truncated[0]:
            envs.send(action)  # is not carried out: the next episode begins
            obs = envs.recv().obs
    reward, terminated, truncated = zip(*answers, strict=True)
    return Dataset(
        obs=np.asarray(observations, envs.info.obs_dtype),
        action=actions[:, 0],
        reward=np.asarray(reward, np.float32),
        terminated=np.asarray(terminated, np.bool_),
        truncated=np.asarray(truncated, np.bool_),
        next_obs=np.asarray(led_to, envs.info.obs_dtype),
    )
