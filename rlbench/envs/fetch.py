"""Fetch tasks of Gymnasium-Robotics: reach a goal that is shown, rewarded −1 a step until there, and 0 there.

What is shown is one vector, ``[observation | achieved goal | desired goal]``, so that replay can write another desired
goal into it and ask ``compute_reward`` what that would have paid.

The documented ids are ``FetchReach-v2`` and the ``-v3`` of 2022. Gymnasium-Robotics 1.4.2 has ``-v4`` alone, which
begins as they did: the ``-v3`` of its version 1.3 forgets to put the arm back (its issue 251). The record names the id
that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from importlib import import_module
from importlib.metadata import version
from io import StringIO
from typing import Any, Final, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from rlbench.envs.base import Step
from rlbench.envs.gymnasium import Env, GymnasiumVector, bare
from rlbench.envs.mujoco import physics, put_physics
from rlbench.errors import UsageError
from rlbench.ops.state_dict import State, branch, tensor

PACKAGE: Final = "gymnasium_robotics.envs.fetch"
REMEDY: Final = 'pip install "gymnasium-robotics>=1.4"'
NEAR: Final = 0.05  # metres
GOAL: Final = 3  # numbers in a goal: a place
PARTS: Final = ("observation", "achieved_goal", "desired_goal")


class GoalLayout(NamedTuple):
    """Where the parts lie in what is shown."""

    observation: slice
    achieved: slice
    desired: slice


def compute_reward(achieved: Tensor, desired: Tensor) -> Tensor:
    """0 where a goal is reached to within 5 cm, else −1: ``[B, 3]`` twice → ``[B]`` float32."""
    return -((achieved - desired).square().sum(-1).sqrt() > NEAR).to(torch.float32)


class FetchVector(GymnasiumVector):
    """N lanes of one task with sparse reward, such as ``FetchReach-v4``.

    ``limit``: agent steps an episode may last, else the task's 50. ``limit_terminates``: reaching it is ``terminated``,
    not ``truncated``, as in the documented runs.
    """

    def __init__(
        self, *, task: str, seeds: Sequence[int], limit: int | None = None, limit_terminates: bool = False
    ) -> None:
        _imported(task)
        factory, steps = bare(task, package=PACKAGE)
        super().__init__(
            name=task,
            factory=lambda: Flat(_sparse(task, factory)),
            seeds=seeds,
            versions=(("gymnasium-robotics", version("gymnasium-robotics")), ("mujoco", version("mujoco"))),
            limit=steps if limit is None else limit,
        )
        self._limit_terminates = limit_terminates
        shown, goal = (self._inner()[0].observation_space[part].shape[0] for part in PARTS[:2])
        self.layout: Final = GoalLayout(slice(shown), slice(shown, shown + goal), slice(shown + goal, shown + 2 * goal))

    def recv(self) -> Step:
        """Step every live lane, reset every ended one."""
        step = super().recv()
        if self._limit_terminates:
            step = step._replace(terminated=step.terminated | step.truncated, truncated=np.zeros_like(step.truncated))
        return step

    def state_dict(self) -> State:
        """Physics, goals, episodes and random streams."""
        goals = np.stack([lane.goal for lane in self._inner()])
        return {**self.progress(), "physics": physics(self._inner()), "goals": torch.from_numpy(goals)}

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        with self._inspection.guarded():
            self.proceed(state)
            put_physics(self._inner(), branch(state, "physics"))
            for lane, goal in zip(self._inner(), tensor(state, "goals").numpy(), strict=True):
                lane.goal = goal.copy()

    def _inner(self) -> list[Any]:
        return [env.unwrapped for env in self._envs]


class Flat(gymnasium.ObservationWrapper[NDArray[np.float64], Any, dict[str, NDArray[np.float64]]]):
    """What is shown as one vector."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        parts: Any = env.observation_space
        size = sum(parts[part].shape[0] for part in PARTS)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)

    def observation(self, observation: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """``[observation | achieved | desired]``."""
        return np.concatenate([observation[part] for part in PARTS])


def _imported(task: str) -> None:
    try:
        with redirect_stderr(StringIO()):  # it greets with news about other tasks
            import_module("gymnasium_robotics")
    except ModuleNotFoundError as cause:
        raise UsageError(f"{task}: Gymnasium-Robotics is not installed ({cause}): {REMEDY}") from cause
    except ImportError as cause:
        raise UsageError(f"{task}: Gymnasium-Robotics cannot be imported: {cause}; repair it or {REMEDY}") from cause


def _sparse(task: str, factory: Callable[[], Env]) -> Env:
    lane: Any = factory()
    if lane.reward_type != "sparse":
        raise UsageError(f"{task}: its reward is dense; choose a task with sparse reward, such as FetchReach-v4")
    made: Env = lane
    return made
