"""A run on recorded experience, from its Spec: the data, a ring of them, and the world in which policies are judged."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.buffers.dataset import ring
from rlbench.build import offlinecontrol
from rlbench.build.device import stepping_threads
from rlbench.build.environments import environments
from rlbench.build.stage import Stage, evaluation
from rlbench.collectors.explore import Untouched
from rlbench.datasets import checksums, places, reading
from rlbench.datasets.scale import scale_of
from rlbench.datasets.scores import episode_returns
from rlbench.datasets.types import Recorded
from rlbench.envs.base import Box, EnvInfo, VectorEnv
from rlbench.envs.normalize import Fixed
from rlbench.errors import RefusedFile
from rlbench.fast.metrics import Metrics
from rlbench.fast.noise import Noise
from rlbench.fast.updater import Eager
from rlbench.seeds import Seeds
from rlbench.spec.offline import Offline
from rlbench.spec.run import Runtime, Spec
from rlbench.spec.task import OfflineTask
from rlbench.trainers import offline as trainer

SMOKE_STEPS = 2_000
"""Steps that a smoke run records for itself where it is not given data."""


class Experience(NamedTuple):
    """What is learned from."""

    recorded: Recorded
    sha256: str  # of the file, or of what was recorded for a smoke run


def experience(spec: Spec, task: OfflineTask, runtime: Runtime) -> Experience:
    """The data of a run; a smoke run without any records some with random actions.

    Raises:
        UsageError: the data are nowhere; the message says where they were looked for, and what to do.
        RefusedFile: they are damaged.
    """
    if spec.smoke and runtime.dataset is None:
        return Experience(_random(task), "random actions")
    path = places.found(task.data, None if runtime.dataset is None else Path(runtime.dataset))
    return Experience(reading.read(path, task.data), checksums.sealed(reading.data_file(path)).sha256)


def learned(spec: Spec, algo: Offline, info: EnvInfo, device: torch.device, runtime: Runtime) -> trainer.Offline:
    """Everything an offline run is made of, at its beginning."""
    if not isinstance(spec.task, OfflineTask):
        raise TypeError(spec.task)
    seeds, parts = Seeds(spec.seed), offlinecontrol.parts(spec.name, algo, info, device)
    recorded, sha256 = experience(spec, spec.task, runtime)
    _fits(spec.task, recorded, info)
    scale = scale_of(recorded) if algo.normalize_obs else None
    data = ring(
        _paid(recorded, algo.return_span),
        horizon=algo.horizon,
        gamma=algo.gamma,
        generator=seeds.child("replay").torch(device),
        device=device,
        scale=scale,
    )
    stage = Stage(
        actor=parts.learner,
        action=parts.action,
        judging=lambda _: Untouched(),
        bound=None,
        scale=None if scale is None else Fixed(scale.mean, scale.deviation),
        threads=stepping_threads(runtime),
    )
    metrics = Metrics(parts.metrics, device)
    return trainer.Offline(
        updater=Eager(source=data, learner=parts.learner, batch=algo.batch, metrics=metrics, summary=parts.summary),
        sampler=data.sampler,
        learner=parts.learner,
        noise=Noise(device if device.type == "cuda" else None),
        evaluate=lambda epoch: evaluation(spec, info, stage, device, epoch),
        budget=spec.budget,
        schedules=parts.schedules,
        data=sha256,
        scale=None if scale is None else {part: torch.tensor(getattr(scale, part)) for part in scale._fields},
    )


def _fits(task: OfflineTask, recorded: Recorded, info: EnvInfo) -> None:
    """Refuse data of another world."""
    theirs, ours = (recorded.obs.shape[1], recorded.action.shape[1]), (info.obs_shape[0], _width(task, info))
    if theirs != ours:
        raise RefusedFile(
            f"{task.data}: observations and actions of {theirs[0]} and {theirs[1]} numbers, "
            f"{task.world.id} has {ours[0]} and {ours[1]}; choose the task that was recorded"
        )


def _paid(recorded: Recorded, span: float | None) -> Recorded:
    """The data with rewards scaled so that the best episode's return lies ``span`` above the worst's."""
    if span is None:
        return recorded
    returns = episode_returns(recorded)
    width = float(returns.max() - returns.min()) if len(returns) else 0.0
    if width <= 0:
        return recorded
    return recorded._replace(reward=(recorded.reward * (span / width)).astype(np.float32))


def _random(task: OfflineTask) -> Recorded:
    """``SMOKE_STEPS`` steps of random actions in one lane."""
    envs = environments(task.world, seeds=(0,), training=False)
    try:
        shape = _width(task, envs.info)
        chosen = np.random.default_rng(0).uniform(-1, 1, (SMOKE_STEPS, 1, shape)).astype(np.float32)
        return _acted(envs, chosen)
    finally:
        envs.close()


def _acted(envs: VectorEnv, chosen: NDArray[np.float32]) -> Recorded:
    """What one lane answers to actions ``[N, 1, A]``."""
    obs, seen, led_to, answers = envs.reset(), [], [], []
    for action in chosen:
        envs.send(action)
        step = envs.recv()
        seen.append(obs[0])
        led_to.append(step.obs[0])
        answers.append((step.reward[0], step.terminated[0], step.truncated[0]))
        obs = step.obs
        if step.terminated[0] or step.truncated[0]:
            envs.send(action)  # is not carried out: the next episode begins
            obs = envs.recv().obs
    reward, terminated, truncated = zip(*answers, strict=True)
    return Recorded(
        obs=np.asarray(seen, np.float32),
        action=chosen[:, 0],
        reward=np.asarray(reward, np.float32),
        terminated=np.asarray(terminated, np.bool_),
        truncated=np.asarray(truncated, np.bool_),
        next_obs=np.asarray(led_to, np.float32),
    )


def _width(task: OfflineTask, info: EnvInfo) -> int:
    if not isinstance(info.actions, Box):
        raise RefusedFile(f"{task.data}: holds real actions, {task.world.id} has numbered ones; choose another task")
    return int(info.actions.low.shape[0])
