"""A view of a ring that returns every step of the sampled n-step transitions, for ICM."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.buffers.ring import Ring
from rlbench.ops.types import NStepTrajectory


class TrajectoryView:
    """Sample whole trajectories with the ring's own sampler."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def sample(self, batch: int) -> NStepTrajectory:
        """``batch`` transitions ``[B]`` of the ring's sampler, with every step of each."""
        ring, transition = self.ring, self.ring.sample(batch)
        path = ring.slots_ahead(transition.slot[:, None], torch.arange(ring.n_step + 1, device=transition.slot.device))
        steps = path[:, :-1]
        return NStepTrajectory(
            transition=transition,
            obs=torch.unflatten(ring.stack_frames(path.flatten()), 0, path.shape),
            action=ring.action.flatten(0, 1)[steps],
            share=ring.episode_mask(steps) * ring.powers[:-1],
        )

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Set the priorities ``[B]`` of slots ``[B]`` in the ring."""
        self.ring.reprioritize(slot, priority)
