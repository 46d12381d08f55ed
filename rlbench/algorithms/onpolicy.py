"""On-policy batches: log-probabilities, values, advantages (GAE) and value targets of a rollout."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from rlbench.nets.actor_critic import ActorCriticOutput, SeparateActorCritic, SharedActorCritic
from rlbench.ops.returns import advantages, initial_moments, update_moments
from rlbench.ops.state_dict import Composite, Parts
from rlbench.ops.types import Rollout

ActorCriticNet: TypeAlias = SeparateActorCritic | SharedActorCritic
EPSILON = 1e-8  # added to a variance, or in ``normalize`` to a std, before a division, as in the reference code

METRICS: Final = ("policy_loss", "value_loss", "entropy", "divergence")
"""Metrics of on-policy learners; entropy in nats; divergence is the mean of log π_old − log π ≈ KL(π_old ‖ π)."""


class RolloutBatch(NamedTuple):
    """A flattened rollout with values and advantages, M = T · N."""

    obs: Tensor  # [M, ...]
    action: Tensor  # [M, ...]
    log_prob: Tensor  # [M] under the policy that acted
    value: Tensor  # [M] as the critic predicts it, in its own scale
    advantage: Tensor  # [M]
    value_target: Tensor  # [M] in the critic's own scale
    weight: Tensor  # [M] 0 for a final observation, which has no action


class AdvantageEstimator(Composite):
    """Advantages and value targets; with ``scale_returns`` the critic predicts returns divided by their running std.

    The order is that of the reference code: values are multiplied by the old std, advantages and returns are computed,
    the targets are divided by the same std, and only then the std includes the new returns.
    """

    def __init__(self, *, gamma: float, gae_lambda: float, scale_returns: bool, like: Tensor) -> None:
        self.gamma, self.gae_lambda, self.scale_returns = gamma, gae_lambda, scale_returns
        self.moments = initial_moments((), like)

    def running_std(self) -> Tensor:
        """The running std of the returns, ``[]``: the unit of the critic."""
        if not self.scale_returns:
            return torch.ones_like(self.moments.var, dtype=torch.float32)
        return (self.moments.var + EPSILON).sqrt().float()

    def __call__(self, rollout: Rollout, value: Tensor) -> tuple[Tensor, Tensor]:
        """Advantages and value targets, both ``[T, N]``, from the critic's values ``[T + 1, N]``."""
        unit = self.running_std()
        value_in_rewards = value * unit
        advantage = advantages(rollout, value_in_rewards, gamma=self.gamma, gae_lambda=self.gae_lambda)
        returns = advantage + value_in_rewards[:-1]
        if self.scale_returns:
            self.moments = update_moments(self.moments, returns.flatten(), (~rollout.final).flatten())
        return advantage, returns / unit

    @property
    def parts(self) -> Parts:
        """The moments of the returns."""
        return self.moments._asdict()


@torch.no_grad()
def evaluate_actions(net: ActorCriticNet, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the actions, ``[T, N]``, and values, ``[T + 1, N]``, in one pass over all rows."""
    output: ActorCriticOutput = net(rollout.obs.flatten(0, 1))
    actions = torch.cat([rollout.action, rollout.action[-1:]]).flatten(0, 1)  # the last row has no action yet
    shape = rollout.obs.shape[:2]
    return output.policy.log_prob(actions).view(shape)[:-1], output.value.view(shape)


@torch.no_grad()
def state_values(net: ActorCriticNet, rollout: Rollout) -> Tensor:
    """Values alone, ``[T + 1, N]``."""
    value: Tensor = net.state_value(rollout.obs.flatten(0, 1))
    return value.view(rollout.obs.shape[:2])


def rollout_batch(net: ActorCriticNet, rollout: Rollout, estimator: AdvantageEstimator) -> RolloutBatch:
    """The rollout with values and log-probabilities of the current ``net``."""
    log_prob, value = evaluate_actions(net, rollout)
    advantage, value_target = estimator(rollout, value)
    return RolloutBatch(
        obs=rollout.obs[:-1].flatten(0, 1),
        action=rollout.action.flatten(0, 1),
        log_prob=log_prob.flatten(),
        value=value[:-1].flatten(),
        advantage=advantage.flatten(),
        value_target=value_target.flatten(),
        weight=(~rollout.final).flatten().to(value.dtype),
    )


def normalize(x: Tensor, weight: Tensor) -> Tensor:
    """``x`` ``[M]`` normalized to mean 0 and std 1 over the rows of weight 1."""
    rows = weight.sum().clamp_min(1)
    mean = (x * weight).sum() / rows
    std = (((x - mean).square() * weight).sum() / (rows - 1).clamp_min(1)).sqrt()
    return (x - mean) / (std + EPSILON)
