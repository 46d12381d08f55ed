"""TD3+BC: TD3 whose actor also imitates, the critic scaled so that both count whatever the rewards are."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.algorithms.base import compilable
from rlbench.algorithms.td3 import TD3
from rlbench.config import offline
from rlbench.ops.losses import bc_mse, weighted_mean
from rlbench.ops.types import Transition


class TD3BC(TD3):
    """https://arxiv.org/abs/2106.06860."""

    config: offline.TD3BC

    @compilable
    def policy_loss(self, batch: Transition) -> Tensor:
        """λ times how bad the first critic thinks the actor's actions, and how far they are from the data's, ``[]``.

        λ is α over the mean size of those values (eq. 5), of the rows that count; nothing is learned through it.
        """
        action = self.actor(batch.obs).mode()
        value = self.critics(batch.obs, action, members=1)[0]
        size = weighted_mean(value.detach().abs(), batch.weight)
        scale = self.config.alpha / size.clamp_min(torch.finfo(size.dtype).eps)
        result: Tensor = (batch.weight * (bc_mse(action, batch.action) - scale * value)).mean()
        return result
