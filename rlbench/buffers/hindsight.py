"""Hindsight experience replay: what was reached later is taken for what was wanted (https://arxiv.org/abs/1707.01495).

A flat observation is ``[observation | achieved goal | desired goal]``. Strategy "future": of a share of the drawn
transitions the desired goal becomes one that their own episode achieved after them. One new goal per transition, in
both observations and in every reward of its n-step sum; flags and discount stay. What was drawn is changed, the ring
never is, so nothing has to be put back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from rlbench.buffers.ring import Ring
from rlbench.ops.state_dict import State, branch, tensor
from rlbench.ops.types import Transition

Reward: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Rewards ``[M]`` of achieved goals ``[M, G]``, each for its desired one, ``[M, G]``."""


class GoalLayout(NamedTuple):
    """Sizes of the parts of a flat observation: ``observation``, then twice ``goal``."""

    observation: int  # numbers
    goal: int  # numbers


class Hindsight:
    """Draws from a ring as the ring itself would, then gives a share of what was drawn another goal."""

    def __init__(
        self,
        *,
        ring: Ring,
        layout: GoalLayout,
        reward: Reward,
        share: float,
        limit: int,
        generator: torch.Generator,
    ) -> None:
        """``share`` is 1 − 1/k in [0, 1]; ``limit`` the most steps an episode can have: goals lie no further ahead.

        Raises:
            ValueError: the ring's observations are not laid out so, or are stacked.
        """
        flat = (layout.observation + 2 * layout.goal,)
        if ring.stack != 1 or tuple(ring.obs.shape[2:]) != flat:
            raise ValueError(
                f"hindsight: observations are {ring.stack} × {tuple(ring.obs.shape[2:])}; needs 1 × {flat}"
            )
        self.ring, self.reward, self.share, self.limit, self.generator = ring, reward, share, limit, generator
        self.achieved = slice(layout.observation, layout.observation + layout.goal)
        self.desired = slice(layout.observation + layout.goal, None)
        self.after = torch.arange(1, ring.n_step + 1, device=generator.device)

    def sample(self, batch: int) -> Transition:
        """``batch`` transitions of the ring's sampler, each with probability ``share`` for a goal of its own future."""
        plain, coin = self.ring.sample(batch), self._coins(batch)
        changed = (coin[0] < self.share) & (plain.weight > 0)  # a dead row has no future of its own
        offset = 1 + (coin[1] * future(self.ring, plain.slot, self.limit)).long()
        goal = self._achieved(self.ring.onward(plain.slot, offset))
        return plain._replace(
            obs=self._wanting(plain.obs, goal, changed),
            next_obs=self._wanting(plain.next_obs, goal, changed),
            reward=torch.where(changed, self._summed(plain.slot, goal), plain.reward),
        )

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Tell the ring what was learned of slots ``[B]``."""
        self.ring.reprioritize(slot, priority)

    def state_dict(self) -> State:
        """The generator and the ring."""
        return {"generator": self.generator.get_state(), "ring": self.ring.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take both over."""
        self.generator.set_state(tensor(state, "generator"))
        self.ring.load_state_dict(branch(state, "ring"))

    def _coins(self, batch: int) -> Tensor:
        return torch.rand(2, batch, generator=self.generator, device=self.generator.device, dtype=torch.float64)

    def _achieved(self, slot: Tensor) -> Tensor:
        return self.ring.obs.flatten(0, 1)[slot][..., self.achieved]

    def _wanting(self, obs: Tensor, goal: Tensor, changed: Tensor) -> Tensor:
        """Observations ``[B, …]``, with ``goal`` ``[B, G]`` for the desired one where ``changed`` ``[B]``."""
        rest, wanted = obs[:, : self.desired.start], obs[:, self.desired]
        return torch.cat([rest, torch.where(changed[:, None], goal, wanted)], 1)

    def _summed(self, slot: Tensor, goal: Tensor) -> Tensor:
        """The n-step sums ``[B]`` that would have been paid on the way from ``slot``, had ``goal`` been desired."""
        achieved = self._achieved(self.ring.onward(slot[:, None], self.after))  # [B, horizon, G]: after every step
        paid = self.reward(achieved.flatten(0, 1), goal.repeat_interleave(len(self.after), 0))
        counted = self.ring.counted(self.ring.onward(slot[:, None], self.ring.ahead))
        return (paid.view(len(slot), -1) * counted * self.ring.powers[:-1]).sum(1)


def future(ring: Ring, slot: Tensor, limit: int) -> Tensor:
    """How many rows after each of ``[B]`` slots show its episode, the final observation too; 1 … ``limit``."""
    done = ring.done.view(-1)[ring.onward(slot[:, None], torch.arange(limit, device=slot.device))]
    unfinished = (done.cumsum(1) == 0).sum(1)  # steps from the slot on that do not end the episode
    head = ring.head.expand(ring.lanes)[slot % ring.lanes]
    newest = (head - slot // ring.lanes) % ring.length  # what is further ahead is older
    return torch.minimum(unfinished + 1, newest).clamp_max(limit)
