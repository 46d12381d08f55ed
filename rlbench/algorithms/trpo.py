"""NPG and TRPO: steps along the natural gradient, of a fixed length or as far as a trust region allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from rlbench.algorithms.base import Compilable, Compiler, compilable
from rlbench.algorithms.onpolicy import METRICS, Returns, RolloutBatch, normalize, rollout_batch
from rlbench.algorithms.steps import optimize
from rlbench.config import online as config
from rlbench.nets.actor_critic import SeparateActorCritic
from rlbench.ops.action_distributions import Policy
from rlbench.ops.conjugate_gradient import conjugate_gradient, fisher, flat, unflatten_like
from rlbench.ops.losses import weighted_mean
from rlbench.ops.types import Metrics, Role, Rollout

TOLERANCE: Final = 1e-10
"""Squared residual at which the conjugate gradient has arrived."""


class Natural(Compilable):
    """NPG (Kakade 2001, "A natural policy gradient"), and with a trust region TRPO, https://arxiv.org/abs/1502.05477."""

    saved = ("net", "optimizer", "returns")

    def __init__(
        self,
        net: SeparateActorCritic,
        *,
        optimizer: torch.optim.Optimizer,
        returns: Returns,
        method: config.Natural,
        greedy: bool,
        tolerance: float = TOLERANCE,
        engine: Callable[[RolloutBatch], Tensor] | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        """``optimizer`` is the critic's; ``engine`` computes its steps faster than ``eagerly``."""
        super().__init__(compiler)
        self.net, self.optimizer, self.returns = net, optimizer, returns
        self.config, self.tolerance, self.steps, self.greedy, self.engine = method, tolerance, 1, greedy, engine

    def update(self, rollout: Rollout) -> Metrics:
        """One step of the actor, then the critic's."""
        known = rollout_batch(self.net, rollout, self.returns)
        known = known._replace(advantage=normalize(known.advantage, known.weight))
        actor_loss, entropy, divergence = self.actor_step(known)
        value_loss = (self.engine or self.eagerly)(known).mean()
        return dict(zip(METRICS, (actor_loss, value_loss, entropy, divergence), strict=True))

    def eagerly(self, known: RolloutBatch) -> Tensor:
        """The critic's steps; its mean squared error before each, ``[critic_steps]``."""
        losses = []
        for _ in range(self.config.critic_steps):
            value_loss = self.value_loss(known)
            optimize(value_loss, self.optimizer)
            losses.append(value_loss.detach())
        return torch.stack(losses)

    @compilable
    def value_loss(self, known: RolloutBatch) -> Tensor:
        """The critic's mean squared error, ``[]``."""
        value: Tensor = self.net.critic(known.obs).squeeze(-1)
        return weighted_mean((value - known.value_target).square(), known.weight)

    def policy_loss(self, policy: Policy, known: RolloutBatch) -> Tensor:
        """The surrogate, negated, ``[]`` (TRPO, eq. 14)."""
        ratio = (policy.log_prob(known.action) - known.log_prob).exp()
        return -weighted_mean(ratio * known.advantage, known.weight)

    def actor_step(self, known: RolloutBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Move the actor; gives the loss before, the entropy before and the divergence that was made, each ``[]``."""
        parameters = list(self.net.actor.parameters())
        policy = self.net.actor(known.obs)
        before = policy.detached()
        actor_loss = self.policy_loss(policy, known)
        slope = flat(torch.autograd.grad(actor_loss, parameters, retain_graph=True))
        mean = weighted_mean(before.divergence(policy), known.weight)
        product = fisher(mean, parameters, damping=self.config.damping)
        direction = -conjugate_gradient(product, slope, iterations=self.config.iterations, tolerance=self.tolerance)
        entropy = weighted_mean(policy.entropy(), known.weight).detach()
        if self.config.max_kl is None:
            _, made = self._moved(flat(parameters).detach() + self.config.step * direction, known, before)
        else:
            reach = (2 * self.config.max_kl / (direction @ product(direction)).clamp_min(1e-30)).sqrt()
            made = self._searched(reach * direction, known, before, actor_loss.detach(), self.config.max_kl)
        return actor_loss.detach(), entropy, made

    def _searched(self, stride: Tensor, known: RolloutBatch, before: Policy, bound: Tensor, region: float) -> Tensor:
        """Take the longest of ever shorter strides that betters the loss within the region, else stay; KL made, ``[]``.

        All are tried, so that nothing waits for the host; the documented code kept its last try when all had failed.
        """
        start = flat(list(self.net.actor.parameters())).detach()
        chosen, made, found = start, torch.zeros_like(bound), torch.zeros_like(bound, dtype=torch.bool)
        for tried in range(self.config.max_backtracks):
            place = start + self.config.backtrack_coef**tried * stride
            reached, divergence = self._moved(place, known, before)
            good = (divergence < region) & (reached < bound) & ~found
            chosen, made, found = torch.where(good, place, chosen), torch.where(good, divergence, made), found | good
        self._moved(chosen, known, before)
        return made

    @torch.no_grad()
    def _moved(self, start: Tensor, known: RolloutBatch, before: Policy) -> tuple[Tensor, Tensor]:
        """Put the actor's parameters at ``start``; gives its loss and its divergence from ``before``, each ``[]``."""
        parameters: list[Tensor] = list(self.net.actor.parameters())
        torch._foreach_copy_(parameters, unflatten_like(start, parameters))
        policy = self.net.actor(known.obs)
        return self.policy_loss(policy, known), weighted_mean(before.divergence(policy), known.weight)

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Sampled actions; ``[N]`` numbers or ``[N, A]`` reals, which may lie out of bounds."""
        policy = self.net.policy(obs)
        return policy.mode() if role == "eval" and self.greedy else policy.draw()

    def policy(self) -> SeparateActorCritic:
        """Actor and critic."""
        return self.net
