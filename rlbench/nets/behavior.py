"""What says how likely each discrete action is in the data: by itself, and beside values on the same torso."""

from __future__ import annotations

from torch import Tensor, nn

from rlbench.nets.dueling import DuelingMLP
from rlbench.nets.q_heads import Head, QNet
from rlbench.ops.action_distributions import Discrete


class BehaviorPolicy(nn.Module):
    """A torso and a logit per action: the network of DQN, read as a policy."""

    def __init__(self, torso: nn.Module, logits: DuelingMLP) -> None:
        super().__init__()
        self.torso, self.logits = torso, logits

    def forward(self, obs: Tensor) -> Discrete:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B]``."""
        return Discrete(self.logits(self.torso(obs), "learn").squeeze(-1))


class QNetWithPolicy(QNet):
    """A torso, a head of values, and a second one that is a policy."""

    def __init__(self, torso: nn.Module, head: Head, logits: DuelingMLP) -> None:
        super().__init__(torso, head)
        self.logits = logits

    def policy(self, features: Tensor) -> Discrete:
        """The policy at what the torso made ``[B, F]`` of."""
        return Discrete(self.logits(features, "learn").squeeze(-1))
