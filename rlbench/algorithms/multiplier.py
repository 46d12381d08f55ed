"""The multiplier of CQL's gap: a constant 1, or a learned one."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rlbench.algorithms.base import optimize
from rlbench.ops.state_dict import Composite, Parts


class LagrangeMultiplier(Composite):
    """What a gap costs: 1, or learned so that the weighted gap meets a threshold (eq. 30 of the paper)."""

    def __init__(
        self, *, device: torch.device, lagrange_threshold: float | None = None, lr: float = 0.0, max_multiplier: float
    ) -> None:
        self.lagrange_threshold, self.max_multiplier = lagrange_threshold, max_multiplier
        self.log = nn.Parameter(torch.zeros((), device=device))
        self.optimizer = torch.optim.Adam([self.log], lr=lr, fused=True)

    def value(self) -> Tensor:
        """The multiplier, ``[]``, of which nothing is learned."""
        return self.log.detach().exp().clamp(0, self.max_multiplier)

    def learn(self, gap: Tensor, rows: Tensor) -> None:
        """One step, where there is a threshold: up while the gap ``[]`` is above it; no ``rows`` ask for no change."""
        if self.lagrange_threshold is not None:
            excess = torch.where(rows > 0, gap - self.lagrange_threshold, 0.0)
            optimize(-self.log.exp() * excess, self.optimizer)
            self.log.data.clamp_(max=math.log(self.max_multiplier))  # the logarithm itself, or it would never come back

    @property
    def parts(self) -> Parts:
        """The logarithm of the multiplier and its optimizer."""
        return {"log": self.log, "optimizer": self.optimizer}
