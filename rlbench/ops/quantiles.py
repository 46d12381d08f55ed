"""Quantiles of the return: the value type of QR-DQN, IQN and FQF."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rlbench.ops.return_distributions import gather_actions


class QuantileReturn(NamedTuple):
    """QR-DQN, IQN and FQF: the inverse CDF at some fractions (https://arxiv.org/abs/1710.10044)."""

    values: Tensor  # [B, A, Q] | [B, Q]
    taus: Tensor  # [B, Q] fractions at which the inverse CDF is evaluated
    mass: Tensor  # [B, Q] probability mass of each value; sums to 1

    def mean(self) -> Tensor:
        """Values weighted by their probability mass, ``[B, A]`` or ``[B]``."""
        mass = self.mass if self.values.dim() == self.mass.dim() else self.mass[:, None]
        return (self.values * mass).sum(-1)

    def at(self, action: Tensor) -> QuantileReturn:
        """The distributions of the given actions ``[B]``."""
        return self._replace(values=gather_actions(self.values, action))

    def backup(self, reward: Tensor, discount: Tensor) -> QuantileReturn:
        """Every value transformed to ``reward + discount · value``, of ``[B]``."""
        return self._replace(values=reward[:, None] + discount[:, None] * self.values)

    def loss(self, target: QuantileReturn) -> Tensor:
        """The quantile Huber loss (κ = 1), summed over the fractions, averaged over the target's, ``[B]`` (eq. 10)."""
        pairs = (-1, self.values.shape[1], target.values.shape[1])  # [B, Q, Q']
        target_values, values = target.values[:, None, :].expand(pairs), self.values[:, :, None].expand(pairs)
        huber = F.huber_loss(values, target_values, reduction="none")
        asymmetry = torch.where(target_values < values, 1 - self.taus[:, :, None], self.taus[:, :, None])
        return (asymmetry * huber).mean(2).sum(1)

    def priority(self, target: QuantileReturn, loss: Tensor) -> Tensor:  # noqa: ARG002 - that argument is the priority
        """The quantile Huber loss itself, ``[B]``."""
        return loss
