"""Any other learner, made curious: every step it learns from pays what curiosity thinks of it on top.

The bonus is found with the model of today, whatever its age when the step was made, and for each step by itself: so an
n-step return holds as many bonuses as rewards, and advantages are made of both.
"""

from __future__ import annotations

from torch import Tensor, nn

from rlbench.algorithms.base import Learner, Periodic, Update
from rlbench.algorithms.icm import Curiosity
from rlbench.algorithms.onpolicy import OnPolicyLearner
from rlbench.nets.icm import ICMOutput
from rlbench.ops.losses import weighted_mean
from rlbench.ops.state_dict import Composite, Parts
from rlbench.ops.types import Metrics, NStepTrajectory, Role, Rollout, Transition


class CuriousReplay(Composite):
    """Around a learner of transitions; the model learns from the first step of each, as documented."""

    def __init__(self, inner: Learner[Transition], curiosity: Curiosity) -> None:
        self.inner, self.curiosity = inner, curiosity
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
        learned = self.inner.update(batch, phase)
        weight = (batch.weight > 0).to(bonus.dtype)
        features = self.curiosity.net.torso(trajectory.obs[:, :2].flatten(0, 1))
        seen: ICMOutput = self.curiosity.net(features[::2], batch.action, features[1::2])
        forward, inverse = self.curiosity.learn(seen, batch.action, weight)
        paid = weighted_mean(bonus[:, 0], weight)
        metrics = {**learned.metrics, "forward_loss": forward, "inverse_loss": inverse, "bonus": paid}
        return Update(metrics, learned.priority)

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """The actions of the learner within, ``[N]`` or ``[N, A]``."""
        return self.inner.act(obs, role)

    def policy(self) -> nn.Module:
        """Its network."""
        return self.inner.policy()

    @property
    def parts(self) -> Parts:
        """The learner within and the model."""
        return {"learner": self.inner, "curiosity": self.curiosity}


class CuriousRollouts(Composite):
    """Around a learner of rollouts; the model makes one step on the whole of each, as documented."""

    def __init__(self, inner: OnPolicyLearner, curiosity: Curiosity) -> None:
        self.inner, self.curiosity, self.steps = inner, curiosity, inner.steps

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
        useful_threads, bonus = self.rewarded(rollout, seen)
        learned = self.inner.update(useful_threads)
        weight = (~rollout.dead).flatten().to(bonus.dtype)
        forward, inverse = self.curiosity.learn(seen, rollout.action.flatten(), weight)
        paid = weighted_mean(bonus.flatten(), weight)
        return {**learned, "forward_loss": forward, "inverse_loss": inverse, "bonus": paid}

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """The actions of the learner within, ``[N]`` or ``[N, A]``."""
        return self.inner.act(obs, role)

    def policy(self) -> nn.Module:
        """Its network."""
        return self.inner.policy()

    @property
    def parts(self) -> Parts:
        """The learner within and the model."""
        return {"learner": self.inner, "curiosity": self.curiosity}
