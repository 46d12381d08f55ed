"""Action distributions: the output of a policy network, as NamedTuples of tensors.

A learner uses their ``mode``, ``sample`` and ``log_prob`` and needs no access to the network.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class DeterministicPolicy(NamedTuple):
    """A deterministic policy: one action (https://arxiv.org/abs/1509.02971)."""

    action: Tensor  # [B, A] in [-1, 1]

    def mode(self) -> Tensor:
        """The action itself, ``[B, A]``."""
        return self.action

    def sample(self) -> Tensor:
        """The action itself, ``[B, A]``."""
        return self.action

    def add_clipped_noise(self, scale: float, clip: float) -> Tensor:
        """The action with clipped Gaussian noise, kept in bounds: TD3's target (eq. 14 and 15), ``[B, A]``."""
        noise = (torch.randn_like(self.action) * scale).clamp(-clip, clip)
        return (self.action + noise).clamp(-1, 1)


class Policy(Protocol):
    """Interface of a policy at ``[B, ...]`` observations."""

    def mode(self) -> Tensor:
        """The most probable actions, ``[B]`` or ``[B, A]``."""

    def sample(self) -> Tensor:
        """Sampled actions, ``[B]`` or ``[B, A]``."""


class StochasticPolicy(Policy, Protocol):
    """Interface of an on-policy learner's policy, over discrete or continuous actions."""

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density or log-probability of actions, ``[B]``."""

    def entropy(self) -> Tensor:
        """Entropy in nats, ``[B]``."""

    def kl_divergence(self, other: Self) -> Tensor:
        """Kullback–Leibler divergence, KL(self ‖ other), in nats, ``[B]``."""

    def detach(self) -> Self:
        """A copy without gradient, which keeps its values when the parameters change."""


class CategoricalPolicy(NamedTuple):
    """Probabilities of discrete actions."""

    logits: Tensor  # [B, A], unnormalized

    def mode(self) -> Tensor:
        """The most probable action, ``[B]``."""
        return self.logits.argmax(-1)

    def sample(self) -> Tensor:
        """Sampled actions, ``[B]``, by the Gumbel trick: one random number per logit, no softmax."""
        return (self.logits - torch.empty_like(self.logits).exponential_().log()).argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability of actions ``[B]``, ``[B]``."""
        return self.logits.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Entropy in nats, ``[B]``."""
        log = self.logits.log_softmax(-1)
        return -(log.exp() * log).sum(-1)

    def kl_divergence(self, other: CategoricalPolicy) -> Tensor:
        """KL(self ‖ other) in nats, ``[B]``."""
        log = self.logits.log_softmax(-1)
        return (log.exp() * (log - other.logits.log_softmax(-1))).sum(-1)

    def expected_value(self, value: Tensor) -> Tensor:
        """The expectation of action values ``[B, A]``, ``[B]``."""
        return (self.logits.softmax(-1) * value).sum(-1)

    def detach(self) -> CategoricalPolicy:
        """A copy without gradient."""
        return CategoricalPolicy(self.logits.detach())


class GaussianPolicy(NamedTuple):
    """A diagonal Gaussian. On-policy its samples are not bounded; the collector clips them to the action space."""

    mean: Tensor  # [B, A]
    log_std: Tensor  # [B, A]
    clip: bool = False  # samples to [−1, 1]; densities are those before the clipping

    def mode(self) -> Tensor:
        """The mean, ``[B, A]``."""
        return self.mean

    def sample(self) -> Tensor:
        """Sampled actions, ``[B, A]``."""
        action = self.mean + self.log_std.exp() * torch.randn_like(self.mean)
        return action.clamp(-1, 1) if self.clip else action

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density of actions ``[B, A]``, ``[B]``."""
        standard = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * standard.square() - self.log_std - LOG_SQRT_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy in nats, ``[B]``."""
        return (self.log_std + 0.5 + LOG_SQRT_2PI).sum(-1)

    def clipped_samples(self, count: int) -> Tensor:
        """``count`` samples clipped to [−1, 1], ``[count, B, A]``, without gradient."""
        noise = torch.randn(count, *self.mean.shape, device=self.mean.device, dtype=self.mean.dtype)
        return (self.mean.detach() + self.log_std.detach().exp() * noise).clamp(-1, 1)

    def kl_divergence(self, other: GaussianPolicy) -> Tensor:
        """KL(self ‖ other) in nats, ``[B]``."""
        ratio = (2 * (self.log_std - other.log_std)).exp()
        gap = ((self.mean - other.mean) * (-other.log_std).exp()).square()
        return 0.5 * (ratio + gap - 1 - 2 * (self.log_std - other.log_std)).sum(-1)

    def detach(self) -> GaussianPolicy:
        """A copy without gradient; the std is cloned, since its parameter changes in place."""
        return self._replace(mean=self.mean.detach(), log_std=self.log_std.detach().clone())


class SquashedGaussianPolicy(NamedTuple):
    """The hyperbolic tangent of a diagonal Gaussian (https://arxiv.org/abs/1801.01290, appendix C)."""

    mean: Tensor  # [B, A] before the squashing
    log_std: Tensor  # [B, A] likewise
    log_scale: float = 0.0  # Σ log(action scale) where densities are in the environment's units; 0 in [−1, 1]

    def mode(self) -> Tensor:
        """The squashed mean, ``[B, A]``: the action of an evaluation."""
        return self.mean.tanh()

    def sample(self) -> Tensor:
        """Sampled actions, ``[B, A]``."""
        return self.sample_and_log_prob()[0]

    def expand(self, count: int) -> SquashedGaussianPolicy:
        """``count`` copies, ``[count, B, A]``, to draw as many samples of each row."""
        return SquashedGaussianPolicy(
            self.mean.expand(count, -1, -1), self.log_std.expand(count, -1, -1), self.log_scale
        )

    def sample_and_log_prob(self) -> tuple[Tensor, Tensor]:
        """An action in (−1, 1), ``[B, A]``, and its log-density, ``[B]``; differentiable in both parameters."""
        noise = torch.randn_like(self.mean)
        raw = self.mean + self.log_std.exp() * noise
        density = -0.5 * noise.square() - self.log_std - LOG_SQRT_2PI - _log_gradient(raw)
        return raw.tanh(), density.sum(-1) - self.log_scale

    def log_prob_of_tanh(self, raw: Tensor) -> Tensor:
        """The log-density of ``tanh(raw)``, ``[B]``; it takes ``raw`` because tanh cannot be inverted at ±1."""
        standard = (raw - self.mean) * (-self.log_std).exp()
        density = -0.5 * standard.square() - self.log_std - LOG_SQRT_2PI - _log_gradient(raw)
        return density.sum(-1) - self.log_scale


def uniform_actions(like: Tensor, count: int) -> tuple[Tensor, float]:
    """Uniform actions in [−1, 1], ``[count, B, A]`` for ``like`` ``[B, A]``, and the logarithm of their density."""
    action = torch.rand(count, *like.shape, device=like.device, dtype=like.dtype)
    return 2 * action - 1, -like.shape[-1] * math.log(2)


def _log_gradient(raw: Tensor) -> Tensor:
    """``log(1 − tanh²)``, in the form that never rounds to the logarithm of zero."""
    return 2 * (math.log(2) - raw - F.softplus(-2 * raw))
