"""From a run's task to a camera on its first lane."""

from __future__ import annotations

from typing import Final

from rlbench.collectors.evaluate import Evaluation
from rlbench.config.run import Spec
from rlbench.config.tasks import AtariTask, GoalTask, MujocoTask, OfflineTask
from rlbench.envs.ale import AleVector
from rlbench.envs.base import VectorEnv
from rlbench.envs.gymnasium import GymnasiumVector
from rlbench.envs.normalize import Normalized
from rlbench.envs.render import Board, Camera, RecordVideo, Rendered, Screen, ShadowEmulator
from rlbench.errors import UsageError

BEAT: Final = 0.25  # seconds of a toy's step: as fast as it can be followed


def watch(spec: Spec, evaluation: Evaluation) -> RecordVideo:
    """Have the first lane of games about to be played filmed.

    Raises:
        UsageError: there is nothing to be seen of such environments, or no OpenGL to render them.
    """
    try:
        camera = _camera(spec, evaluation.envs, evaluation.seeds[0])
    except UsageError:
        evaluation.envs.close()
        raise
    watched = RecordVideo(evaluation.envs, camera)
    evaluation.envs = watched
    return watched


def _camera(spec: Spec, envs: VectorEnv, seed: int) -> Camera:
    task = spec.task.world if isinstance(spec.task, OfflineTask) else spec.task
    inner = envs.envs if isinstance(envs, Normalized) else envs
    match task:
        case AtariTask(env="ale"):
            double = AleVector(task=task, seeds=(seed,), training=False, rgb=True)
            return ShadowEmulator(double, frame_skip=task.frame_skip)
        case AtariTask() if isinstance(inner, GymnasiumVector):
            return Screen(inner.inside(0), frame_skip=task.frame_skip)
        case MujocoTask() | GoalTask() if isinstance(inner, GymnasiumVector):
            return Rendered(inner.inside(0))
        case AtariTask() | MujocoTask() | GoalTask():
            raise UsageError(f"{spec.name}: EnvPool shows no pictures; leave --video out")
        case _ if task.id == "Catch":
            return Board(seconds=BEAT)
        case _:
            raise UsageError(f"{spec.name}: there is nothing to film of {task.id}; leave --video out")
