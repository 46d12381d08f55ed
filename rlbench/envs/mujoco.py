"""Gymnasium's MuJoCo tasks, N of them in this process, as the documented ``-v4`` classes step them.

The classes are made without Gymnasium's wrappers: their checks cost time in every step, and the time limit is kept by
the vector. What is stepped, rewarded and ended is the same; observations are rounded to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import cast

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.error import Error

from rlbench.envs.gymnasium import Env, GymnasiumVector
from rlbench.errors import UnknownName, UsageError


class MujocoVector(GymnasiumVector):
    """N lanes of one task, such as ``HalfCheetah-v4``; ``limit``: agent steps an episode may last, else the task's."""

    def __init__(self, *, task: str, seeds: Sequence[int], limit: int | None = None) -> None:
        spec = _known(task)
        super().__init__(
            name=task,
            factory=_factory(spec),
            seeds=seeds,
            versions=(("mujoco", version("mujoco")),),
            limit=spec.max_episode_steps if limit is None else limit,
        )


def _known(task: str) -> EnvSpec:
    tasks = {name: spec for name, spec in gymnasium.registry.items() if _is_mujoco(spec)}
    if task in tasks:
        return tasks[task]
    if task in gymnasium.registry:
        raise UsageError(f"mujoco: {task!r} is no MuJoCo task; choose one such as HalfCheetah-v4")
    raise UnknownName("task", task, tasks, where="mujoco")


def _is_mujoco(spec: EnvSpec) -> bool:
    return isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs.mujoco")


def _factory(spec: EnvSpec) -> Callable[[], Env]:
    def lane() -> Env:
        try:
            return cast("Env", load_env_creator(str(spec.entry_point))(**spec.kwargs))
        except (ImportError, Error) as cause:
            raise UsageError(f"mujoco: {spec.id}: {cause}") from cause

    return lane
