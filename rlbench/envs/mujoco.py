"""Gymnasium's MuJoCo tasks, and Fetch tasks of Gymnasium-Robotics, N of them in this process.

The ``-v4`` classes run without Gymnasium's wrappers, whose checks cost time in every step; the vector applies the time
limit. Transitions, rewards and ends are the same; observations are rounded to float32.

A snapshot is exact because a simulation step is a function of MuJoCo's integration state (warm starts included), and a
reset is a function of the generator. Ant, Humanoid and Reacher also read positions of bodies *before* they simulate.
Those are of the last simulation step, one older than the integration state, and are saved too.

Fetch: reach a goal, with reward −1 a step until it is reached, and 0 there. Observations are one vector, ``[observation
| achieved goal | desired goal]``. So hindsight replay can write another desired goal into it and compute its reward by
``compute_reward``. Reference scores are of ``FetchReach-v2`` and the ``-v3`` of 2022. Gymnasium-Robotics 1.4.2 has
``-v4`` alone, with the same initial states; the ``-v3`` of its version 1.3 does not reset the arm (its issue 251). The
record names the id of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO
from itertools import pairwise
from typing import Any, Final
from warnings import warn

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation
from torch import Tensor

from rlbench.envs.base import Step
from rlbench.envs.gymnasium import MUJOCO, Env, GymnasiumVector, registered_task
from rlbench.envs.opengl import import_remedy
from rlbench.errors import UsageError
from rlbench.ops.state_dict import State, subtree, tensor
from rlbench.versions import version

try:
    import mujoco
except (AttributeError, ImportError, RuntimeError) as error:  # PyOpenGL raises AttributeError for a missing library
    remedy = import_remedy()
    if remedy is None:
        raise
    raise UsageError(remedy) from error

mujoco.set_mju_user_warning(warn)  # else into MUJOCO_LOG.TXT of the current folder

INTEGRATION: Final = int(mujoco.mjtState.mjSTATE_INTEGRATION)
POSITIONS: Final = ("xpos", "xquat", "xmat", "xipos", "ximat", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat")

FETCH: Final = "gymnasium_robotics.envs.fetch"
FETCH_REMEDY: Final = 'pip install "gymnasium-robotics>=1.4"'
REACHED_WITHIN: Final = 0.05  # metres
GOAL_WIDTH: Final = 3  # coordinates of a goal
GOAL_PARTS: Final = ("observation", "achieved_goal", "desired_goal")


class MujocoVector(GymnasiumVector):
    """N envs of one task, such as ``HalfCheetah-v4``; ``limit``: agent steps an episode may last, else the task's.

    ``threads`` share the envs: MuJoCo releases the interpreter while it simulates. The envs are independent, so the
    answers do not change by a bit.
    """

    def __init__(self, *, task: str, seeds: Sequence[int], limit: int | None = None, threads: int = 1) -> None:
        factory, steps = registered_task(task, package=MUJOCO)
        super().__init__(
            name=task,
            factory=factory,
            seeds=seeds,
            versions=(("mujoco", version("mujoco")),),
            limit=steps if limit is None else limit,
        )
        ends = [len(seeds) * i // threads for i in range(threads + 1)]
        self._own, *self._shares = [range(*pair) for pair in pairwise(ends)]
        self._pool = ThreadPoolExecutor(threads, "envs")  # which starts a thread for a share when it steps

    def close(self) -> None:
        """Close every environment and end the threads; idempotent."""
        self._pool.shutdown()
        super().close()

    def _step_envs(self, step: Step) -> None:
        """Fill every env's row of ``step``, a share of the envs in each thread."""
        others = [self._pool.submit(self._step_range, env_ids, step) for env_ids in self._shares]
        try:
            self._step_range(self._own, step)
        finally:
            wait(others)
        for other in others:
            other.result()  # raises the error of its thread

    def state_dict(self) -> State:
        """State of physics, episodes and generators."""
        return {**self.episodes_state(), "physics": physics_state(self.unwrapped())}

    def load_state_dict(self, state: State) -> None:
        """Restore physics, episodes and generators."""
        with self._inspection.engine_errors():
            self.load_episodes_state(state)
            load_physics(self.unwrapped(), subtree(state, "physics"))


def physics_state(envs: Sequence[Any]) -> State:
    """Return the physics of N envs with a ``model`` and its ``data``, each ``[N, ...]`` float64."""
    states = np.empty((len(envs), mujoco.mj_stateSize(envs[0].model, INTEGRATION)))
    for env, row in zip(envs, states, strict=True):
        mujoco.mj_getState(env.model, env.data, row, INTEGRATION)
    positions = {name: np.stack([getattr(env.data, name) for env in envs]) for name in POSITIONS}
    return {name: torch.from_numpy(rows) for name, rows in {"integration": states, **positions}.items()}


def load_physics(envs: Sequence[Any], state: State) -> None:
    """Restore the physics of N envs in place."""
    for i, env in enumerate(envs):
        mujoco.mj_setState(env.model, env.data, tensor(state, "integration")[i].numpy(), INTEGRATION)
        for name in POSITIONS:
            getattr(env.data, name)[:] = tensor(state, name)[i].numpy()


def compute_reward(achieved: Tensor, desired: Tensor) -> Tensor:
    """0 where a goal is reached to within 5 cm, else −1: ``[B, 3]`` twice → ``[B]`` float32."""
    return -((achieved - desired).square().sum(-1).sqrt() > REACHED_WITHIN).to(torch.float32)


class FetchVector(GymnasiumVector):
    """N envs of one task with sparse reward, such as ``FetchReach-v4``.

    ``limit``: agent steps an episode may last, else the task's 50. ``limit_terminates``: reaching it is ``terminated``,
    not ``truncated``, as in the documented runs.
    """

    def __init__(
        self, *, task: str, seeds: Sequence[int], limit: int | None = None, limit_terminates: bool = False
    ) -> None:
        _import_fetch(task)
        factory, steps = registered_task(task, package=FETCH)
        super().__init__(
            name=task,
            factory=lambda: _flat_goal_env(task, factory),
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


def _import_fetch(task: str) -> None:
    try:
        with redirect_stderr(StringIO()):  # its import prints news about other tasks
            import_module("gymnasium_robotics")
    except ModuleNotFoundError as cause:
        raise UsageError(f"{task}: Gymnasium-Robotics is not installed ({cause}): {FETCH_REMEDY}") from cause
    except ImportError as cause:
        raise UsageError(
            f"{task}: Gymnasium-Robotics cannot be imported: {cause}; repair it or {FETCH_REMEDY}"
        ) from cause


def _flat_goal_env(task: str, factory: Callable[[], Env]) -> Env:
    """An env with observations as one vector, ``[observation | achieved | desired]``."""
    env: Any = factory()
    if env.reward_type != "sparse":
        raise UsageError(f"{task}: its reward is dense; choose a task with sparse reward, such as FetchReach-v4")
    size = sum(env.observation_space[part].shape[0] for part in GOAL_PARTS)
    space = spaces.Box(-np.inf, np.inf, (size,), np.float64)
    return TransformObservation(env, lambda obs: np.concatenate([obs[part] for part in GOAL_PARTS]), space)
