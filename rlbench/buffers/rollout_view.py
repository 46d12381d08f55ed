"""Views of a ring: rollouts for on-policy learners, n-step trajectories for curiosity."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.buffers.ring import RingBuffer
from rlbench.ops.types import NStepTrajectory, Rollout


def newest_rollout(ring: RingBuffer, rows: int) -> Rollout:
    """The newest ``rows`` complete rows and every env's newest observation, in the order of time."""
    order = (ring.head - rows + torch.arange(rows + 1, device=ring.head.device)) % ring.length
    slots = order[:, None] * ring.num_envs + ring.env_ids
    past = order[:-1]
    return Rollout(
        obs=torch.unflatten(ring.stack_frames(slots.flatten()), 0, slots.shape),
        action=ring.action[past],
        reward=ring.reward[past],
        terminated=ring.terminated[past],
        done=ring.done[past],
        final=ring.final[past],
    )


class TrajectoryView:
    """Sample whole trajectories with the ring's own sampler."""

    def __init__(self, ring: RingBuffer) -> None:
        self.ring = ring

    def sample(self, batch: int) -> NStepTrajectory:
        """``batch`` transitions ``[B]`` of the ring's sampler, with every step of each."""
        ring, transition = self.ring, self.ring.sample(batch)
        path = ring.shift_slots(transition.slot[:, None], torch.arange(ring.n_step + 1, device=transition.slot.device))
        steps = path[:, :-1]
        return NStepTrajectory(
            transition=transition,
            obs=torch.unflatten(ring.stack_frames(path.flatten()), 0, path.shape),
            action=ring.action.flatten(0, 1)[steps],
            discounts=ring.episode_mask(steps) * ring.discounts[:-1],
        )

    def update_priorities(self, slot: Tensor, priority: Tensor) -> None:
        """Set the priorities ``[B]`` of slots ``[B]`` in the ring."""
        self.ring.update_priorities(slot, priority)
