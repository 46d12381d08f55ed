"""Curiosity: what a model of the environment learns, and the reward for what it could not foresee (ICM)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rlbench.algorithms.base import optimize
from rlbench.nets.icm import ICM, ICMOutput
from rlbench.ops.losses import weighted_mean
from rlbench.ops.state_dict import Composite, Parts
from rlbench.ops.types import NStepTrajectory


class Curiosity(Composite):
    """https://arxiv.org/abs/1705.05363, with the documented weights of its two losses."""

    def __init__(
        self,
        net: ICM,
        *,
        optimizer: torch.optim.Optimizer,
        loss_scale: float,
        reward_scale: float,
        forward_share: float,
    ) -> None:
        self.net, self.optimizer, self.loss_scale = net, optimizer, loss_scale
        self.reward_scale, self.forward_share = reward_scale, forward_share

    def loss(self, seen: ICMOutput, action: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What is minimised (eq. 7 without the policy), the forward and the inverse part of it, each ``[]``."""
        forward = weighted_mean(seen.error, weight)
        inverse = weighted_mean(F.cross_entropy(seen.action_logits, action, reduction="none"), weight)
        both = self.forward_share * forward + (1 - self.forward_share) * inverse
        return self.loss_scale * both, forward.detach(), inverse.detach()

    def learn(self, seen: ICMOutput, action: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the model on ``action`` and ``weight`` ``[B]``; gives both parts of its loss, each ``[]``."""
        loss, forward, inverse = self.loss(seen, action, weight)
        optimize(loss, self.optimizer)
        return forward, inverse

    @torch.no_grad()
    def bonus(self, walk: NStepTrajectory) -> Tensor:
        """What each step of each walk pays (eq. 6), ``[B, H]``."""
        features = self.net.torso(walk.obs.flatten(0, 1)).unflatten(0, walk.obs.shape[:2])
        before, after = features[:, :-1].flatten(0, 1), features[:, 1:].flatten(0, 1)
        seen: ICMOutput = self.net(before, walk.action.flatten(), after)
        return self.reward_scale * seen.error.view(walk.action.shape)

    @property
    def parts(self) -> Parts:
        """The model and its optimizer."""
        return {"net": self.net, "optimizer": self.optimizer}
