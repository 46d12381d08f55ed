"""Discrete BCQ, CQL and CRR: an action mask and a loss term that extend Q-learning."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.algorithms.base import Compiler
from rlbench.algorithms.dqn import ActionMask, AuxiliaryLoss, QLearner
from rlbench.config.offline import DiscreteCRRConfig
from rlbench.nets.discrete_actor_critic import QNetWithPolicy
from rlbench.ops.action_distributions import CategoricalPolicy
from rlbench.ops.losses import binary_weight, discrete_conservative_gap, exponential_weight, probable_actions
from rlbench.ops.return_distributions import ExpectedReturn, ReturnDistribution, gather_actions
from rlbench.ops.types import Role, Transition


def behavior_mask(net: QNetWithPolicy, threshold: float) -> ActionMask:
    """Discrete BCQ's mask (https://arxiv.org/abs/1910.01708): actions that are probable in the data."""

    def mask(features: Tensor) -> Tensor:
        return probable_actions(net.policy(features).logits, threshold)

    return mask


def behavior_cloning_loss(net: QNetWithPolicy, penalty: float) -> AuxiliaryLoss:
    """Discrete BCQ's term (1910.01708): cross entropy with the data's actions, and a penalty on squared logits."""

    def loss(features: Tensor, _: ReturnDistribution, batch: Transition) -> Tensor:
        policy = net.policy(features)
        row_loss = penalty * policy.logits.square().mean(-1) - policy.log_prob(batch.action)
        return (batch.weight * row_loss).mean()

    return loss


def cql_loss(weight: float) -> AuxiliaryLoss:
    """CQL's term (https://arxiv.org/abs/2006.04779, eq. 4): the gap between values of all actions and of the data's."""

    def loss(_: Tensor, value: ReturnDistribution, batch: Transition) -> Tensor:
        return weight * (batch.weight * discrete_conservative_gap(value.mean(), batch.action)).mean()

    return loss


class DiscreteCRR(QLearner):
    """Discrete CRR (https://arxiv.org/abs/2006.15134): values of the policy, and cloning weighted by their advantages.

    Both share a torso, as in the reference code; but the advantage passes no gradient to the values.
    """

    online: QNetWithPolicy
    target: QNetWithPolicy

    def __init__(
        self,
        net: QNetWithPolicy,
        *,
        optimizer: torch.optim.Optimizer,
        max_grad_norm: float | None,
        target_update_interval: int,
        config: DiscreteCRRConfig,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(
            net,
            optimizers=(optimizer,),
            max_grad_norm=max_grad_norm,
            double=True,
            target_update_interval=target_update_interval,
            auxiliary_loss=self.weighted_cloning_loss,
            compiler=compiler,
        )
        self.config = config

    def bootstrap_value(self, obs: Tensor) -> ReturnDistribution:
        """The target network's value of its own policy at ``obs``, ``[B]``."""
        features = self.target.torso(obs)
        value = self.target.head(features, "target").mean()
        return ExpectedReturn(self.target.policy(features).expected_value(value))

    def weighted_cloning_loss(self, features: Tensor, value: ReturnDistribution, batch: Transition) -> Tensor:
        """The policy's loss (eq. 1), and CQL's gap if ``conservative_weight`` is set, ``[]``."""
        policy, mean = self.online.policy(features), value.mean()
        loss = -(batch.weight * self.weight(policy, mean, batch.action) * policy.log_prob(batch.action)).mean()
        if self.config.conservative_weight is None:
            return loss
        return loss + cql_loss(self.config.conservative_weight)(features, value, batch)

    @torch.no_grad()
    def weight(self, policy: CategoricalPolicy, mean: Tensor, action: Tensor) -> Tensor:
        """The weight of each ``action`` ``[B]``, from the action values ``mean`` ``[B, A]`` (eq. 3 and 4), ``[B]``."""
        advantage = gather_actions(mean, action) - policy.expected_value(mean)
        match self.config.mode:
            case "exp":
                return exponential_weight(advantage, 1 / self.config.beta, self.config.max_weight)
            case "binary":
                return binary_weight(advantage)
            case "all":
                return torch.ones_like(advantage)

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Samples of the policy, ``[N]``; its mode in evaluation if ``greedy``."""
        policy = self.online.policy(self.online.torso(obs))
        return policy.mode() if role == "eval" and self.config.greedy else policy.sample()
