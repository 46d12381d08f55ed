"""Gymnasium's MuJoCo ``-v4`` tasks by EnvPool: one pool of C++ threads under all lanes; an optional extra.

What differs from ``envs/mujoco.py``, measured with EnvPool 1.2.5 from equal first states under equal actions:

* EnvPool brings a MuJoCo of its own, newer than the locked one. Both compute in float64. InvertedPendulum,
  InvertedDoublePendulum and Reacher agree to the last bit or two, HalfCheetah, Swimmer and Walker2d to rounding
  (1e-12 after twenty steps, growing as chaos has it); Ant, Hopper and Humanoid until something touches the ground,
  and are then other trajectories;
* rewards are float32, and so are the scores made of them;
* first states come from EnvPool's own generator: the same distribution, other numbers.

EnvPool's own ``-v4`` leaves contact forces 0, which Humanoid shows; here they are computed, as Gymnasium does.
There is no snapshot: a collector plays the actions again.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.atari import one_seed_per_lane
from rlbench.envs.base import EnvInfo, Frames, Step
from rlbench.envs.envpool import REMEDY
from rlbench.envs.gymnasium import Stretch, bare
from rlbench.envs.inspection import Inspection
from rlbench.envs.mujoco import PACKAGE
from rlbench.errors import UsageError


class EnvPoolMujocoVector:
    """N lanes of one task, such as ``HalfCheetah-v4``; ``limit``: agent steps an episode may last, else the task's."""

    def __init__(self, *, task: str, seeds: Sequence[int], threads: int, limit: int | None = None) -> None:
        _, steps = bare(task, package=PACKAGE)
        if find_spec("envpool") is None:
            raise UsageError(f"{task}: EnvPool is not installed: {REMEDY}")
        self._pool: Any = import_module("envpool").make(
            task,
            env_type="gymnasium",
            num_envs=len(one_seed_per_lane(seeds)),
            num_threads=threads,
            seed=list(one_seed_per_lane(seeds)),
            max_episode_steps=steps if limit is None else limit,
            post_constraint=True,
        )
        self._stretch: Final = Stretch.by(task, self._pool.action_space)
        self.info: Final = EnvInfo(
            lanes=len(seeds),
            obs_shape=tuple(self._pool.observation_space.shape),
            obs_dtype=np.dtype(np.float32),
            actions=self._stretch.actions,
            versions=(("env", f"envpool/{task}"), ("envpool", version("envpool"))),
        )
        self._inspection = Inspection(name=f"envpool/{task}", info=self.info)
        self._lane = np.arange(len(seeds))
        self._lane.flags.writeable = False

    def reset(self) -> Frames:
        """Begin every lane's first episode, ``[N, *obs_shape]``."""
        with self._inspection.guarded():
            obs, info = self._pool.reset()
            return self._inspection.begun(self._sorted(obs, info))

    def send(self, action: NDArray[Any]) -> None:
        """Set all lanes going: one whose episode is over resets itself."""
        self._inspection.action(action)
        with self._inspection.guarded():
            self._pool.send(self._stretch(action).astype(np.float64), self._lane)

    def recv(self) -> Step:
        """Wait for the answers to the last ``send``."""
        with self._inspection.guarded():
            obs, reward, terminated, truncated, info = self._pool.recv()
            order = np.argsort(info["env_id"])
        reward, terminated, truncated = reward[order], terminated[order], truncated[order]
        step = Step(
            obs=self._sorted(obs, info),
            reward=reward,
            terminated=terminated,
            truncated=truncated & ~terminated,
            lane=self._lane,
            score=reward.astype(np.float64),
            over=terminated | truncated,
        )
        return self._inspection.answered(step)

    def close(self) -> None:
        """Join the pool's threads; idempotent."""
        self._pool.close()

    def _sorted(self, obs: NDArray[np.float64], info: dict[str, Any]) -> Frames:
        sorted_obs: Frames = obs[np.argsort(info["env_id"])].astype(self.info.obs_dtype)
        return sorted_obs
