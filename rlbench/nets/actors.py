"""Observations to policies over real actions in [−1, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rlbench.nets.torsos import MlpTorso
from rlbench.ops.policy import Deterministic, Gaussian, Squashed


class DeterministicActor(nn.Module):
    """``[B, ...]`` to one action, through tanh."""

    def __init__(self, *, obs_shape: tuple[int, ...], actions: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.torso = MlpTorso(obs_shape=obs_shape, widths=widths)
        self.action = nn.Linear(self.torso.features, actions)

    def forward(self, obs: Tensor) -> Deterministic:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B, A]``."""
        return Deterministic(self.action(self.torso(obs)).tanh())


class SquashedActor(nn.Module):
    """``[B, ...]`` to a squashed Gaussian whose spread depends on the observation."""

    def __init__(
        self,
        *,
        obs_shape: tuple[int, ...],
        actions: int,
        widths: Sequence[int],
        low: float,
        high: float,
        log_scale: float = 0.0,
    ) -> None:
        super().__init__()
        self.low, self.high = low, high  # bounds of the logarithm of the spread
        self.log_scale = log_scale  # Σ log(action scale), as in ``Squashed``
        self.torso = MlpTorso(obs_shape=obs_shape, widths=widths)
        self.mean = nn.Linear(self.torso.features, actions)
        self.log_std = nn.Linear(self.torso.features, actions)

    def forward(self, obs: Tensor) -> Squashed:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B, A]``."""
        features = self.torso(obs)
        return Squashed(self.mean(features), self.log_std(features).clamp(self.low, self.high), self.log_scale)


class BoundedActor(nn.Module):
    """``[B, ...]`` to a Gaussian whose mean is within bounds and whose spread is the same everywhere.

    Its samples may lie beyond the bounds; the density at ±1, where much data lies, is finite.
    """

    def __init__(
        self, *, obs_shape: tuple[int, ...], actions: int, widths: Sequence[int], low: float, high: float
    ) -> None:
        super().__init__()
        self.low, self.high = low, high  # bounds of the logarithm of the spread
        self.torso = MlpTorso(obs_shape=obs_shape, widths=widths)
        self.mean = nn.Linear(self.torso.features, actions)
        self.log_std = nn.Parameter(torch.zeros(actions))

    def forward(self, obs: Tensor) -> Gaussian:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B, A]``."""
        mean = self.mean(self.torso(obs)).tanh()
        return Gaussian(mean, self.log_std.clamp(self.low, self.high).expand_as(mean))
