"""Policies: what a network says about which action to take, as values with a few verbs.

Each is a NamedTuple of tensors. A learner asks for the ``mode`` or a ``sample``, never for the network behind it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_ROOT_TAU = 0.5 * math.log(2 * math.pi)


class Deterministic(NamedTuple):
    """One action and no other (https://arxiv.org/abs/1509.02971)."""

    action: Tensor  # [B, A] in [-1, 1]

    def mode(self) -> Tensor:
        """The action itself."""
        return self.action

    def smoothed(self, scale: float, clip: float) -> Tensor:
        """The action with clipped Gaussian noise, kept in bounds: TD3's target (eq. 14 and 15), ``[B, A]``."""
        noise = (torch.randn_like(self.action) * scale).clamp(-clip, clip)
        return (self.action + noise).clamp(-1, 1)


class Squashed(NamedTuple):
    """The hyperbolic tangent of a diagonal Gaussian (https://arxiv.org/abs/1801.01290, appendix C)."""

    mean: Tensor  # [B, A] before the squashing
    log_std: Tensor  # [B, A] likewise

    def mode(self) -> Tensor:
        """The squashed mean, ``[B, A]``: what is done when nothing is to be tried."""
        return self.mean.tanh()

    def sample(self) -> tuple[Tensor, Tensor]:
        """An action in (−1, 1), ``[B, A]``, and its log-density, ``[B]``; differentiable in both parameters."""
        noise = torch.randn_like(self.mean)
        raw = self.mean + self.log_std.exp() * noise
        density = -0.5 * noise.square() - self.log_std - LOG_ROOT_TAU - _log_slope(raw)
        return raw.tanh(), density.sum(-1)

    def log_prob(self, raw: Tensor) -> Tensor:
        """The log-density of ``tanh(raw)``, ``[B]``; asked by what was squashed, for tanh cannot be undone at ±1."""
        standard = (raw - self.mean) * (-self.log_std).exp()
        density = -0.5 * standard.square() - self.log_std - LOG_ROOT_TAU - _log_slope(raw)
        return density.sum(-1)


def _log_slope(raw: Tensor) -> Tensor:
    """``log(1 − tanh²)``, in the form that never rounds to the logarithm of zero."""
    return 2 * (math.log(2) - raw - F.softplus(-2 * raw))
