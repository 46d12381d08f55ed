"""Fetch tasks of Gymnasium-Robotics: reach a goal, with reward −1 a step until it is reached, and 0 there.

Observations are one vector, ``[observation | achieved goal | desired goal]``. So hindsight replay can write another
desired goal into it and compute its reward by ``compute_reward``.

Reference scores are of ``FetchReach-v2`` and the ``-v3`` of 2022. Gymnasium-Robotics 1.4.2 has ``-v4`` alone, with the
same initial states; the ``-v3`` of its version 1.3 does not reset the arm (its issue 251). The record names the id of
the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from importlib import import_module
from importlib.metadata import version
from io import StringIO
from typing import Any, Final

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from rlbench.envs.base import Step
from rlbench.envs.gymnasium import Env, GymnasiumVector, registered_task
from rlbench.envs.mujoco import load_physics, physics_state
from rlbench.errors import UsageError
from rlbench.ops.state_dict import State, subtree, tensor

PACKAGE: Final = "gymnasium_robotics.envs.fetch"
REMEDY: Final = 'pip install "gymnasium-robotics>=1.4"'
NEAR: Final = 0.05  # metres
GOAL: Final = 3  # coordinates of a goal
PARTS: Final = ("observation", "achieved_goal", "desired_goal")


def compute_reward(achieved: Tensor, desired: Tensor) -> Tensor:
    """0 where a goal is reached to within 5 cm, else −1: ``[B, 3]`` twice → ``[B]`` float32."""
    return -((achieved - desired).square().sum(-1).sqrt() > NEAR).to(torch.float32)


class FetchVector(GymnasiumVector):
    """N envs of one task with sparse reward, such as ``FetchReach-v4``.

    ``limit``: agent steps an episode may last, else the task's 50. ``limit_terminates``: reaching it is ``terminated``,
    not ``truncated``, as in the documented runs.
    """

    def __init__(
        self, *, task: str, seeds: Sequence[int], limit: int | None = None, limit_terminates: bool = False
    ) -> None:
        _import_package(task)
        factory, steps = registered_task(task, package=PACKAGE)
        super().__init__(
            name=task,
            factory=lambda: Flat(_sparse(task, factory)),
            seeds=seeds,
            versions=(("gymnasium-robotics", version("gymnasium-robotics")), ("mujoco", version("mujoco"))),
            limit=steps if limit is None else limit,
        )
        self._limit_terminates = limit_terminates

    def recv(self) -> Step:
        """Step every live env, reset every ended one."""
        step = super().recv()
        if self._limit_terminates:
            step = step._replace(terminated=step.terminated | step.truncated, truncated=np.zeros_like(step.truncated))
        return step

    def state_dict(self) -> State:
        """State of physics, goals, episodes and generators."""
        goals = np.stack([env.goal for env in self.unwrapped()])
        return {**self.episodes_state(), "physics": physics_state(self.unwrapped()), "goals": torch.from_numpy(goals)}

    def load_state_dict(self, state: State) -> None:
        """Restore physics, goals, episodes and generators."""
        with self._inspection.engine_errors():
            self.load_episodes_state(state)
            load_physics(self.unwrapped(), subtree(state, "physics"))
            for env, goal in zip(self.unwrapped(), tensor(state, "goals").numpy(), strict=True):
                env.goal = goal.copy()


class Flat(gymnasium.ObservationWrapper[NDArray[np.float64], Any, dict[str, NDArray[np.float64]]]):
    """Observations as one vector."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        parts: Any = env.observation_space
        size = sum(parts[part].shape[0] for part in PARTS)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)

    def observation(self, observation: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """``[observation | achieved | desired]``."""
        return np.concatenate([observation[part] for part in PARTS])


def _import_package(task: str) -> None:
    try:
        with redirect_stderr(StringIO()):  # its import prints news about other tasks
            import_module("gymnasium_robotics")
    except ModuleNotFoundError as cause:
        raise UsageError(f"{task}: Gymnasium-Robotics is not installed ({cause}): {REMEDY}") from cause
    except ImportError as cause:
        raise UsageError(f"{task}: Gymnasium-Robotics cannot be imported: {cause}; repair it or {REMEDY}") from cause


def _sparse(task: str, factory: Callable[[], Env]) -> Env:
    env: Any = factory()
    if env.reward_type != "sparse":
        raise UsageError(f"{task}: its reward is dense; choose a task with sparse reward, such as FetchReach-v4")
    sparse: Env = env
    return sparse
