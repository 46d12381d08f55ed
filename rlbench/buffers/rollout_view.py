"""A view of a ring that returns the newest rows in the order of time, for on-policy learners."""

from __future__ import annotations

import torch

from rlbench.buffers.ring import Ring
from rlbench.ops.types import Rollout


class RolloutView:
    """The newest rows of a ring."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def rollout(self, rows: int) -> Rollout:
        """The newest ``rows`` complete rows and every env's newest observation, in the order of time."""
        ring = self.ring
        order = (ring.head - rows + torch.arange(rows + 1, device=ring.head.device)) % ring.length
        slots = order[:, None] * ring.num_envs + ring.env_ids
        past = order[:-1]
        return Rollout(
            obs=torch.unflatten(ring.stack_frames(slots.flatten()), 0, slots.shape),
            action=ring.action[past],
            reward=ring.reward[past],
            terminated=ring.terminated[past],
            done=ring.done[past],
            dead=ring.dead[past],
        )
