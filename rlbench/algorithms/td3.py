"""TD3, DDPG, which is TD3 with one critic, no smoothing and no delay, and TD3+BC, whose actor also clones behavior."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rlbench.algorithms.base import ActorLearner, Compiler, Update, compilable
from rlbench.algorithms.steps import optimize, squared_td_errors, target_updates
from rlbench.config.offline import TD3BCConfig
from rlbench.config.online import TD3PolicyConfig
from rlbench.nets.actors import DeterministicActor
from rlbench.nets.critics import Critics
from rlbench.ops.losses import bc_mse, weighted_mean
from rlbench.ops.types import Transition


class TD3(ActorLearner):
    """https://arxiv.org/abs/1802.09477; without its three additions DDPG, https://arxiv.org/abs/1509.02971."""

    saved = ("actor", "critics", "target_actor", "target_critics", "actor_optimizer", "critic_optimizer", "actor_loss")

    def __init__(
        self,
        actor: DeterministicActor,
        critics: Critics,
        *,
        actor_optimizer: torch.optim.Optimizer,
        critic_optimizer: torch.optim.Optimizer,
        tau: float,
        delay: int,
        config: TD3PolicyConfig | TD3BCConfig,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(compiler)
        self.actor, self.critics = actor, critics
        self.target_actor, self.target_critics = (copy.deepcopy(n).requires_grad_(False) for n in (actor, critics))
        self.actor_optimizer, self.critic_optimizer = actor_optimizer, critic_optimizer
        self.cycle_length, self.config = delay, config
        pairs = (self.target_actor, actor), (self.target_critics, critics)
        self.periodic_actions = target_updates(*pairs, tau=tau, period=delay)
        self.actor_loss = next(actor.parameters()).new_zeros(())  # the last one, between two steps of the actor

    @compilable
    def critic_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """Loss ``[]``, mean value ``[]`` and errors ``[B]`` against the minimum over target critics (algorithm 1)."""
        with torch.no_grad():
            policy = self.target_actor(batch.next_obs)
            scale, clip = self.config.smoothing, self.config.clip
            action = policy.mode() if scale is None else policy.add_clipped_noise(scale, clip)
            target = batch.reward + batch.discount * self.target_critics(batch.next_obs, action).amin(0)
        return squared_td_errors(self.critics(batch.obs, batch.action), target, batch.weight)

    @compilable
    def policy_loss(self, batch: Transition) -> Tensor:
        """The actor's loss, ``[]``: minus the first critic's value of its actions (eq. 9 of the DPG paper, negated)."""
        value: Tensor = self.critics(batch.obs, self.actor(batch.obs).mode(), members=1)
        return -(batch.weight * value[0]).mean()

    def update(self, batch: Transition, phase: int) -> Update:
        """A step of the critics, and at the end of a cycle one of the actor."""
        critic_loss, q, error = self.critic_loss(batch)
        optimize(critic_loss, self.critic_optimizer)
        if phase == self.cycle_length - 1:
            actor_loss = self.policy_loss(batch)
            optimize(actor_loss, self.actor_optimizer)
            self.actor_loss.copy_(actor_loss.detach())
        zero = torch.zeros_like(q)
        metrics = {
            "critic_loss": critic_loss.detach(),  # summed over the critics
            "actor_loss": self.actor_loss,
            "q": q,
            "entropy": zero,  # nats
            "alpha": zero,
        }
        return Update(metrics, error)


class TD3BC(TD3):
    """https://arxiv.org/abs/2106.06860."""

    config: TD3BCConfig

    @compilable
    def policy_loss(self, batch: Transition) -> Tensor:
        """The actor's loss, ``[]``: squared error to the data's actions minus λ times the first critic's value.

        λ is α over the mean absolute value (eq. 5) of rows with weight, without gradient.
        """
        action = self.actor(batch.obs).mode()
        value = self.critics(batch.obs, action, members=1)[0]
        mean_abs = weighted_mean(value.detach().abs(), batch.weight)
        lmbda = self.config.alpha / mean_abs.clamp_min(torch.finfo(mean_abs.dtype).eps)
        result: Tensor = (batch.weight * (bc_mse(action, batch.action) - lmbda * value)).mean()
        return result
