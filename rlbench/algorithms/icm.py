"""Curiosity: what a model of the environment learns, and the reward for what it could not foresee (ICM).

The bonus of a step is of today's model, whatever the age of the step, and each step has its own: an n-step return holds
as many bonuses as rewards, and advantages are made of both.
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
    """https://arxiv.org/abs/1705.05363, with the documented weights of its two losses."""

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


class CuriousReplay(Composite):
    """Around a learner of transitions; the model learns from the first step of each, as documented."""

    saved = ("learner", "curiosity")

    def __init__(self, inner: OffPolicyLearner[Transition], curiosity: Curiosity) -> None:
        self.learner, self.curiosity = inner, curiosity
        self.act, self.policy = inner.act, inner.policy
        self.every: tuple[Periodic, ...] = inner.every
        self.cycle = inner.cycle

    def rewarded(self, trajectory: NStepTrajectory) -> tuple[Transition, Tensor]:
        """The transitions with every bonus on their way in their sums, and the bonuses, ``[B, H]``."""
        bonus = self.curiosity.bonus(trajectory)
        return trajectory.transition._replace(
            reward=trajectory.transition.reward + (trajectory.share * bonus).sum(1)
        ), bonus

    def update(self, trajectory: NStepTrajectory, phase: int) -> Update:
        """A gradient step of the learner within, then one of the model."""
        batch, bonus = self.rewarded(trajectory)
        learned = self.learner.update(batch, phase)
        weight = (batch.weight > 0).to(bonus.dtype)
        features = self.curiosity.net.torso(trajectory.obs[:, :2].flatten(0, 1))
        seen: ICMOutput = self.curiosity.net(features[::2], batch.action, features[1::2])
        forward, inverse = self.curiosity.learn(seen, batch.action, weight)
        paid = weighted_mean(bonus[:, 0], weight)
        metrics = {**learned.metrics, "forward_loss": forward, "inverse_loss": inverse, "bonus": paid}
        return Update(metrics, learned.priority)


class CuriousRollouts(Composite):
    """Around a learner of rollouts; the model makes one step on the whole of each, as documented."""

    saved = ("learner", "curiosity")

    def __init__(self, inner: OnPolicyLearner, curiosity: Curiosity) -> None:
        self.learner, self.curiosity, self.steps = inner, curiosity, inner.steps
        self.act, self.policy = inner.act, inner.policy

    def seen(self, rollout: Rollout) -> ICMOutput:
        """What the model makes of every step, those of dead rows too, M = T · N."""
        features = self.curiosity.net.torso(rollout.obs.flatten(0, 1)).unflatten(0, rollout.obs.shape[:2])
        seen: ICMOutput = self.curiosity.net(
            features[:-1].flatten(0, 1), rollout.action.flatten(), features[1:].flatten(0, 1)
        )
        return seen

    def rewarded(self, rollout: Rollout, seen: ICMOutput) -> tuple[Rollout, Tensor]:
        """The rollout with every bonus in its rewards, and the bonuses, ``[T, N]``; a dead row pays none."""
        bonus = self.curiosity.reward_scale * seen.error.detach().view(rollout.dead.shape) * ~rollout.dead
        return rollout._replace(reward=rollout.reward + bonus), bonus

    def update(self, rollout: Rollout) -> Metrics:
        """Everything the learner within learns from a rollout, then a gradient step of the model."""
        seen = self.seen(rollout)
        rewarded, bonus = self.rewarded(rollout, seen)
        learned = self.learner.update(rewarded)
        weight = (~rollout.dead).flatten().to(bonus.dtype)
        forward, inverse = self.curiosity.learn(seen, rollout.action.flatten(), weight)
        paid = weighted_mean(bonus.flatten(), weight)
        return {**learned, "forward_loss": forward, "inverse_loss": inverse, "bonus": paid}
