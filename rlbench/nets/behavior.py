"""Behavior policies over discrete actions: a network of their own, or a head on the torso of a Q-network."""

from __future__ import annotations

from torch import Tensor, nn

from rlbench.nets.dueling import DuelingMLP
from rlbench.nets.q_heads import Head, QNet
from rlbench.ops.action_distributions import Discrete


class BehaviorPolicy(nn.Module):
    """The network of DQN with one logit per action as a policy."""

    def __init__(self, torso: nn.Module, logits: DuelingMLP) -> None:
        super().__init__()
        self.torso, self.logits = torso, logits

    def forward(self, obs: Tensor) -> Discrete:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B]``."""
        return Discrete(self.logits(self.torso(obs), "learn").squeeze(-1))


class QNetWithPolicy(QNet):
    """A Q-network with a second head for a policy."""

    def __init__(self, torso: nn.Module, head: Head, logits: DuelingMLP) -> None:
        super().__init__(torso, head)
        self.logits = logits

    def policy(self, features: Tensor) -> Discrete:
        """The policy at the torso's features ``[B, F]``."""
        return Discrete(self.logits(features, "learn").squeeze(-1))
