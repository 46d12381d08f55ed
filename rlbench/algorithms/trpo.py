"""NPG and TRPO: natural gradient steps of a fixed length, or within a trust region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from rlbench.algorithms.base import ActorCriticLearner, Compiler, compilable
from rlbench.algorithms.onpolicy import METRICS, AdvantageEstimator, RolloutBatch, normalize, rollout_batch
from rlbench.algorithms.steps import optimize
from rlbench.config.online import TRPOConfig
from rlbench.nets.actor_critic import SeparateActorCritic
from rlbench.ops.action_distributions import StochasticPolicy
from rlbench.ops.conjugate_gradient import conjugate_gradient, fisher_vector_product, flatten, unflatten_like
from rlbench.ops.losses import weighted_mean
from rlbench.ops.types import Metrics, Rollout

TOLERANCE: Final = 1e-10
"""Squared residual at which the conjugate gradient stops."""


class TRPO(ActorCriticLearner):
    """NPG (Kakade 2001, "A natural policy gradient"), and with a trust region TRPO, https://arxiv.org/abs/1502.05477."""

    net: SeparateActorCritic
    saved = ("net", "optimizer", "returns")

    def __init__(
        self,
        net: SeparateActorCritic,
        *,
        optimizer: torch.optim.Optimizer,
        estimator: AdvantageEstimator,
        config: TRPOConfig,
        greedy: bool,
        tolerance: float = TOLERANCE,
        engine: Callable[[RolloutBatch], Tensor] | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        """``optimizer`` is the critic's; ``engine`` computes its steps faster than ``train_critic``."""
        super().__init__(compiler)
        self.net, self.optimizer, self.returns = net, optimizer, estimator  # "returns" is its name in a checkpoint
        self.config, self.tolerance, self.steps, self.greedy, self.engine = config, tolerance, 1, greedy, engine

    def update(self, rollout: Rollout) -> Metrics:
        """One step of the actor, then the critic's."""
        batch = rollout_batch(self.net, rollout, self.returns)
        batch = batch._replace(advantage=normalize(batch.advantage, batch.weight))
        actor_loss, entropy, divergence = self.actor_step(batch)
        value_loss = (self.engine or self.train_critic)(batch).mean()
        return dict(zip(METRICS, (actor_loss, value_loss, entropy, divergence), strict=True))

    def train_critic(self, batch: RolloutBatch) -> Tensor:
        """The critic's steps; its mean squared error before each, ``[critic_steps]``."""
        losses = []
        for _ in range(self.config.critic_steps):
            value_loss = self.value_loss(batch)
            optimize(value_loss, self.optimizer)
            losses.append(value_loss.detach())
        return torch.stack(losses)

    @compilable
    def value_loss(self, batch: RolloutBatch) -> Tensor:
        """The critic's mean squared error, ``[]``."""
        value: Tensor = self.net.critic(batch.obs).squeeze(-1)
        return weighted_mean((value - batch.value_target).square(), batch.weight)

    def policy_loss(self, policy: StochasticPolicy, batch: RolloutBatch) -> Tensor:
        """The surrogate, negated, ``[]`` (TRPO, eq. 14)."""
        ratio = (policy.log_prob(batch.action) - batch.log_prob).exp()
        return -weighted_mean(ratio * batch.advantage, batch.weight)

    def actor_step(self, batch: RolloutBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Update the actor; return the old loss, the old entropy and the KL divergence of the step, each ``[]``."""
        parameters = list(self.net.actor.parameters())
        policy = self.net.actor(batch.obs)
        old = policy.detach()
        actor_loss = self.policy_loss(policy, batch)
        gradient = flatten(torch.autograd.grad(actor_loss, parameters, retain_graph=True))
        mean_kl = weighted_mean(old.kl_divergence(policy), batch.weight)
        product = fisher_vector_product(mean_kl, parameters, damping=self.config.damping)
        direction = -conjugate_gradient(product, gradient, iterations=self.config.iterations, tolerance=self.tolerance)
        entropy = weighted_mean(policy.entropy(), batch.weight).detach()
        max_kl = self.config.max_kl
        if max_kl is None:
            _, divergence = self._set_actor(flatten(parameters).detach() + self.config.step * direction, batch, old)
        else:
            step_size = (2 * max_kl / (direction @ product(direction)).clamp_min(1e-30)).sqrt()
            divergence = self._line_search(step_size * direction, batch, old, actor_loss.detach(), max_kl)
        return actor_loss.detach(), entropy, divergence

    def _line_search(
        self, full_step: Tensor, batch: RolloutBatch, old: StochasticPolicy, initial_loss: Tensor, max_kl: float
    ) -> Tensor:
        """Backtracking line search for the longest step that reduces the loss in the trust region; its KL ``[]``.

        It evaluates all steps, so that nothing waits for the host. The reference code keeps its last step if all fail.
        """
        start = flatten(list(self.net.actor.parameters())).detach()
        best, best_divergence, accepted = start, torch.zeros_like(initial_loss), torch.zeros_like(initial_loss).bool()
        for attempt in range(self.config.max_backtracks):
            candidate = start + self.config.backtrack_coef**attempt * full_step
            loss, divergence = self._set_actor(candidate, batch, old)
            improves = (divergence < max_kl) & (loss < initial_loss) & ~accepted
            best = torch.where(improves, candidate, best)
            best_divergence = torch.where(improves, divergence, best_divergence)
            accepted |= improves
        self._set_actor(best, batch, old)
        return best_divergence

    @torch.no_grad()
    def _set_actor(self, vector: Tensor, batch: RolloutBatch, old: StochasticPolicy) -> tuple[Tensor, Tensor]:
        """Set the actor's parameters to ``vector``; return its loss and its divergence from ``old``, each ``[]``."""
        parameters: list[Tensor] = list(self.net.actor.parameters())
        torch._foreach_copy_(parameters, unflatten_like(vector, parameters))
        policy = self.net.actor(batch.obs)
        return self.policy_loss(policy, batch), weighted_mean(old.kl_divergence(policy), batch.weight)
