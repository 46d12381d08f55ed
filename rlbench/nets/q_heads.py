"""Q-heads: features to the value of each action; the head's type distinguishes DQN, C51 and QR-DQN."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from rlbench.nets.dueling import HeadMLP
from rlbench.ops.quantiles import QuantileReturn
from rlbench.ops.return_distributions import CategoricalReturn, ExpectedReturn, ReturnDistribution
from rlbench.ops.types import Role


class QHead(Protocol):
    """Features ``[B, F]`` to a ``ReturnDistribution``, in a ``role``."""

    def __call__(self, features: Tensor, role: Role) -> ReturnDistribution:
        """The value of every action, ``[B, A, ...]``."""


class DQNHead(nn.Module):
    """DQN: one number per action."""

    def __init__(self, streams: HeadMLP, *, huber: float | None) -> None:
        super().__init__()
        self.streams, self.huber = streams, huber

    def forward(self, features: Tensor, role: Role) -> ExpectedReturn:
        """``[B, F]`` to ``[B, A]``."""
        return ExpectedReturn(self.streams(features, role).squeeze(-1), self.huber)


class C51Head(nn.Module):
    """C51: one logit per action and atom."""

    atoms: Tensor

    def __init__(self, streams: HeadMLP, *, v_min: float, v_max: float) -> None:
        super().__init__()
        self.streams = streams
        self.register_buffer("atoms", torch.linspace(v_min, v_max, streams.shape[1]), persistent=False)

    def forward(self, features: Tensor, role: Role) -> CategoricalReturn:
        """``[B, F]`` to ``[B, A, Q]`` on ``[Q]``."""
        return CategoricalReturn(self.streams(features, role), self.atoms)


class QRDQNHead(nn.Module):
    """QR-DQN: the inverse CDF at the midpoints of equal fractions."""

    def __init__(self, streams: HeadMLP) -> None:
        super().__init__()
        self.streams = streams

    def forward(self, features: Tensor, role: Role) -> QuantileReturn:
        """``[B, F]`` to ``[B, A, Q]``."""
        values: Tensor = self.streams(features, role)
        count = values.shape[-1]
        taus = (torch.arange(count, device=values.device, dtype=values.dtype) + 0.5) / count
        return QuantileReturn(values, taus.expand(len(values), -1), values.new_full((len(values), count), 1 / count))


class QNet(nn.Module):
    """A Q-network: a torso and a head."""

    def __init__(self, torso: nn.Module, head: QHead) -> None:
        super().__init__()
        self.torso, self.head = torso, head

    def forward(self, obs: Tensor, role: Role) -> ReturnDistribution:
        """The value of every action at ``obs`` ``[B, ...]``, ``[B, A, ...]``."""
        return self.head(self.torso(obs), role)
