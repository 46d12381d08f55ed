"""Behavior cloning by squared error or likelihood, and by cross entropy for discrete actions."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.algorithms.base import ActorLearner, Compiler, Periodic, Update, compilable
from rlbench.algorithms.steps import optimize
from rlbench.nets.actors import BoundedGaussianActor, DeterministicActor
from rlbench.nets.discrete_actor_critic import BehaviorPolicy
from rlbench.ops.action_distributions import CategoricalPolicy, DeterministicPolicy
from rlbench.ops.losses import bc_mse, weighted_mean
from rlbench.ops.types import Transition


class BehaviorCloning(ActorLearner):
    """Behavior cloning (Pomerleau 1991): mean squared error for a deterministic actor, otherwise maximum likelihood."""

    saved = ("actor", "actor_optimizer")

    periodic_actions: tuple[Periodic, ...] = ()
    cycle_length = 1

    def __init__(
        self,
        actor: DeterministicActor | BoundedGaussianActor | BehaviorPolicy,
        *,
        actor_optimizer: torch.optim.Optimizer,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(compiler)
        self.actor, self.actor_optimizer = actor, actor_optimizer

    @compilable
    def loss(self, batch: Transition) -> tuple[Tensor, Tensor]:
        """Squared error or negative log-density, ``[]``; errors ``[B]``: squared, or 1 where discrete ones differ."""
        policy = self.actor(batch.obs)
        if isinstance(policy, CategoricalPolicy):
            error = (policy.mode() != batch.action).to(batch.reward.dtype)
        else:
            error = bc_mse(policy.mode(), batch.action)
        row_loss = error if isinstance(policy, DeterministicPolicy) else -policy.log_prob(batch.action)
        return (batch.weight * row_loss).mean(), error.detach()

    def update(self, batch: Transition, phase: int = 0) -> Update:  # noqa: ARG002 - every update is like the others
        """A step of the actor."""
        loss, error = self.loss(batch)
        optimize(loss, self.actor_optimizer)
        return Update({"actor_loss": loss.detach(), "error": weighted_mean(error, batch.weight)}, error)
