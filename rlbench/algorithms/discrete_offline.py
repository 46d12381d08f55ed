"""What BCQ, CQL and CRR are beside Q-learning, among discrete actions: who may be chosen, and a term of the loss."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.algorithms.base import Compiler
from rlbench.algorithms.dqn import Extra, QLearner, Selector
from rlbench.config.offline_discrete import CriticRegularized
from rlbench.nets.discrete_actor_critic import QNetWithPolicy
from rlbench.ops.action_distributions import Discrete
from rlbench.ops.losses import binary_weight, discrete_conservative_gap, exponential_weight, likely
from rlbench.ops.return_distributions import Expected, Value, pick
from rlbench.ops.types import Role, Transition


def behavior_mask(net: QNetWithPolicy, threshold: float) -> Selector:
    """Discrete BCQ's choice (https://arxiv.org/abs/1910.01708): the actions that the data hold likely enough."""

    def select(features: Tensor) -> Tensor:
        return likely(net.policy(features).logits, threshold)

    return select


def imitation(net: QNetWithPolicy, penalty: float) -> Extra:
    """Discrete BCQ's term: cross entropy with the data's actions, and a penalty on squared logits."""

    def extra(features: Tensor, value: Value, batch: Transition) -> Tensor:  # noqa: ARG001 - it imitates whatever it is worth
        policy = net.policy(features)
        surprise = penalty * policy.logits.square().mean(-1) - policy.log_prob(batch.action)
        return (batch.weight * surprise).mean()

    return extra


def conservatism(weight: float) -> Extra:
    """CQL's term (https://arxiv.org/abs/2006.04779, eq. 4): what is promised more of all actions than of the data's."""

    def extra(features: Tensor, value: Value, batch: Transition) -> Tensor:  # noqa: ARG001 - it looks at values alone
        return weight * (batch.weight * discrete_conservative_gap(value.mean(), batch.action)).mean()

    return extra


class CRR(QLearner):
    """Discrete CRR (https://arxiv.org/abs/2006.15134): values are a policy's own, and the policy imitates by them.

    As documented, on one torso; but no value learns from what it says of an advantage.
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
        method: CriticRegularized,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(
            net,
            optimizers=(optimizer,),
            max_grad_norm=max_grad_norm,
            double=True,
            target_update_interval=target_update_interval,
            extra=self.weighted,
            compiler=compiler,
        )
        self.config = method

    def bootstrap_value(self, obs: Tensor) -> Value:
        """What the target network says of its own policy at ``obs``, ``[B]``."""
        features = self.target.torso(obs)
        return Expected(expected_value(self.target.policy(features), self.target.head(features, "target").mean()))

    def weighted(self, features: Tensor, value: Value, batch: Transition) -> Tensor:
        """The policy's loss (eq. 1), and the gap where it is asked for, ``[]``."""
        policy, mean = self.online.policy(features), value.mean()
        loss = -(batch.weight * self.weight(policy, mean, batch.action) * policy.log_prob(batch.action)).mean()
        if self.config.conservative_weight is None:
            return loss
        return loss + conservatism(self.config.conservative_weight)(features, value, batch)

    @torch.no_grad()
    def weight(self, policy: Discrete, mean: Tensor, action: Tensor) -> Tensor:
        """What each ``action`` ``[B]`` counts, among those worth ``mean`` ``[B, A]`` (eq. 3 and 4), ``[B]``."""
        advantage = pick(mean, action) - expected_value(policy, mean)
        match self.config.mode:
            case "exp":
                return exponential_weight(advantage, 1 / self.config.beta, self.config.max_weight)
            case "binary":
                return binary_weight(advantage)
            case "all":
                return torch.ones_like(advantage)

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Samples of the policy, ``[N]``; its mode when it is judged, if it is to be greedy."""
        policy = self.online.policy(self.online.torso(obs))
        return policy.mode() if role == "eval" and self.config.greedy else policy.draw()


def expected_value(policy: Discrete, mean: Tensor) -> Tensor:
    """What a policy expects, ``[B]``, of actions worth ``mean`` ``[B, A]``."""
    return (policy.logits.softmax(-1) * mean).sum(-1)
