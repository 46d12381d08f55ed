"""A ring that hands out every step of what is drawn, for learners that judge steps."""

from __future__ import annotations

from torch import Tensor

from rlbench.buffers.ring import Ring
from rlbench.ops.types import Walk


class Walks:
    """Draws from a ring as the ring itself would."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def sample(self, batch: int) -> Walk:
        """``batch`` transitions of the ring's sampler with their steps."""
        return self.ring.walk(batch)

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Tell the ring what was learned of slots ``[B]``."""
        self.ring.reprioritize(slot, priority)
