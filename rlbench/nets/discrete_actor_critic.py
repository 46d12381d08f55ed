"""The network of discrete SAC: an actor and K critics on one torso."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlbench.nets.torsos import MlpTorso, NatureTorso
from rlbench.ops.action_distributions import Discrete


class DiscreteActorCritic(nn.Module):
    """A torso and a hidden layer, with an output layer for the actor and one for each critic."""

    def __init__(self, torso: NatureTorso | MlpTorso, *, hidden: int, actions: int, critics: int) -> None:
        super().__init__()
        self.torso = nn.Sequential(torso, nn.Linear(torso.features, hidden), nn.ReLU())
        self.logits = nn.Linear(hidden, actions)
        self.critics = nn.ModuleList(nn.Linear(hidden, actions) for _ in range(critics))

    def policy(self, obs: Tensor) -> Discrete:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B]``."""
        return Discrete(self.logits(self.torso(obs)))

    def value(self, obs: Tensor, member: int) -> Tensor:
        """One critic's value of every action, ``[B, A]``."""
        value: Tensor = self.critics[member](self.torso(obs))
        return value

    def forward(self, obs: Tensor) -> tuple[Discrete, Tensor]:
        """The policy, and every critic's value of every action, ``[K, B, A]``."""
        features = self.torso(obs)
        return Discrete(self.logits(features)), torch.stack([critic(features) for critic in self.critics])
