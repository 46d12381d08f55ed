"""Hindsight experience replay: a goal achieved later replaces the desired goal (https://arxiv.org/abs/1707.01495).

A flat observation is ``[observation | achieved goal | desired goal]``. Strategy "future": in a share of the sampled
transitions the desired goal becomes one that their own episode achieved later. Each such transition gets one new goal,
in both observations and in every reward of its n-step return; flags and discount stay. Only the sampled batch is
relabelled; the ring is not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from rlbench.buffers.ring import RingBuffer
from rlbench.ops.state_dict import Composite
from rlbench.ops.types import Transition

Reward: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Rewards ``[M]`` of achieved goals ``[M, G]``, each for its desired one, ``[M, G]``."""


class HindsightReplay(Composite):
    """Sample from a ring, then relabel a share of the transitions with another goal."""

    saved = ("generator", "ring")

    def __init__(
        self,
        *,
        ring: RingBuffer,
        goal: int,
        reward: Reward,
        her_ratio: float,
        max_episode_steps: int,
        generator: torch.Generator,
    ) -> None:
        """``goal`` is its width; ``her_ratio`` is Tianshou's 1 − 1/k (SB3 has 1 − 1/(k + 1)).

        Goals lie at most ``max_episode_steps`` ahead.
        """
        self.ring, self.reward, self.generator = ring, reward, generator
        self.her_ratio, self.max_episode_steps = her_ratio, max_episode_steps
        width = ring.obs.shape[2]
        self.achieved, self.desired = slice(width - 2 * goal, width - goal), slice(width - goal, None)

    def sample(self, batch: int) -> Transition:
        """``batch`` transitions of the ring's sampler, each relabelled with probability ``her_ratio``."""
        plain, uniform = self.ring.sample(batch), self._uniform(batch)
        mask = (uniform[0] < self.her_ratio) & (plain.weight > 0)  # a final row has no future of its own
        offset = 1 + (uniform[1] * steps_to_episode_end(self.ring, plain.slot, self.max_episode_steps)).long()
        goal = self._achieved_goals(self.ring.shift_slots(plain.slot, offset))
        return plain._replace(
            obs=self._relabel(plain.obs, goal, mask),
            next_obs=self._relabel(plain.next_obs, goal, mask),
            reward=torch.where(mask, self._relabelled_return(plain.slot, goal), plain.reward),
        )

    def update_priorities(self, slot: Tensor, priority: Tensor) -> None:
        """Set the priorities ``[B]`` of slots ``[B]`` in the ring."""
        self.ring.update_priorities(slot, priority)

    def _uniform(self, batch: int) -> Tensor:
        return torch.rand(2, batch, generator=self.generator, device=self.generator.device, dtype=torch.float64)

    def _achieved_goals(self, slot: Tensor) -> Tensor:
        return self.ring.obs.flatten(0, 1)[slot][..., self.achieved]

    def _relabel(self, obs: Tensor, goal: Tensor, mask: Tensor) -> Tensor:
        """Observations ``[B, …]`` with ``goal`` ``[B, G]`` in place of the desired one where ``mask`` ``[B]``."""
        rest, desired = obs[:, : self.desired.start], obs[:, self.desired]
        return torch.cat([rest, torch.where(mask[:, None], goal, desired)], 1)

    def _relabelled_return(self, slot: Tensor, goal: Tensor) -> Tensor:
        """The n-step returns ``[B]`` from ``slot`` on if ``goal`` had been desired."""
        path = self.ring.shift_slots(slot[:, None], self.ring.step_offsets)
        goals = self._achieved_goals(self.ring.shift_slots(path, 1))  # [B, n_step, G]: after every step
        rewards = self.reward(goals.flatten(0, 1), goal.repeat_interleave(self.ring.n_step, 0))
        mask = self.ring.episode_mask(path)
        return (rewards.view(len(slot), -1) * mask * self.ring.discounts[:-1]).sum(1)


def steps_to_episode_end(ring: RingBuffer, slot: Tensor, max_episode_steps: int) -> Tensor:
    """Count the steps ``[B]`` from slots ``[B]`` to the end of their episodes, 1 … ``max_episode_steps``."""
    done = ring.done.view(-1)[ring.shift_slots(slot[:, None], torch.arange(max_episode_steps, device=slot.device))]
    steps = (done.cumsum(1) == 0).sum(1)  # steps from the slot on that do not end the episode
    head = ring.head.expand(ring.num_envs)[slot % ring.num_envs]
    newest = (head - slot // ring.num_envs) % ring.length  # what is further ahead is older
    return torch.minimum(steps + 1, newest).clamp_max(max_episode_steps)
