"""Actions of a policy, and exploration: ε-greedy and Gaussian noise."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from rlbench.ops.state_dict import Composite
from rlbench.ops.types import Role


class Actor(Protocol):
    """An object that acts: a learner, or a policy of another program."""

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Actions of the policy without exploration, ``[N]`` or ``[N, A]``."""


class EpsilonGreedy(Composite):
    """Take a uniform action with probability ε, drawn per env; no state holds ε, since its schedule sets it again."""

    saved = ("generator",)

    def __init__(self, *, actions: int, generator: torch.Generator, epsilon: float = 0.0) -> None:
        self.actions, self.generator = actions, generator
        self.epsilon = torch.tensor(epsilon, device=generator.device)  # so that a captured CUDA graph reads the change

    def __call__(self, action: Tensor) -> Tensor:
        """``[N]`` to ``[N]`` int64; draws equally many numbers for every ε."""
        draw = torch.rand(2, len(action), generator=self.generator, device=action.device, dtype=torch.float64)
        return torch.where(draw[0] < self.epsilon, (draw[1] * self.actions).long(), action)

    def set_exploration_rate(self, rate: float) -> None:
        """Set ε."""
        self.epsilon.fill_(rate)


class GaussianNoise(Composite):
    """Uniform actions at first; then the policy's action with Gaussian noise, clipped to [−1, 1]."""

    saved = ("generator",)

    def __init__(self, *, generator: torch.Generator, std: float) -> None:
        self.generator, self.std = generator, std
        self.random = torch.ones((), dtype=torch.bool, device=generator.device)

    def __call__(self, action: Tensor) -> Tensor:
        """``[N, A]`` in [−1, 1] to the same; draws equally many numbers in either phase."""
        uniform = torch.empty_like(action).uniform_(-1, 1, generator=self.generator)
        noise = torch.empty_like(action).normal_(generator=self.generator)
        return torch.where(self.random, uniform, (action + self.std * noise).clamp(-1, 1))

    def set_exploration_rate(self, rate: float) -> None:
        """Draw uniform actions while ``rate`` is above 0."""
        self.random.fill_(rate > 0)


class NoExploration(Composite):
    """No exploration: the policy's own actions."""

    saved = ()

    def __call__(self, action: Tensor) -> Tensor:
        """``action`` itself, ``[N, ...]``."""
        return action

    def set_exploration_rate(self, rate: float) -> None:
        """Do nothing."""


Explorer: TypeAlias = EpsilonGreedy | GaussianNoise | NoExploration
"""Replaces some actions ``[N, ...]`` of the policy by exploratory ones."""
