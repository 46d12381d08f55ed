"""Implicit quantile heads: IQN samples the quantile fractions, FQF learns to propose them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlbench.nets.dueling import HeadMLP
from rlbench.ops.quantiles import QuantileReturn
from rlbench.ops.return_distributions import ReturnDistribution, gather_actions
from rlbench.ops.types import Role


class IQNHead(nn.Module):
    """IQN: the inverse CDF at sampled fractions, through a cosine embedding (https://arxiv.org/abs/1806.06923)."""

    frequencies: Tensor

    def __init__(self, streams: HeadMLP, *, features: int, samples: Mapping[Role, int], cosines: int) -> None:
        super().__init__()
        self.streams, self.embed, self.samples = streams, nn.Linear(cosines, features), samples
        self.register_buffer("frequencies", math.pi * torch.arange(1, cosines + 1), persistent=False)

    def at_taus(self, features: Tensor, taus: Tensor, role: Role) -> Tensor:
        """The inverse CDF at ``taus``: ``[B, F]``, ``[B, Q]`` to ``[B, A, Q]`` (eq. 4)."""
        cosines = (taus[..., None] * self.frequencies).cos()
        y: Tensor = self.streams(features[:, None] * self.embed(cosines).relu_(), role)  # [B, Q, A, 1]
        return y.squeeze(-1).transpose(1, 2)

    def forward(self, features: Tensor, role: Role) -> QuantileReturn:
        """``[B, F]`` to ``[B, A, Q]``; the role sets the number of fractions Q."""
        taus = torch.rand(len(features), self.samples[role], device=features.device, dtype=features.dtype)
        return QuantileReturn(self.at_taus(features, taus, role), taus, torch.full_like(taus, 1 / taus.shape[1]))


class FQFHead(IQNHead):
    """FQF: IQN whose fractions are proposed by a layer of its own (https://arxiv.org/abs/1911.02140)."""

    def __init__(self, streams: HeadMLP, *, features: int, count: int, entropy: float, cosines: int) -> None:
        super().__init__(streams, features=features, samples={}, cosines=cosines)
        self.proposal, self.entropy = nn.Linear(features, count), entropy
        nn.init.xavier_uniform_(self.proposal.weight, gain=0.01)  # nearly equal fractions at first
        nn.init.zeros_(self.proposal.bias)

    def edges(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The proposed 0 = τ₀ < … < τ_Q = 1, ``[B, Q + 1]``, and the entropy of their gaps, ``[B]``."""
        parts = self.proposal(features.detach()).log_softmax(-1)
        return F.pad(parts.exp().cumsum(-1), (1, 0)), -(parts.exp() * parts).sum(-1)

    def forward(self, features: Tensor, role: Role) -> QuantileReturn:
        """``[B, F]`` to ``[B, A, Q]``: the inverse CDF at the midpoint of each proposed fraction."""
        edges = self.edges(features)[0].detach()
        taus = (edges[:, 1:] + edges[:, :-1]) / 2
        return QuantileReturn(self.at_taus(features, taus, role), taus, edges.diff(dim=-1))

    def fraction_loss(self, features: Tensor, action: Tensor, value: ReturnDistribution) -> Tensor:
        """A loss ``[]`` with the gradient of the 1-Wasserstein error (Proposition 1), less the entropy; all rows count.

        Raises:
            TypeError: ``value`` is no ``QuantileReturn``.
        """
        if not isinstance(value, QuantileReturn):
            raise TypeError(type(value).__name__)
        edges, entropy = self.edges(features)
        inner = edges[:, 1:-1]
        with torch.no_grad():
            edge = gather_actions(self.at_taus(features, inner, "learn"), action)  # [B, Q - 1]
            gradient = 2 * edge - value.values[:, :-1] - value.values[:, 1:]
        return ((gradient * inner).sum(-1) - self.entropy * entropy).mean()
