"""Actor-critic networks of the on-policy learners."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlbench.nets.torsos import MLPTorso, NatureTorso
from rlbench.ops.action_distributions import CategoricalPolicy, GaussianPolicy, StochasticPolicy


class ActorCriticOutput(NamedTuple):
    """The policy at some observations and their state value."""

    policy: StochasticPolicy
    value: Tensor  # [B]


class GaussianActor(nn.Module):
    """``[B, ...]`` to a diagonal Gaussian whose std does not depend on the observation."""

    def __init__(self, *, torso: MLPTorso, actions: int, log_std: float) -> None:
        super().__init__()
        self.torso, self.mean = torso, nn.Linear(torso.features, actions)
        self.log_std = nn.Parameter(torch.full((actions,), log_std))

    def forward(self, obs: Tensor) -> GaussianPolicy:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B, A]``."""
        mean = self.mean(self.torso(obs))
        return GaussianPolicy(mean, self.log_std.expand_as(mean))


class DiscreteActor(nn.Module):
    """``[B, ...]`` to probabilities of discrete actions."""

    def __init__(self, *, torso: MLPTorso, actions: int) -> None:
        super().__init__()
        self.torso, self.logits = torso, nn.Linear(torso.features, actions)

    def forward(self, obs: Tensor) -> CategoricalPolicy:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B]``."""
        return CategoricalPolicy(self.logits(self.torso(obs)))


class SeparateActorCritic(nn.Module):
    """An actor and a critic without shared parameters, as in the MuJoCo tables."""

    def __init__(self, actor: GaussianActor | DiscreteActor, torso: MLPTorso) -> None:
        super().__init__()
        self.actor, self.critic = actor, nn.Sequential(torso, nn.Linear(torso.features, 1))

    def forward(self, obs: Tensor) -> ActorCriticOutput:
        """Policy and value, ``[B]``."""
        return ActorCriticOutput(self.actor(obs), self.critic(obs).squeeze(-1))

    def policy(self, obs: Tensor) -> StochasticPolicy:
        """The policy alone, at ``obs`` ``[B, ...]``."""
        policy: StochasticPolicy = self.actor(obs)
        return policy

    def state_value(self, obs: Tensor) -> Tensor:
        """The value alone, ``[B]``."""
        value: Tensor = self.critic(obs).squeeze(-1)
        return value


class SharedActorCritic(nn.Module):
    """An actor and a critic on one torso and hidden layer, as in the Atari tables."""

    def __init__(self, torso: NatureTorso | MLPTorso, *, hidden: int, actions: int) -> None:
        super().__init__()
        self.torso = nn.Sequential(torso, nn.Linear(torso.features, hidden), nn.ReLU())
        self.logits, self.value = nn.Linear(hidden, actions), nn.Linear(hidden, 1)

    def forward(self, obs: Tensor) -> ActorCriticOutput:
        """Policy and value, ``[B]``."""
        features = self.torso(obs)
        return ActorCriticOutput(CategoricalPolicy(self.logits(features)), self.value(features).squeeze(-1))

    def policy(self, obs: Tensor) -> StochasticPolicy:
        """The policy alone, at ``obs`` ``[B, ...]``."""
        return CategoricalPolicy(self.logits(self.torso(obs)))

    def state_value(self, obs: Tensor) -> Tensor:
        """The value alone, ``[B]``."""
        value: Tensor = self.value(self.torso(obs)).squeeze(-1)
        return value


def init_orthogonal(module: nn.Module) -> None:
    """Initialize every linear and convolutional layer: orthogonal weights of gain √2, biases of 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d) and layer.bias is not None:
            weight = torch.empty_like(layer.weight, memory_format=torch.contiguous_format)  # not channels last
            layer.weight.data.copy_(nn.init.orthogonal_(weight, sqrt(2)))
            nn.init.zeros_(layer.bias)
