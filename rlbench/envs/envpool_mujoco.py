"""Gymnasium's MuJoCo ``-v4`` tasks by EnvPool: one pool of C++ threads under all envs; an optional extra.

Differences from ``envs/mujoco.py``, measured with EnvPool 1.2.5 from equal first states under equal actions:

* EnvPool brings a MuJoCo of its own, newer than the locked one. Both compute in float64. InvertedPendulum,
  InvertedDoublePendulum and Reacher agree to the last bit or two, HalfCheetah, Swimmer and Walker2d to rounding
  (1e-12 after twenty steps, growing exponentially); Ant, Hopper and Humanoid until the first contact with the ground,
  after which their trajectories differ;
* rewards are float32, and so are the scores;
* first states come from EnvPool's own generator: the same distribution, other numbers.

EnvPool's own ``-v4`` leaves contact forces 0, which Humanoid shows; here they are computed, as Gymnasium does.
There is no snapshot: a collector replays the actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.base import Frames, Step
from rlbench.envs.envpool_async import EnvPoolMujocoAsync


class EnvPoolMujocoVector:
    """N envs of one task, such as ``HalfCheetah-v4``; ``limit``: agent steps an episode may last, else the task's."""

    def __init__(self, *, task: str, seeds: Sequence[int], threads: int, limit: int | None = None) -> None:
        self._async = EnvPoolMujocoAsync(task=task, seeds=seeds, threads=threads, async_batch=len(seeds), limit=limit)
        self.info: Final = self._async.info
        self._env_ids = np.arange(len(seeds))

    def reset(self) -> Frames:
        """Begin every env's first episode, ``[N, *obs_shape]``."""
        return self._async.reset()

    def send(self, action: NDArray[Any]) -> None:
        """Start a step of all envs with actions ``[N, A]``; an env whose episode is over resets itself."""
        self._async.send(action, self._env_ids)

    def recv(self) -> Step:
        """Wait for the answers to the last ``send``."""
        return self._async.recv()

    def close(self) -> None:
        """Join the pool's threads; idempotent."""
        self._async.close()
