"""What is done instead of the preferred action, in order to learn."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from rlbench.ops.state_dict import State, tensor


class Explorer(Protocol):
    """Turns preferred actions into taken ones."""

    def __call__(self, preferred: Tensor) -> Tensor:
        """Actions ``[N, ...]`` to take, of the shape of ``preferred``."""

    def set(self, amount: float) -> None:
        """How much to explore from now on."""

    def state_dict(self) -> State:
        """The generator."""

    def load_state_dict(self, state: State) -> None:
        """The generator."""


class EpsilonGreedy:
    """With probability ε, each lane on its own coin, any action."""

    def __init__(self, *, actions: int, generator: torch.Generator, epsilon: float = 0.0) -> None:
        self.actions, self.generator = actions, generator
        self.epsilon = torch.tensor(epsilon, device=generator.device)  # a tensor, so that captured code sees it change

    def __call__(self, preferred: Tensor) -> Tensor:
        """``[N]`` to ``[N]`` int64; draws the same numbers whatever ε is."""
        draw = torch.rand(2, len(preferred), generator=self.generator, device=preferred.device, dtype=torch.float64)
        return torch.where(draw[0] < self.epsilon, (draw[1] * self.actions).long(), preferred)

    def set(self, amount: float) -> None:
        """ε from now on."""
        self.epsilon.fill_(amount)

    def state_dict(self) -> State:
        """The generator; ε is the clock's."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """The generator."""
        self.generator.set_state(tensor(state, "generator"))


class GaussianNoise:
    """At first any action; then the preferred one with Gaussian noise, kept in bounds."""

    def __init__(self, *, generator: torch.Generator, scale: float) -> None:
        self.generator, self.scale = generator, scale
        self.random = torch.ones((), dtype=torch.bool, device=generator.device)

    def __call__(self, preferred: Tensor) -> Tensor:
        """``[N, A]`` in [−1, 1] to the same; draws as many numbers whatever is asked."""
        uniform = torch.empty_like(preferred).uniform_(-1, 1, generator=self.generator)
        noise = torch.empty_like(preferred).normal_(generator=self.generator)
        return torch.where(self.random, uniform, (preferred + self.scale * noise).clamp(-1, 1))

    def set(self, amount: float) -> None:
        """1 while every action is drawn uniformly, then 0."""
        self.random.fill_(amount > 0)

    def state_dict(self) -> State:
        """The generator; the start is the clock's."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """The generator."""
        self.generator.set_state(tensor(state, "generator"))


class NoExploration:
    """Nothing is tried."""

    def __call__(self, preferred: Tensor) -> Tensor:
        """What was preferred, ``[N, ...]``."""
        return preferred

    def set(self, amount: float) -> None:
        """Nothing to set."""

    def state_dict(self) -> State:
        """Nothing."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing."""
