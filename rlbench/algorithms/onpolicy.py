"""What on-policy learners make of a rollout before they learn from it, and what they report."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from rlbench.nets.actor_critic import PolicyValue, SeparateActorCritic, SharedActorCritic
from rlbench.ops.returns import advantages, fresh, merge_moments
from rlbench.ops.state_dict import Composite, Parts
from rlbench.ops.types import Rollout

ActorValue: TypeAlias = SeparateActorCritic | SharedActorCritic
EPSILON = 1e-8  # beneath every root that is divided by, as documented


METRICS: Final = ("policy_loss", "value_loss", "entropy", "divergence")
"""Of every on-policy learner; entropy in nats, and the mean of log π_old − log π, which estimates KL(π_old ‖ π)."""


class RolloutBatch(NamedTuple):
    """A rollout, judged: every row of every lane one after another, M = T · N."""

    obs: Tensor  # [M, ...]
    action: Tensor  # [M, ...]
    log_prob: Tensor  # [M] under the policy that acted
    value: Tensor  # [M] in the critic's own scale
    advantage: Tensor  # [M]
    value_target: Tensor  # [M] what the critic is to say
    weight: Tensor  # [M] 0 for a final observation, where nothing was done


class Returns(Composite):
    """Advantages and the critic's goals; with ``scaled`` the critic speaks in standard deviations of the return.

    The documented order: values are multiplied by the deviation known so far, advantages and returns made of them, the
    goals divided by that same deviation, and only then the new returns counted.
    """

    def __init__(self, *, gamma: float, gae_lambda: float, scaled: bool, like: Tensor) -> None:
        self.gamma, self.gae_lambda, self.scaled = gamma, gae_lambda, scaled
        self.moments = fresh((), like)

    def deviation(self) -> Tensor:
        """What a unit of the critic is worth, ``[]``."""
        if not self.scaled:
            return torch.ones_like(self.moments.var, dtype=torch.float32)
        return (self.moments.var + EPSILON).sqrt().float()

    def __call__(self, rollout: Rollout, value: Tensor) -> tuple[Tensor, Tensor]:
        """Advantages and goals, both ``[T, N]``, from the critic's values ``[T + 1, N]``."""
        unit = self.deviation()
        real = value * unit
        advantage = advantages(rollout, real, gamma=self.gamma, gae_lambda=self.gae_lambda)
        reached = advantage + real[:-1]
        if self.scaled:
            self.moments = merge_moments(self.moments, reached.flatten(), (~rollout.dead).flatten())
        return advantage, reached / unit

    @property
    def parts(self) -> Parts:
        """The moments of the returns."""
        return self.moments._asdict()


@torch.no_grad()
def evaluate_actions(net: ActorValue, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Log-probabilities of what was done, ``[T, N]``, and values, ``[T + 1, N]``, in one pass over all rows."""
    found: PolicyValue = net(rollout.obs.flatten(0, 1))
    done = torch.cat([rollout.action, rollout.action[-1:]]).flatten(0, 1)  # nothing was done yet in the last row
    shape = rollout.obs.shape[:2]
    return found.policy.log_prob(done).view(shape)[:-1], found.value.view(shape)


@torch.no_grad()
def state_values(net: ActorValue, rollout: Rollout) -> Tensor:
    """Values alone, ``[T + 1, N]``."""
    value: Tensor = net.state_value(rollout.obs.flatten(0, 1))
    return value.view(rollout.obs.shape[:2])


def rollout_batch(net: ActorValue, rollout: Rollout, returns: Returns) -> RolloutBatch:
    """The rollout as ``net`` sees it now."""
    log_prob, value = evaluate_actions(net, rollout)
    advantage, goal = returns(rollout, value)
    return RolloutBatch(
        obs=rollout.obs[:-1].flatten(0, 1),
        action=rollout.action.flatten(0, 1),
        log_prob=log_prob.flatten(),
        value=value[:-1].flatten(),
        advantage=advantage.flatten(),
        value_target=goal.flatten(),
        weight=(~rollout.dead).flatten().to(value.dtype),
    )


def normalize(x: Tensor, weight: Tensor) -> Tensor:
    """``x`` ``[M]`` with mean 0 and standard deviation 1 over the rows that count."""
    rows = weight.sum().clamp_min(1)
    mean = (x * weight).sum() / rows
    spread = (((x - mean).square() * weight).sum() / (rows - 1).clamp_min(1)).sqrt()
    return (x - mean) / (spread + EPSILON)
