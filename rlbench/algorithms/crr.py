"""CRR: behavior cloning, each action of the data weighted by its advantage over the policy."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rlbench.algorithms.base import ActorLearner, Compiler, Update, compilable
from rlbench.algorithms.steps import optimize, squared_td_errors, target_updates
from rlbench.config.offline import CRRConfig
from rlbench.nets.actors import BoundedGaussianActor
from rlbench.nets.critics import Critics
from rlbench.ops.action_distributions import GaussianPolicy
from rlbench.ops.losses import binary_weight, exponential_weight, weighted_mean
from rlbench.ops.types import Transition


class CRR(ActorLearner):
    """https://arxiv.org/abs/2006.15134; actor and critics are updated together, from each other's old parameters."""

    saved = ("actor", "critics", "target_actor", "target_critics", "actor_optimizer", "critic_optimizer")

    cycle_length = 1

    def __init__(
        self,
        actor: BoundedGaussianActor,
        critics: Critics,
        *,
        actor_optimizer: torch.optim.Optimizer,
        critic_optimizer: torch.optim.Optimizer,
        tau: float,
        config: CRRConfig,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(compiler)
        self.actor, self.critics = actor, critics
        self.target_actor, self.target_critics = (copy.deepcopy(n).requires_grad_(False) for n in (actor, critics))
        self.actor_optimizer, self.critic_optimizer = actor_optimizer, critic_optimizer
        self.config, period = config, config.target_update_interval
        pairs = (self.target_actor, actor), (self.target_critics, critics)
        self.periodic_actions = target_updates(*pairs, tau=tau if period is None else 1.0, period=period or 1)

    @compilable
    def critic_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Loss ``[]``, mean value ``[]`` and errors ``[B]`` against the minimum of the targets; values ``[K, B]``."""
        with torch.no_grad():
            action = self.target_actor(batch.next_obs).sample()
            target = batch.reward + batch.discount * self.target_critics(batch.next_obs, action).amin(0)
        value = self.critics(batch.obs, batch.action)
        return *squared_td_errors(value, target, batch.weight), value.detach()

    @torch.no_grad()
    def weight(self, obs: Tensor, policy: GaussianPolicy, value: Tensor) -> Tensor:
        """The weight of an action of value ``value`` ``[B]``, from its advantage, ``[B]`` (eq. 3 and 4)."""
        others = self.critics.action_values(obs, policy.clipped_samples(self.config.n_action_samples)).amin(0)  # [M, B]
        advantage = value - (others.mean(0) if self.config.advantage_type == "mean" else others.amax(0))
        if self.config.mode == "binary":
            return binary_weight(advantage)
        return exponential_weight(advantage, 1 / self.config.beta, self.config.max_weight)

    @compilable
    def policy_loss(self, batch: Transition, value: Tensor) -> tuple[Tensor, Tensor]:
        """The actor's loss (eq. 1), from the values ``[B]`` of the data's actions, and the mean weight, both ``[]``."""
        policy = self.actor(batch.obs)
        weight = self.weight(batch.obs, policy, value)
        actor_loss = -(batch.weight * weight * policy.log_prob(batch.action)).mean()
        return actor_loss, weighted_mean(weight, batch.weight)

    def update(self, batch: Transition, phase: int = 0) -> Update:  # noqa: ARG002 - all updates are alike
        """A step of the critics and the actor."""
        critic_loss, q, error, value = self.critic_loss(batch)
        actor_loss, mean_weight = self.policy_loss(batch, value.amin(0))
        optimize(critic_loss + actor_loss, self.actor_optimizer, self.critic_optimizer)
        metrics = {
            "critic_loss": critic_loss.detach(),  # summed over the critics
            "value_loss": torch.zeros_like(q),
            "actor_loss": actor_loss.detach(),
            "q": q,
            "imitated": mean_weight,  # mean weight of the data's actions in the actor's loss
        }
        return Update(metrics, error)
