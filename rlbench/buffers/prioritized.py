"""Prioritized sampling; the cost of a draw grows with the square root of the capacity."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlbench.buffers.samplers import SampleRange
from rlbench.ops.state_dict import Composite, State

EPSILON = torch.finfo(torch.float32).eps
"""Added to every priority, so that no transition gets probability 0."""

MAX_PRIORITY = 1e12
"""Higher priorities are clipped to this."""


class PrioritizedSampler(Composite):
    """Proportional prioritization (https://arxiv.org/abs/1511.05952, eq. 1 and section 3.4), stratified.

    The masses pᵅ lie in √n blocks of √n, with the sum of each block. A changed mass recomputes the sum of its block,
    so rounding errors do not accumulate, however long the run. A draw searches the block sums, then one block. All
    tensors have a fixed shape and stay on the device. Slots that may not be drawn have mass 0.
    """

    saved = ("generator", "mass", "top")

    def __init__(self, generator: torch.Generator, *, capacity: int, num_envs: int, alpha: float, beta: float) -> None:
        device = generator.device
        self.generator, self.num_envs, self.alpha = generator, num_envs, alpha
        width = math.isqrt(max(capacity - 1, 1)) + 1
        self.mass = torch.zeros(-(-capacity // width), width, dtype=torch.float64, device=device)
        self.sums = torch.zeros(len(self.mass), dtype=torch.float64, device=device)
        self.top = torch.ones((), device=device)  # the highest priority seen: what a new transition starts with
        self.beta = torch.tensor(beta, dtype=torch.float64, device=device)

    def set_beta(self, beta: float) -> None:
        """Set the exponent β of the importance weights; 1 corrects the bias fully."""
        self.beta.fill_(beta)

    def admit(self, row: int | Tensor, final: Tensor, expired_row: int | Tensor, env_ids: Tensor) -> None:
        """Give the new row of envs ``[M]`` the highest priority so far; a final or an expired slot gets mass 0.

        ``row`` and ``expired_row``, which is soon overwritten, are one for all envs or ``[M]``.
        """
        self._set_mass(expired_row * self.num_envs + env_ids, torch.zeros_like(final, dtype=torch.float64))
        self._set_mass(row * self.num_envs + env_ids, self.top.double() ** self.alpha * ~final)

    def draw(self, batch: int, slots: SampleRange) -> tuple[Tensor, Tensor]:  # noqa: ARG002 - what may be drawn has mass
        """``[B]`` slots, one from each of as many strata of equal mass, and weights ``[B]``, the largest 1."""
        total = self.sums.cumsum(0)
        uniform = torch.rand(batch, generator=self.generator, device=total.device, dtype=torch.float64)
        stratum = torch.arange(batch, device=total.device, dtype=torch.float64)
        target = _below((stratum + uniform) / batch * total[-1], total[-1])
        block = torch.searchsorted(total, target, right=True).clamp_max(len(total) - 1)
        within = self.mass[block].cumsum(1)  # [B, √n]
        rest = _below(target - (total[block] - self.sums[block]), within[:, -1]).clamp_min(0)
        column = torch.searchsorted(within, rest[:, None], right=True).squeeze(1).clamp_max(within.shape[1] - 1)
        mass = self.mass[block, column]
        least_mass = torch.where(mass > 0, mass, torch.inf).amin()
        weight = torch.where(mass > 0, (least_mass / mass) ** self.beta, 0.0)  # mass 0: the ring is empty
        return block * self.mass.shape[1] + column, weight.float()

    def update_priorities(self, slot: Tensor, priority: Tensor) -> None:
        """Set the priorities ``[B]`` of slots ``[B]``; of a slot that was drawn twice, the higher counts.

        NaN counts as 0 and infinity as ``MAX_PRIORITY``: the loss reports them, and the masses stay finite.
        """
        priority = priority.nan_to_num(0.0, posinf=MAX_PRIORITY, neginf=0.0).clamp(0.0, MAX_PRIORITY)
        self.top.copy_(torch.maximum(self.top, priority.max()))
        self._set_mass(slot, (priority.double() + EPSILON) ** self.alpha * (self.mass.view(-1)[slot] > 0))

    def load_state_dict(self, state: State) -> None:
        """Restore generator and masses, and recompute the sums, which follow from them."""
        super().load_state_dict(state)
        self.sums.copy_(self.mass.sum(1))

    def _set_mass(self, slot: Tensor, mass: Tensor) -> None:
        flat, block = self.mass.view(-1), slot // self.mass.shape[1]
        flat.index_fill_(0, slot, 0.0)
        flat.scatter_reduce_(0, slot, mass, "amax")
        self.sums[block] = self.mass[block].sum(1)


def _below(value: Tensor, limit: Tensor) -> Tensor:
    """``value``, or the next number below ``limit`` where rounding has reached it, so that the search ends inside."""
    return torch.minimum(value, torch.nextafter(limit, torch.zeros_like(limit)))
