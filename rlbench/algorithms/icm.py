"""Curiosity (ICM): training of the module, and the intrinsic reward, its prediction error.

The bonus of a step is computed with the current module, whatever the age of the step. Each step has its own: an n-step
return contains as many bonuses as rewards, and so do advantages.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rlbench.algorithms.base import OffPolicyLearner, OnPolicyLearner, Periodic, Update
from rlbench.algorithms.steps import optimize
from rlbench.nets.icm import ICM, ICMOutput
from rlbench.ops.losses import weighted_mean
from rlbench.ops.state_dict import Composite
from rlbench.ops.types import Metrics, NStepTrajectory, Rollout, Transition


class Curiosity(Composite):
    """https://arxiv.org/abs/1705.05363, with the reference code's weights of its two losses."""

    saved = ("net", "optimizer")

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

    def loss(self, output: ICMOutput, action: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The module's loss (eq. 7 without the policy), and its forward and inverse parts, each ``[]``."""
        forward = weighted_mean(output.error, weight)
        inverse = weighted_mean(F.cross_entropy(output.action_logits, action, reduction="none"), weight)
        total = self.forward_share * forward + (1 - self.forward_share) * inverse
        return self.loss_scale * total, forward.detach(), inverse.detach()

    def learn(self, output: ICMOutput, action: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """One gradient step of the module on ``action`` and ``weight`` ``[B]``; return both parts of its loss."""
        loss, forward, inverse = self.loss(output, action, weight)
        optimize(loss, self.optimizer)
        return forward, inverse

    @torch.no_grad()
    def bonus(self, trajectory: NStepTrajectory) -> Tensor:
        """The intrinsic reward of each step (eq. 6), ``[B, H]``."""
        features = self.net.torso(trajectory.obs.flatten(0, 1)).unflatten(0, trajectory.obs.shape[:2])
        features_now, features_next = features[:, :-1].flatten(0, 1), features[:, 1:].flatten(0, 1)
        output: ICMOutput = self.net(features_now, trajectory.action.flatten(), features_next)
        return self.reward_scale * output.error.view(trajectory.action.shape)


class CuriousOffPolicyLearner(Composite):
    """An off-policy learner with curiosity; the module learns from the first step of each transition."""

    saved = ("learner", "curiosity")

    def __init__(self, inner: OffPolicyLearner[Transition], curiosity: Curiosity) -> None:
        self.learner, self.curiosity = inner, curiosity
        self.act, self.policy_net = inner.act, inner.policy_net
        self.periodic_actions: tuple[Periodic, ...] = inner.periodic_actions
        self.cycle_length = inner.cycle_length

    def add_bonus(self, trajectory: NStepTrajectory) -> tuple[Transition, Tensor]:
        """The transitions with the bonus of every step in their n-step returns, and the bonuses, ``[B, H]``."""
        bonus = self.curiosity.bonus(trajectory)
        reward = trajectory.transition.reward + (trajectory.discounts * bonus).sum(1)
        return trajectory.transition._replace(reward=reward), bonus

    def update(self, trajectory: NStepTrajectory, phase: int) -> Update:
        """A gradient step of the learner, then one of the module."""
        batch, bonus = self.add_bonus(trajectory)
        update = self.learner.update(batch, phase)
        weight = (batch.weight > 0).to(bonus.dtype)
        features = self.curiosity.net.torso(trajectory.obs[:, :2].flatten(0, 1))
        output: ICMOutput = self.curiosity.net(features[::2], batch.action, features[1::2])
        forward, inverse = self.curiosity.learn(output, batch.action, weight)
        mean_bonus = weighted_mean(bonus[:, 0], weight)
        metrics = {**update.metrics, "forward_loss": forward, "inverse_loss": inverse, "bonus": mean_bonus}
        return Update(metrics, update.priority)


class CuriousOnPolicyLearner(Composite):
    """An on-policy learner with curiosity; the module makes one gradient step per rollout."""

    saved = ("learner", "curiosity")

    def __init__(self, inner: OnPolicyLearner, curiosity: Curiosity) -> None:
        self.learner, self.curiosity, self.steps = inner, curiosity, inner.steps
        self.act, self.policy_net = inner.act, inner.policy_net

    def outputs(self, rollout: Rollout) -> ICMOutput:
        """The module's outputs for every step, final rows included, M = T · N."""
        features = self.curiosity.net.torso(rollout.obs.flatten(0, 1)).unflatten(0, rollout.obs.shape[:2])
        output: ICMOutput = self.curiosity.net(
            features[:-1].flatten(0, 1), rollout.action.flatten(), features[1:].flatten(0, 1)
        )
        return output

    def add_bonus(self, rollout: Rollout, output: ICMOutput) -> tuple[Rollout, Tensor]:
        """The rollout with bonuses added to its rewards, and the bonuses, ``[T, N]``; a final row gets 0."""
        bonus = self.curiosity.reward_scale * output.error.detach().view(rollout.final.shape) * ~rollout.final
        return rollout._replace(reward=rollout.reward + bonus), bonus

    def update(self, rollout: Rollout) -> Metrics:
        """The learner's update on a rollout, then a gradient step of the module."""
        output = self.outputs(rollout)
        new_rollout, bonus = self.add_bonus(rollout, output)
        metrics = self.learner.update(new_rollout)
        weight = (~rollout.final).flatten().to(bonus.dtype)
        forward, inverse = self.curiosity.learn(output, rollout.action.flatten(), weight)
        mean_bonus = weighted_mean(bonus.flatten(), weight)
        return {**metrics, "forward_loss": forward, "inverse_loss": inverse, "bonus": mean_bonus}
