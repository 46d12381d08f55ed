"""IQL: no action is ever asked about that is not in the data; an expectile takes the place of the maximum."""

from __future__ import annotations

import copy
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from rlbench.algorithms.advantage_weighted import FilteredUpdate
from rlbench.algorithms.base import Periodic, optimize
from rlbench.algorithms.critic_loss import polyak_update, td_loss
from rlbench.nets.actors import BoundedActor, ConditionalActor, DeterministicActor
from rlbench.nets.critics import Critics, StateValue
from rlbench.ops.action_distributions import Deterministic
from rlbench.ops.losses import expectile_loss, exponential_weight, weighted_mean
from rlbench.ops.state_dict import Parts, State, into_parts, of_parts
from rlbench.ops.types import Role, Transition

ImitatingActor: TypeAlias = BoundedActor | ConditionalActor | DeterministicActor


class Extraction(NamedTuple):
    """How values are taken from the data, and the policy from the values."""

    expectile: float  # τ of eq. 5
    temperature: float  # by which advantages are multiplied
    max_weight: float  # the greatest weight


class Optimizers(NamedTuple):
    """One for each network."""

    actor: torch.optim.Optimizer
    critics: torch.optim.Optimizer
    value: torch.optim.Optimizer


class IQL:
    """https://arxiv.org/abs/2110.06169; all three networks move at once, each by what the others said before."""

    every: tuple[Periodic, ...] = ()
    cycle = 1

    def __init__(
        self,
        actor: ImitatingActor,
        critics: Critics,
        value: StateValue,
        *,
        optimizers: Optimizers,
        tau: float,
        extraction: Extraction,
    ) -> None:
        self.actor, self.critics, self.value = actor, critics, value
        self.target_critics = copy.deepcopy(critics).requires_grad_(False)
        self.optimizers, self.tau, self.extraction = optimizers, tau, extraction

    def value_loss(self, batch: Transition) -> tuple[Tensor, Tensor]:
        """The value network's loss against the least target (eq. 5), ``[]``, and the data's advantages, ``[B]``."""
        advantage = self.target_critics(batch.obs, batch.action).amin(0) - self.value(batch.obs)
        loss = (batch.weight * expectile_loss(advantage, self.extraction.expectile)).mean()
        return loss, advantage.detach()

    def critic_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """Loss ``[]``, mean value ``[]`` and errors ``[B]`` against the value of what comes next (eq. 6)."""
        with torch.no_grad():
            goal = batch.reward + batch.discount * self.value(batch.next_obs)
        return td_loss(self.critics, batch, goal)

    def policy_loss(self, batch: Transition, advantage: Tensor) -> tuple[Tensor, Tensor]:
        """The actor's loss (eq. 7) and the mean weight of what it imitates, both ``[]``.

        A deterministic actor's squared distance takes the place of the negative log-density.
        """
        weight = exponential_weight(advantage, self.extraction.temperature, self.extraction.max_weight)
        policy = self.actor(batch.obs)
        if isinstance(policy, Deterministic):
            error = (policy.action - batch.action).square().sum(-1)
        else:
            error = -policy.log_prob(batch.action)
        return (batch.weight * weight * error).mean(), weighted_mean(batch.weight, weight)

    def update(self, batch: Transition, phase: int = 0) -> FilteredUpdate:  # noqa: ARG002 - every update is like the others
        """A step of all three networks; the targets follow."""
        value_loss, advantage = self.value_loss(batch)
        critic_loss, q, error = self.critic_loss(batch)
        actor_loss, imitated = self.policy_loss(batch, advantage)
        optimize(value_loss + critic_loss + actor_loss, self.optimizers)
        polyak_update(self.target_critics, self.critics, self.tau)
        losses = (critic_loss.detach(), value_loss.detach(), actor_loss.detach())
        return FilteredUpdate(*losses, q, imitated, error)

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Samples of the policy, ``[N, A]``; its mode when it is judged."""
        policy = self.actor(obs)
        if role == "eval" or isinstance(policy, Deterministic):
            action: Tensor = policy.mode()
        else:
            action = policy.draws(1)[0]
        return action

    def policy(self) -> ImitatingActor:
        """The actor."""
        return self.actor

    def state_dict(self) -> State:
        """Four networks and three optimizers."""
        return of_parts(self._parts())

    def load_state_dict(self, state: State) -> None:
        """Take them over, in place."""
        into_parts(self._parts(), state)

    def _parts(self) -> Parts:
        networks = {"actor": self.actor, "critics": self.critics, "value": self.value}
        optimizers = {f"{name}_optimizer": optimizer for name, optimizer in self.optimizers._asdict().items()}
        return {**networks, "target_critics": self.target_critics, **optimizers}
