"""Fresh environments of a task, one per seed, and videos of them."""

from __future__ import annotations

from typing import Final, assert_never

from rlbench import suites
from rlbench.assembly.device import cores
from rlbench.collectors.evaluate import Evaluation
from rlbench.config.run import Spec
from rlbench.config.tasks import AtariTask, GoalTask, GymnasiumTask, MujocoTask, OfflineTask, Task, ToyTask, env_task_of
from rlbench.envs.ale import AleVector
from rlbench.envs.base import AsyncVectorEnv, EnvInfo, VectorEnv
from rlbench.envs.gymnasium import ClassicVector, GymnasiumVector
from rlbench.envs.normalize import Normalized, ObsTransform, unnormalized
from rlbench.envs.render import BoardCamera, Camera, MujocoCamera, RecordVideo, ScreenCamera, ShadowEmulator
from rlbench.errors import UsageError

ENVS_PER_THREAD = 4  # fewer do not pay for a thread


def environments(
    task: Task, *, seeds: tuple[int, ...], training: bool, obs_transform: ObsTransform | None = None, threads: int = 1
) -> VectorEnv:
    """Make one env per seed; ``obs_transform`` normalizes observations and is updated in training.

    Up to ``threads`` threads step the envs where that pays; the results are equal.
    """
    envs = _make_envs(task, seeds=seeds, training=training, threads=max(1, min(threads, len(seeds) // ENVS_PER_THREAD)))
    return envs if obs_transform is None else Normalized(envs, obs_transform, learning=training)


def async_environments(task: AtariTask | MujocoTask, *, seeds: tuple[int, ...], async_batch: int) -> AsyncVectorEnv:
    """Make training envs that answer asynchronously, in batches of the first ``async_batch`` that are done."""
    if isinstance(task, MujocoTask) and task.env == "envpool":
        from rlbench.envs.envpool import EnvPoolMujoco

        return EnvPoolMujoco(task=task.id, seeds=seeds, threads=min(len(seeds), cores()), async_batch=async_batch)
    from rlbench.envs.async_vector import AsyncVector

    return AsyncVector(
        envs=[_make_envs(task, seeds=(seed,), training=True, threads=1) for seed in seeds], async_batch=async_batch
    )


def _make_envs(task: Task, *, seeds: tuple[int, ...], training: bool, threads: int) -> VectorEnv:
    match task:
        case AtariTask():
            return _atari(task, seeds, training=training)
        case ToyTask():
            return _toy(task, seeds)
        case MujocoTask():
            return _mujoco(task, seeds, threads)
        case GoalTask():
            from rlbench.envs.mujoco import FetchVector

            return FetchVector(task=task.id, seeds=seeds, limit=task.steps, limit_terminates=task.limit_terminates)
        case GymnasiumTask():
            from rlbench.envs.external import external_vector

            make = suites.env_factory(task.suite) if task.suite else None
            return external_vector(task, seeds=seeds, training=training, make=make)
        case OfflineTask():
            return _make_envs(task.world, seeds=seeds, training=training, threads=threads)
        case _:
            assert_never(task)


def _mujoco(task: MujocoTask, seeds: tuple[int, ...], threads: int) -> VectorEnv:
    if task.env == "envpool":
        from rlbench.envs.envpool import EnvPoolMujoco

        return EnvPoolMujoco(task=task.id, seeds=seeds, threads=min(len(seeds), cores()))
    from rlbench.envs.mujoco import MujocoVector

    return MujocoVector(task=task.id, seeds=seeds, threads=threads)


def _toy(task: ToyTask, seeds: tuple[int, ...]) -> VectorEnv:
    from rlbench.envs.toy import Catch, Doors

    match task.id:
        case "Catch":
            return Catch(seeds=seeds)
        case "Doors":
            return Doors(seeds=seeds)
        case _:
            return ClassicVector(task=task.id, seeds=seeds)


def _atari(task: AtariTask, seeds: tuple[int, ...], *, training: bool) -> VectorEnv:
    match task.env:
        case "ale":
            return AleVector(task=task, seeds=seeds, training=training)
        case "envpool":
            from rlbench.envs.envpool import EnvPoolVector

            return EnvPoolVector(task=task, seeds=seeds, training=training, threads=min(len(seeds), cores()))
        case "gymnasium":
            from rlbench.envs import atari_wrappers

            factory = atari_wrappers.reference_env(task, training=training)
            return GymnasiumVector(name=task.id, factory=factory, seeds=seeds, versions=atari_wrappers.versions())
        case _:
            assert_never(task.env)


def describe(spec: Spec) -> EnvInfo:
    """Describe the environments of a run by making one and closing it."""
    env = environments(spec.task, seeds=(0,), training=True)
    try:
        return env.info
    finally:
        env.close()


TOY_STEP_SECONDS: Final = 0.25  # seconds of a toy's step in a video


def record_video(spec: Spec, evaluation: Evaluation) -> RecordVideo:
    """Record the video of an evaluation's first env.

    Raises:
        UsageError: the environment has no frames, or no OpenGL renders them.
    """
    try:
        camera = _camera(spec, evaluation.envs, evaluation.seeds[0])
    except UsageError:
        evaluation.envs.close()
        raise
    recorder = RecordVideo(evaluation.envs, camera)
    evaluation.envs = recorder
    return recorder


def _camera(spec: Spec, envs: VectorEnv, seed: int) -> Camera:
    task = env_task_of(spec.task)
    inner = unnormalized(envs)
    match task:
        case AtariTask(env="ale"):
            double = AleVector(task=task, seeds=(seed,), training=False, rgb=True)
            return ShadowEmulator(double, frame_skip=task.frame_skip)
        case AtariTask() if isinstance(inner, GymnasiumVector):
            return ScreenCamera(inner.unwrapped()[0], frame_skip=task.frame_skip)
        case MujocoTask() | GoalTask() if isinstance(inner, GymnasiumVector):
            return MujocoCamera(inner.unwrapped()[0])
        case AtariTask() | MujocoTask() | GoalTask():
            raise UsageError(f"{spec.name}: EnvPool renders no frames; leave --video out")
        case ToyTask(id="Catch"):
            return BoardCamera(seconds=TOY_STEP_SECONDS)
        case _:
            raise UsageError(f"{spec.name}: {task.id} renders no frames; leave --video out")
