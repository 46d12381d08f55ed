"""Networks of discrete actions with a policy: behavior policies, Q-networks with one, and actor-critics."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlbench.nets.dueling import HeadMLP
from rlbench.nets.q_heads import QHead, QNet
from rlbench.nets.torsos import MLPTorso, NatureTorso
from rlbench.ops.action_distributions import CategoricalPolicy


class DiscreteActorCritic(nn.Module):
    """A torso and a hidden layer, with an output layer for the actor and one for each critic."""

    def __init__(self, torso: NatureTorso | MLPTorso, *, hidden: int, actions: int, critics: int) -> None:
        super().__init__()
        self.torso = nn.Sequential(torso, nn.Linear(torso.features, hidden), nn.ReLU())
        self.logits = nn.Linear(hidden, actions)
        self.critics = nn.ModuleList(nn.Linear(hidden, actions) for _ in range(critics))

    def policy(self, obs: Tensor) -> CategoricalPolicy:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B]``."""
        return CategoricalPolicy(self.logits(self.torso(obs)))

    def value(self, obs: Tensor, member: int) -> Tensor:
        """One critic's value of every action, ``[B, A]``."""
        value: Tensor = self.critics[member](self.torso(obs))
        return value

    def forward(self, obs: Tensor) -> tuple[CategoricalPolicy, Tensor]:
        """The policy, and every critic's value of every action, ``[K, B, A]``."""
        features = self.torso(obs)
        return CategoricalPolicy(self.logits(features)), torch.stack([critic(features) for critic in self.critics])


class BehaviorPolicy(nn.Module):
    """The network of DQN with one logit per action as a policy."""

    def __init__(self, torso: nn.Module, logits: HeadMLP) -> None:
        super().__init__()
        self.torso, self.logits = torso, logits

    def forward(self, obs: Tensor) -> CategoricalPolicy:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B]``."""
        return CategoricalPolicy(self.logits(self.torso(obs), "learn").squeeze(-1))


class QNetWithPolicy(QNet):
    """A Q-network with a second head for a policy."""

    def __init__(self, torso: nn.Module, head: QHead, logits: HeadMLP) -> None:
        super().__init__(torso, head)
        self.logits = logits

    def policy(self, features: Tensor) -> CategoricalPolicy:
        """The policy at the torso's features ``[B, F]``."""
        return CategoricalPolicy(self.logits(features, "learn").squeeze(-1))
