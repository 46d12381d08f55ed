"""TD3+BC: TD3 whose actor also imitates, the critic scaled so that both count whatever the rewards are."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.algorithms.td3 import TD3, Smoothing
from rlbench.nets.actors import DeterministicActor
from rlbench.nets.critics import Critics
from rlbench.ops.losses import bc_mse, weighted_mean
from rlbench.ops.types import Transition


class TD3BC(TD3):
    """https://arxiv.org/abs/2106.06860."""

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
        alpha: float,
    ) -> None:
        super().__init__(
            actor,
            critics,
            actor_optimizer=actor_optimizer,
            critic_optimizer=critic_optimizer,
            tau=tau,
            delay=delay,
            smoothing=smoothing,
        )
        self.alpha = alpha

    def policy_loss(self, batch: Transition) -> Tensor:
        """λ times how bad the first critic thinks the actor's actions, and how far they are from the data's, ``[]``.

        λ is α over the mean size of those values (eq. 5), of the rows that count; nothing is learned through it.
        """
        action = self.actor(batch.obs).mode()
        value = self.critics(batch.obs, action, members=1)[0]
        size = weighted_mean(batch.weight, value.detach().abs())
        scale = self.alpha / size.clamp_min(torch.finfo(size.dtype).eps)
        loss: Tensor = (batch.weight * (bc_mse(action, batch.action) - scale * value)).mean()
        return loss
