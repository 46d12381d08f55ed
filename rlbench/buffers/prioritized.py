"""Slots drawn in proportion to their priority, at a cost that grows with the square root of what is stored."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlbench.buffers.samplers import Span
from rlbench.ops.state_dict import State, tensor

LEAST = torch.finfo(torch.float32).eps
"""Added to every priority, so that nothing is forgotten for good."""

MOST = 1e12
"""The highest priority that counts."""


class Prioritized:
    """Proportional prioritization (https://arxiv.org/abs/1511.05952, eq. 1 and section 3.4), stratified.

    The masses pᵅ lie in √n blocks of √n; beside them the sum of each block. A change of a mass adds its block up
    again from its masses, so no rounding error can gather, however long the run. A draw searches the block sums,
    then one block. All of it is of fixed shape and on the device. Slots that may not be drawn have no mass.
    """

    def __init__(self, generator: torch.Generator, *, capacity: int, lanes: int, alpha: float, beta: float) -> None:
        device = generator.device
        self.generator, self.lanes, self.alpha = generator, lanes, alpha
        width = math.isqrt(max(capacity - 1, 1)) + 1
        self.mass = torch.zeros(-(-capacity // width), width, dtype=torch.float64, device=device)
        self.sums = torch.zeros(len(self.mass), dtype=torch.float64, device=device)
        self.top = torch.ones((), device=device)  # the highest priority seen: what a new transition starts with
        self.beta = torch.tensor(beta, dtype=torch.float64, device=device)

    def anneal(self, beta: float) -> None:
        """How far importance weights undo the preference from now on; 1 is wholly."""
        self.beta.fill_(beta)

    def moved(self, fresh: int | Tensor, dead: Tensor, stale: int | Tensor, lane: Tensor) -> None:
        """In lanes ``[M]`` a new row gets the highest priority so far, a dead slot none, a row about to go none."""
        self._put(stale * self.lanes + lane, torch.zeros_like(dead, dtype=torch.float64))
        self._put(fresh * self.lanes + lane, self.top.double() ** self.alpha * ~dead)

    def draw(self, batch: int, span: Span) -> tuple[Tensor, Tensor]:  # noqa: ARG002 - what may be drawn has mass
        """``[B]`` slots, one from each of as many equal shares of the mass, and weights ``[B]``, the largest 1."""
        total = self.sums.cumsum(0)
        coin = torch.rand(batch, generator=self.generator, device=total.device, dtype=torch.float64)
        share = torch.arange(batch, device=total.device, dtype=torch.float64)
        aim = _below((share + coin) / batch * total[-1], total[-1])
        block = torch.searchsorted(total, aim, right=True).clamp_max(len(total) - 1)
        within = self.mass[block].cumsum(1)  # [B, √n]
        rest = _below(aim - (total[block] - self.sums[block]), within[:, -1]).clamp_min(0)
        place = torch.searchsorted(within, rest[:, None], right=True).squeeze(1).clamp_max(within.shape[1] - 1)
        drawn = self.mass[block, place]
        least = torch.where(drawn > 0, drawn, torch.inf).amin()
        weight = torch.where(drawn > 0, (least / drawn) ** self.beta, 0.0)  # no mass: nothing was there to draw
        return block * self.mass.shape[1] + place, weight.float()

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """New priorities ``[B]`` of slots ``[B]``; of one that was drawn twice, the higher counts.

        What is not a number is taken for 0 and infinity for ``MOST``: the loss tells of it, the masses stay sound.
        """
        priority = priority.nan_to_num(0.0, posinf=MOST, neginf=0.0).clamp(0.0, MOST)
        self.top.copy_(torch.maximum(self.top, priority.max()))
        self._put(slot, (priority.double() + LEAST) ** self.alpha * (self.mass.view(-1)[slot] > 0))

    def state_dict(self) -> State:
        """Generator and masses; the sums follow from them."""
        return {"generator": self.generator.get_state(), "mass": self.mass, "top": self.top}

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        self.generator.set_state(tensor(state, "generator"))
        self.mass.copy_(tensor(state, "mass"))
        self.top.copy_(tensor(state, "top"))
        self.sums.copy_(self.mass.sum(1))

    def _put(self, slot: Tensor, mass: Tensor) -> None:
        flat, block = self.mass.view(-1), slot // self.mass.shape[1]
        flat.index_fill_(0, slot, 0.0)
        flat.scatter_reduce_(0, slot, mass, "amax")
        self.sums[block] = self.mass[block].sum(1)


def _below(value: Tensor, limit: Tensor) -> Tensor:
    """``value``, or the next number below ``limit`` where rounding has reached it: a search must end inside."""
    return torch.minimum(value, torch.nextafter(limit, torch.zeros_like(limit)))
