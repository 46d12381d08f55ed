"""A ring that hands out every step of what is drawn, for learners that judge steps."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.buffers.ring import Ring
from rlbench.ops.types import NStepTrajectory


class TrajectoryView:
    """Draws from a ring as the ring itself would."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def sample(self, batch: int) -> NStepTrajectory:
        """``batch`` transitions of the ring's sampler with every step on their way."""
        ring, drawn = self.ring, self.ring.sample(batch)
        path = ring.onward(drawn.slot[:, None], torch.arange(ring.n_step + 1, device=drawn.slot.device))
        steps = path[:, :-1]
        return NStepTrajectory(
            drawn=drawn,
            obs=torch.unflatten(ring.stacked(path.flatten()), 0, path.shape),
            action=ring.action.flatten(0, 1)[steps],
            share=ring.counted(steps) * ring.powers[:-1],
        )

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Tell the ring what was learned of slots ``[B]``."""
        self.ring.reprioritize(slot, priority)
