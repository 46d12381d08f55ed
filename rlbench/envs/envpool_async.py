"""EnvPool's MuJoCo tasks, stepped asynchronously or in step.

EnvPool returns answers in batches of a fixed size: here the greatest common divisor of the number of envs and
``async_batch``, so that no first observation stays in the pool.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from math import gcd
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.atari import one_seed_per_env
from rlbench.envs.base import EnvInfo, Frames, Step
from rlbench.envs.checks import Inspection
from rlbench.envs.envpool import REMEDY
from rlbench.envs.gymnasium import ActionScaling, registered_task
from rlbench.envs.mujoco import PACKAGE
from rlbench.errors import UsageError


class EnvPoolMujoco:
    """N envs of one task, such as ``HalfCheetah-v4``; ``recv`` returns the first ``async_batch`` that answer, or all.

    ``limit``: agent steps an episode may last, else the task's.
    """

    def __init__(
        self, *, task: str, seeds: Sequence[int], threads: int, async_batch: int | None = None, limit: int | None = None
    ) -> None:
        _, steps = registered_task(task, package=PACKAGE)
        if find_spec("envpool") is None:
            raise UsageError(f"{task}: EnvPool is not installed: {REMEDY}")
        pool_seeds = list(one_seed_per_env(seeds))
        async_batch = len(seeds) if async_batch is None else async_batch
        if not 1 <= async_batch <= len(seeds):
            raise UsageError(f"{task}: async_batch={async_batch}: from 1 to {len(seeds)} envs can answer")
        self._batch, self._async_batch = gcd(len(seeds), async_batch), async_batch
        self._pool: Any = import_module("envpool").make(
            task,
            env_type="gymnasium",
            num_envs=len(seeds),
            batch_size=self._batch,
            num_threads=threads,
            seed=pool_seeds,
            max_episode_steps=steps if limit is None else limit,
            post_constraint=True,
        )
        _discard_warnings()
        self._scaling: Final = ActionScaling.of_space(task, self._pool.action_space)
        self.info: Final = EnvInfo(
            num_envs=len(seeds),
            obs_shape=tuple(self._pool.observation_space.shape),
            obs_dtype=np.dtype(np.float32),
            actions=self._scaling.actions,
            versions=(("env", f"envpool/{task}"), ("envpool", version("envpool")), ("mujoco", bundled_mujoco())),
        )
        self._inspection = Inspection(name=f"envpool/{task}", info=self.info, seeds=seeds)

    def reset(self) -> Frames:
        """Begin every env's first episode, ``[N, *obs_shape]``."""
        with self._inspection.engine_errors():
            self._pool.async_reset()
            return self._inspection.check_reset(self._receive(self.info.num_envs).obs)

    def send(self, action: NDArray[Any], env_id: NDArray[np.int64] | None = None) -> None:
        """Start a step of the idle envs ``[M]``, or of all ``[N]``; an env whose episode is over resets itself."""
        env_id = np.arange(self.info.num_envs) if env_id is None else env_id
        self._inspection.check_action(action, env_id)
        with self._inspection.engine_errors():
            self._pool.send(self._scaling(action).astype(np.float64), env_id)

    def recv(self) -> Step:
        """Wait until ``async_batch`` envs have answered."""
        with self._inspection.engine_errors():
            step = self._receive(self._async_batch)
        return self._inspection.check_step(step)

    def close(self) -> None:
        """Join the pool's threads; idempotent."""
        self._pool.close()

    def _receive(self, count: int) -> Step:
        """Return the next ``count`` answers, ascending by env."""
        batches = [self._pool.recv() for _ in range(count // self._batch)]
        env_id = np.concatenate([info["env_id"] for *_, info in batches]).astype(np.int64)
        order = np.argsort(env_id)
        obs, reward, terminated, truncated = (
            np.concatenate(column)[order] for column in zip(*(batch[:4] for batch in batches), strict=True)
        )
        return Step(
            obs=obs.astype(self.info.obs_dtype),
            reward=reward,
            terminated=terminated,
            truncated=truncated & ~terminated,
            env_id=env_id[order],
            score=reward.astype(np.float64),
            over=terminated | truncated,
        )


@cache
def bundled_mujoco() -> str:
    """Version of the MuJoCo inside EnvPool, read from its shared library, which has no function for it."""
    versions = set(re.findall(rb"\0([23]\.\d{1,2}\.\d{1,2})\0", path.read_bytes())) if (path := library()) else set()
    return versions.pop().decode() if len(versions) == 1 else "unknown"


def library() -> Path | None:
    """Path of the shared library with EnvPool's MuJoCo tasks; None if it is missing."""
    package = find_spec("envpool.mujoco")
    folders = list(package.submodule_search_locations or ()) if package else []
    return next((path for folder in folders for path in Path(folder).glob("mujoco_gym_envpool*.so")), None)


def _discard_warnings() -> None:
    """Discard warnings of the MuJoCo inside EnvPool by a C function; else they reach stdout and ``MUJOCO_LOG.TXT``."""
    if (path := library()) is not None:
        handler = ctypes.c_void_p.in_dll(ctypes.CDLL(str(path)), "mju_user_warning")
        handler.value = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
