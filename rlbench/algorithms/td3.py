"""TD3, and DDPG, which is TD3 with one critic, no smoothing and no delay."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from rlbench.algorithms.base import Periodic, optimize
from rlbench.algorithms.critic_loss import ACUpdate, polyak_update, td_loss
from rlbench.nets.actors import DeterministicActor
from rlbench.nets.critics import Critics
from rlbench.ops.state_dict import Parts, State, into_parts, of_parts, tensor
from rlbench.ops.types import Role, Transition


class Smoothing(NamedTuple):
    """The noise on the target's action."""

    scale: float  # standard deviation, in actions of [−1, 1]
    clip: float  # beyond which it is cut


class TD3:
    """https://arxiv.org/abs/1802.09477; without its three additions DDPG, https://arxiv.org/abs/1509.02971."""

    every: tuple[Periodic, ...] = ()

    def __init__(
        self,
        actor: DeterministicActor,
        critics: Critics,
        *,
        actor_optimizer: torch.optim.Optimizer,
        critic_optimizer: torch.optim.Optimizer,
        tau: float,
        delay: int,
        smoothing: Smoothing | None,
    ) -> None:
        self.actor, self.critics = actor, critics
        self.target_actor, self.target_critics = (copy.deepcopy(n).requires_grad_(False) for n in (actor, critics))
        self.actor_optimizer, self.critic_optimizer = actor_optimizer, critic_optimizer
        self.tau, self.cycle, self.smoothing = tau, delay, smoothing
        self.actor_loss = next(actor.parameters()).new_zeros(())  # the last one, between two steps of the actor

    def critic_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """Loss ``[]``, mean value ``[]`` and errors ``[B]`` against the least of the targets (algorithm 1)."""
        with torch.no_grad():
            policy = self.target_actor(batch.next_obs)
            action = policy.mode() if self.smoothing is None else policy.smoothed(*self.smoothing)
            goal = batch.reward + batch.discount * self.target_critics(batch.next_obs, action).amin(0)
        return td_loss(self.critics, batch, goal)

    def policy_loss(self, batch: Transition) -> Tensor:
        """How bad the first critic thinks the actor's actions are, ``[]`` (eq. 9 of the DPG paper, negated)."""
        value: Tensor = self.critics(batch.obs, self.actor(batch.obs).mode(), members=1)
        return -(batch.weight * value[0]).mean()

    def update(self, batch: Transition, phase: int) -> ACUpdate:
        """A step of the critics; at the end of a cycle one of the actor too, and the targets follow."""
        loss, q, error = self.critic_loss(batch)
        optimize(loss, (self.critic_optimizer,))
        if phase == self.cycle - 1:
            actor_loss = self.policy_loss(batch)
            optimize(actor_loss, (self.actor_optimizer,))
            self.actor_loss.copy_(actor_loss.detach())
            polyak_update(self.target_actor, self.actor, self.tau)
            polyak_update(self.target_critics, self.critics, self.tau)
        nothing = torch.zeros_like(q)
        return ACUpdate(loss.detach(), self.actor_loss, q, nothing, nothing, error)

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:  # noqa: ARG002 - exploring is the collector's
        """The actor's actions, ``[N, A]``."""
        action: Tensor = self.actor(obs).mode()
        return action

    def policy(self) -> DeterministicActor:
        """The actor."""
        return self.actor

    def state_dict(self) -> State:
        """Four networks, two optimizers and the actor's last loss."""
        return {**of_parts(self._parts()), "actor_loss": self.actor_loss}

    def load_state_dict(self, state: State) -> None:
        """Take them over, in place."""
        into_parts(self._parts(), state)
        self.actor_loss.copy_(tensor(state, "actor_loss"))

    def _parts(self) -> Parts:
        targets = {"target_actor": self.target_actor, "target_critics": self.target_critics}
        optimizers = {"actor_optimizer": self.actor_optimizer, "critic_optimizer": self.critic_optimizer}
        return {"actor": self.actor, "critics": self.critics, **targets, **optimizers}
