"""IQL: values of the data's actions only; an expectile replaces the maximum over actions."""

from __future__ import annotations

import copy
from typing import TypeAlias

import torch
from torch import Tensor

from rlbench.algorithms.base import ActorLearner, Compiler, Update, compilable
from rlbench.algorithms.steps import optimize, squared_td_errors, target_updates
from rlbench.config.offline import IQLConfig
from rlbench.nets.actors import BoundedGaussianActor, DeterministicActor, StateDependentStdActor
from rlbench.nets.critics import Critics, StateValue
from rlbench.ops.action_distributions import DeterministicPolicy
from rlbench.ops.losses import expectile_loss, exponential_weight, weighted_mean
from rlbench.ops.types import Transition

IQLActor: TypeAlias = BoundedGaussianActor | StateDependentStdActor | DeterministicActor


class IQL(ActorLearner):
    """https://arxiv.org/abs/2110.06169; the networks are updated together, each from the others' old parameters."""

    saved = ("actor", "critics", "value", "target_critics", "actor_optimizer", "critics_optimizer", "value_optimizer")

    cycle_length = 1

    def __init__(
        self,
        actor: IQLActor,
        critics: Critics,
        value: StateValue,
        *,
        actor_optimizer: torch.optim.Optimizer,
        critic_optimizer: torch.optim.Optimizer,
        value_optimizer: torch.optim.Optimizer,
        tau: float,
        config: IQLConfig,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(compiler)
        self.actor, self.critics, self.value = actor, critics, value
        self.target_critics = copy.deepcopy(critics).requires_grad_(False)
        self.actor_optimizer, self.critics_optimizer = actor_optimizer, critic_optimizer
        self.value_optimizer, self.config = value_optimizer, config
        self.periodic_actions = target_updates((self.target_critics, critics), tau=tau)

    @compilable
    def value_loss(self, batch: Transition) -> tuple[Tensor, Tensor]:
        """The value network's expectile loss (eq. 5), ``[]``, and the advantages of the data's actions, ``[B]``."""
        advantage = self.target_critics(batch.obs, batch.action).amin(0) - self.value(batch.obs)
        value_loss = (batch.weight * expectile_loss(advantage, self.config.expectile)).mean()
        return value_loss, advantage.detach()

    @compilable
    def critic_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """Loss ``[]``, mean value ``[]`` and errors ``[B]`` against the value of the next state (eq. 6)."""
        with torch.no_grad():
            target = batch.reward + batch.discount * self.value(batch.next_obs)
        return squared_td_errors(self.critics(batch.obs, batch.action), target, batch.weight)

    @compilable
    def policy_loss(self, batch: Transition, advantage: Tensor) -> tuple[Tensor, Tensor]:
        """The actor's loss (eq. 7) and the mean weight of the data's actions, both ``[]``.

        For a deterministic actor the squared error replaces the negative log-density.
        """
        weight = exponential_weight(advantage, self.config.temperature, self.config.max_weight)
        policy = self.actor(batch.obs)
        if isinstance(policy, DeterministicPolicy):
            cloning_loss = (policy.action - batch.action).square().sum(-1)
        else:
            cloning_loss = -policy.log_prob(batch.action)
        return (batch.weight * weight * cloning_loss).mean(), weighted_mean(weight, batch.weight)

    def update(self, batch: Transition, phase: int = 0) -> Update:  # noqa: ARG002 - every update is like the others
        """A step of all three networks."""
        value_loss, advantage = self.value_loss(batch)
        critic_loss, q, error = self.critic_loss(batch)
        actor_loss, mean_weight = self.policy_loss(batch, advantage)
        total = value_loss + critic_loss + actor_loss
        optimize(total, self.actor_optimizer, self.critics_optimizer, self.value_optimizer)
        metrics = {
            "critic_loss": critic_loss.detach(),  # summed over the critics
            "value_loss": value_loss.detach(),
            "actor_loss": actor_loss.detach(),
            "q": q,
            "imitated": mean_weight,  # mean weight of the data's actions in the actor's loss
        }
        return Update(metrics, error)
