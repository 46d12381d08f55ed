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
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.base import Frames, Step
from rlbench.envs.envpool_async import EnvPoolMujocoAsync


class EnvPoolMujocoVector:
    """N lanes of one task, such as ``HalfCheetah-v4``; ``limit``: agent steps an episode may last, else the task's."""

    def __init__(self, *, task: str, seeds: Sequence[int], threads: int, limit: int | None = None) -> None:
        self._lanes = EnvPoolMujocoAsync(task=task, seeds=seeds, threads=threads, async_batch=len(seeds), limit=limit)
        self.info: Final = self._lanes.info
        self._all = np.arange(len(seeds))

    def reset(self) -> Frames:
        """Begin every lane's first episode, ``[N, *obs_shape]``."""
        return self._lanes.reset()

    def send(self, action: NDArray[Any]) -> None:
        """Set all lanes going with actions ``[N, A]``: one whose episode is over resets itself."""
        self._lanes.send(action, self._all)

    def recv(self) -> Step:
        """Wait for the answers to the last ``send``."""
        return self._lanes.recv()

    def close(self) -> None:
        """Join the pool's threads; idempotent."""
        self._lanes.close()
