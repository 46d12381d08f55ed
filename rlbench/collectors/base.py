"""What a collector needs of a learner and of a buffer, and nothing of how they work."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlbench.ops.types import Role


class Actor(Protocol):
    """What a collector needs of a learner."""

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Preferred actions, ``[N]`` or ``[N, A]``."""


class Recorder(Protocol):
    """What a collector needs of a buffer."""

    def observe(self, frames: NDArray[np.generic]) -> Tensor:
        """Begin a row; gives the frames ``[N, ...]`` stacked, on the device."""

    def newest(self) -> Tensor:
        """The row begun last, stacked, ``[N, ...]``."""

    def record(
        self, action: Tensor, reward: NDArray[np.float32], terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]
    ) -> None:
        """Complete the row: what each lane did ``[N, ...]``, and what it got for it, each ``[N]``."""

    def close(self) -> None:
        """Truncate what is running."""
