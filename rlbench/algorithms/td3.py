"""TD3, and DDPG, which is TD3 with one critic, no smoothing and no delay."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rlbench.algorithms.base import Compilable, Compiler, Update, compilable, optimize
from rlbench.algorithms.critic_loss import td_loss
from rlbench.algorithms.target_networks import target_updates
from rlbench.config import offline
from rlbench.config.online import Deterministic
from rlbench.nets.actors import DeterministicActor
from rlbench.nets.critics import Critics
from rlbench.ops.state_dict import Parts
from rlbench.ops.types import Role, Transition


class TD3(Compilable):
    """https://arxiv.org/abs/1802.09477; without its three additions DDPG, https://arxiv.org/abs/1509.02971."""

    def __init__(
        self,
        actor: DeterministicActor,
        critics: Critics,
        *,
        actor_optimizer: torch.optim.Optimizer,
        critic_optimizer: torch.optim.Optimizer,
        tau: float,
        delay: int,
        policy: Deterministic | offline.TD3BC,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(compiler)
        self.actor, self.critics = actor, critics
        self.target_actor, self.target_critics = (copy.deepcopy(n).requires_grad_(False) for n in (actor, critics))
        self.actor_optimizer, self.critic_optimizer = actor_optimizer, critic_optimizer
        self.cycle, self.config = delay, policy
        pairs = (self.target_actor, actor), (self.target_critics, critics)
        self.every = target_updates(*pairs, tau=tau, period=delay)
        self.actor_loss = next(actor.parameters()).new_zeros(())  # the last one, between two steps of the actor

    @compilable
    def critic_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """Loss ``[]``, mean value ``[]`` and errors ``[B]`` against the least of the targets (algorithm 1)."""
        with torch.no_grad():
            policy = self.target_actor(batch.next_obs)
            scale, clip = self.config.smoothing, self.config.clip
            action = policy.mode() if scale is None else policy.add_clipped_noise(scale, clip)
            goal = batch.reward + batch.discount * self.target_critics(batch.next_obs, action).amin(0)
        return td_loss(self.critics, batch, goal)

    @compilable
    def policy_loss(self, batch: Transition) -> Tensor:
        """How bad the first critic thinks the actor's actions are, ``[]`` (eq. 9 of the DPG paper, negated)."""
        value: Tensor = self.critics(batch.obs, self.actor(batch.obs).mode(), members=1)
        return -(batch.weight * value[0]).mean()

    def update(self, batch: Transition, phase: int) -> Update:
        """A step of the critics; at the end of a cycle one of the actor too."""
        critic_loss, q, error = self.critic_loss(batch)
        optimize(critic_loss, self.critic_optimizer)
        if phase == self.cycle - 1:
            actor_loss = self.policy_loss(batch)
            optimize(actor_loss, self.actor_optimizer)
            self.actor_loss.copy_(actor_loss.detach())
        nothing = torch.zeros_like(q)
        metrics = {
            "critic_loss": critic_loss.detach(),  # summed over the critics
            "actor_loss": self.actor_loss,
            "q": q,
            "entropy": nothing,  # nats
            "alpha": nothing,
        }
        return Update(metrics, error)

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:  # noqa: ARG002 - exploring is the collector's
        """The actor's actions, ``[N, A]``."""
        action: Tensor = self.actor(obs).mode()
        return action

    def policy(self) -> DeterministicActor:
        """The actor."""
        return self.actor

    @property
    def parts(self) -> Parts:
        """Four networks, two optimizers and the actor's last loss."""
        targets = {"target_actor": self.target_actor, "target_critics": self.target_critics}
        optimizers = {"actor_optimizer": self.actor_optimizer, "critic_optimizer": self.critic_optimizer}
        networks = {"actor": self.actor, "critics": self.critics, **targets}
        return {**networks, **optimizers, "actor_loss": self.actor_loss}
