"""EnvPool's MuJoCo tasks with lanes that do not wait for each other: what ``envs/envpool_mujoco.py`` is made of.

EnvPool hands answers out in batches of a fixed size. The size taken is the largest that divides both the lanes and the
answers waited for, so that first observations come out even and none is left behind in the pool.
"""

from __future__ import annotations

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

from rlbench.envs.atari import one_seed_per_lane
from rlbench.envs.base import EnvInfo, Frames, Step
from rlbench.envs.checks import Inspection
from rlbench.envs.envpool import REMEDY
from rlbench.envs.gymnasium import ActionScaling, bare
from rlbench.envs.mujoco import PACKAGE
from rlbench.errors import UsageError


class EnvPoolMujocoAsync:
    """N lanes of one task, such as ``HalfCheetah-v4``.

    Of which ``recv`` gives the first ``async_batch`` that are done.
    """

    def __init__(
        self, *, task: str, seeds: Sequence[int], threads: int, async_batch: int, limit: int | None = None
    ) -> None:
        _, steps = bare(task, package=PACKAGE)
        if find_spec("envpool") is None:
            raise UsageError(f"{task}: EnvPool is not installed: {REMEDY}")
        numbers = one_seed_per_lane(seeds)
        if not 1 <= async_batch <= len(numbers):
            raise UsageError(f"{task}: async_batch={async_batch}: from 1 to {len(seeds)} lanes can answer")
        self._batch, self._answers = gcd(len(seeds), async_batch), async_batch
        self._pool: Any = import_module("envpool").make(
            task,
            env_type="gymnasium",
            num_envs=len(seeds),
            batch_size=self._batch,
            num_threads=threads,
            seed=list(one_seed_per_lane(seeds)),
            max_episode_steps=steps if limit is None else limit,
            post_constraint=True,
        )
        self._stretch: Final = ActionScaling.by(task, self._pool.action_space)
        self.info: Final = EnvInfo(
            lanes=len(seeds),
            obs_shape=tuple(self._pool.observation_space.shape),
            obs_dtype=np.dtype(np.float32),
            actions=self._stretch.actions,
            versions=(("env", f"envpool/{task}"), ("envpool", version("envpool")), ("mujoco", bundled_mujoco())),
        )
        self._inspection = Inspection(name=f"envpool/{task}", info=self.info, seeds=seeds)

    def reset(self) -> Frames:
        """Begin every lane's first episode, ``[N, *obs_shape]``."""
        with self._inspection.guarded():
            self._pool.async_reset()
            return self._inspection.begun(self._heard(self.info.lanes).obs)

    def send(self, action: NDArray[Any], lane: NDArray[np.int64]) -> None:
        """Set lanes ``[M]`` going that are not on their way: one whose episode is over resets itself."""
        self._inspection.action(action, lane)
        with self._inspection.guarded():
            self._pool.send(self._stretch(action).astype(np.float64), lane)

    def recv(self) -> Step:
        """Wait until ``async_batch`` lanes are done, whichever they are."""
        with self._inspection.guarded():
            step = self._heard(self._answers)
        return self._inspection.answered(step)

    def close(self) -> None:
        """Join the pool's threads; idempotent."""
        self._pool.close()

    def _heard(self, count: int) -> Step:
        """The next ``count`` answers, ascending by lane."""
        said = [self._pool.recv() for _ in range(count // self._batch)]
        lane = np.concatenate([info["env_id"] for *_, info in said]).astype(np.int64)
        order = np.argsort(lane)
        obs, reward, terminated, truncated = (
            np.concatenate(column)[order] for column in zip(*(one[:4] for one in said), strict=True)
        )
        return Step(
            obs=obs.astype(self.info.obs_dtype),
            reward=reward,
            terminated=terminated,
            truncated=truncated & ~terminated,
            lane=lane[order],
            score=reward.astype(np.float64),
            over=terminated | truncated,
        )


@cache
def bundled_mujoco() -> str:
    """The version of the MuJoCo inside EnvPool, as its library has it; it offers no other way to ask."""
    found = find_spec("envpool.mujoco")
    folders = list(found.submodule_search_locations or ()) if found else []
    library = next((path for folder in folders for path in Path(folder).glob("mujoco_gym_envpool*.so")), None)
    versions = set(re.findall(rb"\0([23]\.\d{1,2}\.\d{1,2})\0", library.read_bytes())) if library else set()
    return versions.pop().decode() if len(versions) == 1 else "unknown"
