"""Gymnasium's MuJoCo tasks, N of them in this process, as the documented ``-v4`` classes step them.

The classes are made without Gymnasium's wrappers: their checks cost time in every step, and the time limit is kept by
the vector. What is stepped, rewarded and ended is the same; observations are rounded to float32.

A snapshot is exact because a simulation step is a function of MuJoCo's integration state (warm starts included), and
because a reset is one of the random stream. What an environment reads *before* it simulates (Ant, Humanoid and Reacher
compare two places) is left over from the last simulation step, a place older than the positions: it is saved too.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.metadata import version
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch

from rlbench.envs.base import Step
from rlbench.envs.gymnasium import GymnasiumVector, bare
from rlbench.envs.opengl import import_remedy
from rlbench.errors import UsageError
from rlbench.ops.state_dict import State, branch, tensor

try:
    import mujoco
except (AttributeError, ImportError, RuntimeError) as error:  # PyOpenGL raises AttributeError for a missing library
    remedy = import_remedy()
    if remedy is None:
        raise
    raise UsageError(remedy) from error

PACKAGE: Final = "gymnasium.envs.mujoco"
INTEGRATION: Final = int(mujoco.mjtState.mjSTATE_INTEGRATION)
PLACED: Final = ("xpos", "xquat", "xmat", "xipos", "ximat", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat")


class MujocoVector(GymnasiumVector):
    """N lanes of one task, such as ``HalfCheetah-v4``; ``limit``: agent steps an episode may last, else the task's.

    ``threads`` share the lanes among them: MuJoCo lets the interpreter go while it simulates, and no lane knows of
    another, so the answers are the same, to the bit.
    """

    def __init__(self, *, task: str, seeds: Sequence[int], limit: int | None = None, threads: int = 1) -> None:
        factory, steps = bare(task, package=PACKAGE)
        super().__init__(
            name=task,
            factory=factory,
            seeds=seeds,
            versions=(("mujoco", version("mujoco")),),
            limit=steps if limit is None else limit,
        )
        ends = [len(seeds) * i // threads for i in range(threads + 1)]
        self._mine, *self._theirs = [range(*pair) for pair in pairwise(ends)]
        self._pool = ThreadPoolExecutor(len(self._theirs), "lanes") if self._theirs else None

    def close(self) -> None:
        """Close every environment and end the threads; idempotent."""
        if self._pool is not None:
            self._pool.shutdown()
        super().close()

    def _answer(self, step: Step) -> None:
        """Every lane writes its own row, shares of them at once."""
        if self._pool is None:
            return super()._answer(step)
        others = [self._pool.submit(self._advance, lanes, step) for lanes in self._theirs]
        try:
            self._advance(self._mine, step)
        finally:
            wait(others)
        for other in others:
            other.result()  # raises what it raised
        return None

    def state_dict(self) -> State:
        """Physics, episodes and random streams."""
        return {**self.progress(), "physics": physics([env.unwrapped for env in self._envs])}

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        with self._inspection.guarded():
            self.proceed(state)
            put_physics([env.unwrapped for env in self._envs], branch(state, "physics"))


def physics(lanes: Sequence[Any]) -> State:
    """The physics of N lanes that have a ``model`` and its ``data``, each ``[N, ...]`` float64."""
    states = np.empty((len(lanes), mujoco.mj_stateSize(lanes[0].model, INTEGRATION)))
    for lane, row in zip(lanes, states, strict=True):
        mujoco.mj_getState(lane.model, lane.data, row, INTEGRATION)
    placed = {name: np.stack([getattr(lane.data, name) for lane in lanes]) for name in PLACED}
    return {name: torch.from_numpy(rows) for name, rows in {"integration": states, **placed}.items()}


def put_physics(lanes: Sequence[Any], state: State) -> None:
    """Put them back, in place."""
    for i, lane in enumerate(lanes):
        mujoco.mj_setState(lane.model, lane.data, tensor(state, "integration")[i].numpy(), INTEGRATION)
        for name in PLACED:
            getattr(lane.data, name)[:] = tensor(state, name)[i].numpy()
