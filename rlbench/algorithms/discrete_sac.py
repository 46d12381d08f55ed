"""SAC with discrete actions: it sums over actions where SAC samples them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from rlbench.algorithms.base import ActorCriticLearner, Compiler, Update, compilable
from rlbench.algorithms.sac import Temperature
from rlbench.algorithms.steps import optimize, squared_td_errors, target_updates
from rlbench.nets.discrete_actor_critic import DiscreteActorCritic
from rlbench.ops.action_distributions import CategoricalPolicy
from rlbench.ops.return_distributions import gather_actions
from rlbench.ops.state_dict import Parts
from rlbench.ops.types import Transition


class DiscreteSAC(ActorCriticLearner):
    """https://arxiv.org/abs/1910.07207, with one torso that every optimizer updates, as in the reference code.

    The actor's optimizer holds torso and actor, each critic's optimizer the torso and that critic.
    """

    net: DiscreteActorCritic
    cycle_length = 1

    def __init__(
        self,
        net: DiscreteActorCritic,
        *,
        actor_optimizer: torch.optim.Optimizer,
        critic_optimizers: Sequence[torch.optim.Optimizer],
        temperature: Temperature,
        tau: float,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(compiler)
        self.net, self.target = net, copy.deepcopy(net).requires_grad_(False)  # the target's actor is not used
        self.actor_optimizer, self.critic_optimizers = actor_optimizer, tuple(critic_optimizers)
        self.temperature, self.periodic_actions = temperature, target_updates((self.target, net), tau=tau)

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """The TD target of the critics, ``[B]``: reward and soft value of the next state (eq. 3 and 10)."""
        future = self.soft_value(self.net.policy(batch.next_obs), self.target(batch.next_obs)[1].amin(0))
        return batch.reward + batch.discount * future

    def soft_value(self, policy: CategoricalPolicy, value: Tensor) -> Tensor:
        """The soft value ``[B]`` of a policy, from action values ``value`` ``[B, A]``."""
        return policy.expected_value(value) + self.temperature.value() * policy.entropy()

    @compilable
    def critic_loss(self, batch: Transition, target: Tensor, member: int) -> tuple[Tensor, Tensor, Tensor]:
        """One critic's squared error ``[]``, mean value ``[]`` and each row's absolute error, ``[B]``."""
        value = gather_actions(self.net.value(batch.obs, member), batch.action)
        return squared_td_errors(value[None], target, batch.weight)

    @compilable
    def policy_loss(self, batch: Transition) -> tuple[Tensor, Tensor]:
        """The actor's loss (eq. 12) and its entropy, both ``[]``; the critics get no gradient."""
        policy, value = self.net(batch.obs)
        actor_loss = -(batch.weight * self.soft_value(policy, value.detach().amin(0))).mean()
        return actor_loss, self.temperature.mean_entropy(policy.entropy().detach(), batch.weight)

    def update(self, batch: Transition, phase: int = 0) -> Update:  # noqa: ARG002 - every update is like the others
        """A step of each critic, one after another on the shared torso; then the actor and α."""
        target, results = self.td_target(batch), []
        for member, optimizer in enumerate(self.critic_optimizers):
            critic_loss, q, error = self.critic_loss(batch, target, member)
            optimize(critic_loss, optimizer)
            results.append((critic_loss.detach(), q, error))
        losses, values, errors = (torch.stack(column) for column in zip(*results, strict=True))
        actor_loss, entropy = self.policy_loss(batch)
        optimize(actor_loss, self.actor_optimizer)
        self.temperature.learn(entropy)
        metrics = {
            "critic_loss": losses.sum(),  # summed over the critics
            "actor_loss": actor_loss.detach(),
            "q": values.mean(),
            "entropy": entropy,  # nats
            "alpha": self.temperature.value(),
        }
        return Update(metrics, errors.mean(0))

    @property
    def parts(self) -> Parts:
        """Both networks, the temperature and every optimizer."""
        critics = {f"critic optimizer {i}": optimizer for i, optimizer in enumerate(self.critic_optimizers)}
        networks = {"net": self.net, "target": self.target}
        return {**networks, **critics, "actor optimizer": self.actor_optimizer, "temperature": self.temperature}
