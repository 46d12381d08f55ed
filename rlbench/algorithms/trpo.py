"""NPG and TRPO: steps along the natural gradient, of a fixed length or as far as a trust region allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from rlbench.algorithms.base import optimize
from rlbench.algorithms.onpolicy import PGUpdate, Returns, RolloutBatch, normalize, rollout_batch, weighted_mean
from rlbench.nets.actor_critic import SeparateActorCritic
from rlbench.ops.action_distributions import Policy
from rlbench.ops.conjugate_gradient import fisher, flat, shaped, solved
from rlbench.ops.state_dict import Parts, State, into_parts, of_parts
from rlbench.ops.types import Role, Rollout


class Step(NamedTuple):
    """How far the actor goes."""

    size: float = 0.1  # of NPG: this many natural gradients
    max_kl: float | None = None  # of TRPO: the divergence that a step may make; None is NPG
    backtrack_coef: float = 0.8  # of TRPO's line search: what a step that went too far is multiplied by
    max_backtracks: int = 10  # … and how often
    iterations: int = 10  # of the conjugate gradient
    damping: float = 0.1  # added to the diagonal of the Fisher information
    tolerance: float = 1e-10  # squared residual at which the conjugate gradient has arrived


class Natural:
    """NPG (Kakade 2001, "A natural policy gradient"), and with a trust region TRPO, https://arxiv.org/abs/1502.05477."""

    def __init__(
        self,
        net: SeparateActorCritic,
        *,
        optimizer: torch.optim.Optimizer,
        returns: Returns,
        step: Step,
        critic_steps: int,
        greedy: bool,
    ) -> None:
        self.net, self.optimizer, self.returns = net, optimizer, returns  # the optimizer is the critic's
        self.step, self.critic_steps, self.steps, self.greedy = step, critic_steps, 1, greedy
        self.regress: Callable[[RolloutBatch], Tensor] = (
            self.eagerly
        )  # build may put a faster way of computing the same here

    def update(self, rollout: Rollout) -> PGUpdate:
        """One step of the actor, then the critic's."""
        known = rollout_batch(self.net, rollout, self.returns)
        known = known._replace(advantage=normalize(known.advantage, known.weight))
        loss, entropy, divergence = self.actor_step(known)
        return PGUpdate(loss, self.regress(known).mean(), entropy, divergence)

    def eagerly(self, known: RolloutBatch) -> Tensor:
        """The critic's steps; its mean squared error before each, ``[critic_steps]``."""
        losses = []
        for _ in range(self.critic_steps):
            value_loss = self.value_loss(known)
            optimize(value_loss, (self.optimizer,))
            losses.append(value_loss.detach())
        return torch.stack(losses)

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
        loss = self.policy_loss(policy, known)
        slope = flat(torch.autograd.grad(loss, parameters, retain_graph=True))
        mean = weighted_mean(before.divergence(policy), known.weight)
        product = fisher(mean, parameters, damping=self.step.damping)
        direction = -solved(product, slope, iterations=self.step.iterations, tolerance=self.step.tolerance)
        entropy = weighted_mean(policy.entropy(), known.weight).detach()
        if self.step.max_kl is None:
            _, made = self._moved(flat(parameters).detach() + self.step.size * direction, known, before)
        else:
            reach = (2 * self.step.max_kl / (direction @ product(direction)).clamp_min(1e-30)).sqrt()
            made = self._searched(reach * direction, known, before, loss.detach(), self.step.max_kl)
        return loss.detach(), entropy, made

    def _searched(self, stride: Tensor, known: RolloutBatch, before: Policy, loss: Tensor, region: float) -> Tensor:
        """Take the longest of ever shorter strides that betters the loss within the region, else stay; KL made, ``[]``.

        All are tried, so that nothing waits for the host; the documented code kept its last try when all had failed.
        """
        start = flat(list(self.net.actor.parameters())).detach()
        chosen, made, found = start, torch.zeros_like(loss), torch.zeros_like(loss, dtype=torch.bool)
        for tried in range(self.step.max_backtracks):
            place = start + self.step.backtrack_coef**tried * stride
            reached, divergence = self._moved(place, known, before)
            good = (divergence < region) & (reached < loss) & ~found
            chosen, made, found = torch.where(good, place, chosen), torch.where(good, divergence, made), found | good
        self._moved(chosen, known, before)
        return made

    @torch.no_grad()
    def _moved(self, start: Tensor, known: RolloutBatch, before: Policy) -> tuple[Tensor, Tensor]:
        """Put the actor's parameters at ``start``; gives its loss and its divergence from ``before``, each ``[]``."""
        parameters: list[Tensor] = list(self.net.actor.parameters())
        torch._foreach_copy_(parameters, shaped(start, parameters))
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

    def state_dict(self) -> State:
        """The networks, what the critic's optimizer has gathered, and the scale of returns."""
        return of_parts(self._parts())

    def load_state_dict(self, state: State) -> None:
        """Take them over, in place."""
        into_parts(self._parts(), state)

    def _parts(self) -> Parts:
        return {"net": self.net, "optimizer": self.optimizer, "returns": self.returns}
