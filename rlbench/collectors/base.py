"""Protocols of the learner and the buffer that a collector uses."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlbench.ops.types import Role


class Actor(Protocol):
    """Policy that acts."""

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Actions of the policy without exploration, ``[N]`` or ``[N, A]``."""


class StepBuffer(Protocol):
    """Buffer that stacks frames and stores transitions."""

    def add_observations(self, frames: NDArray[np.generic]) -> Tensor:
        """Begin a row; return the frames ``[N, ...]`` stacked, on the device."""

    def newest_observations(self) -> Tensor:
        """The newest row, stacked, ``[N, ...]``."""

    def add_transitions(
        self, action: Tensor, reward: NDArray[np.float32], terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]
    ) -> None:
        """Complete the row with the actions ``[N, ...]`` and their rewards and ends, each ``[N]``."""

    def truncate_episodes(self) -> None:
        """Truncate the running episodes."""
