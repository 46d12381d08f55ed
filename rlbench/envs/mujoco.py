"""Gymnasium's MuJoCo tasks, N of them in this process, stepped by the ``-v4`` classes.

The classes run without Gymnasium's wrappers, whose checks cost time in every step; the vector applies the time limit.
Transitions, rewards and ends are the same; observations are rounded to float32.

A snapshot is exact because a simulation step is a function of MuJoCo's integration state (warm starts included), and a
reset is a function of the generator. Ant, Humanoid and Reacher also read positions of bodies *before* they simulate.
Those are of the last simulation step, one older than the integration state, and are saved too.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.metadata import version
from itertools import pairwise
from typing import Any, Final
from warnings import warn

import numpy as np
import torch

from rlbench.envs.base import Step
from rlbench.envs.gymnasium import MUJOCO, GymnasiumVector, registered_task
from rlbench.envs.opengl import import_remedy
from rlbench.errors import UsageError
from rlbench.ops.state_dict import State, subtree, tensor

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
        self._pool = ThreadPoolExecutor(len(self._shares), "envs") if self._shares else None

    def close(self) -> None:
        """Close every environment and end the threads; idempotent."""
        if self._pool is not None:
            self._pool.shutdown()
        super().close()

    def _step_envs(self, step: Step) -> None:
        """Fill every env's row of ``step``, a share of the envs in each thread."""
        if self._pool is None:
            return super()._step_envs(step)
        others = [self._pool.submit(self._step_range, env_ids, step) for env_ids in self._shares]
        try:
            self._step_range(self._own, step)
        finally:
            wait(others)
        for other in others:
            other.result()  # raises the error of its thread
        return None

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
