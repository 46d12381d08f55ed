"""Batches that modules exchange. They are NamedTuples of tensors, which torch compiles and captures as they are.

Shape letters, used in comments and never as variable suffixes:
B batch · T time · N environments · M some rows or samples · A actions (or action size) · Q atoms or quantiles ·
K ensemble members · F features or a vector observation · L latent · H steps of a return · P parameters.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor

Role = Literal["act", "eval", "learn", "target"]
"""The purpose of a forward pass; it alone selects noise and sample counts."""


class Transition(NamedTuple):
    """A minibatch of n-step transitions; ``discount`` already holds γᵏ, or 0 where nothing bootstraps."""

    obs: Tensor  # [B, ...] observation of the action
    action: Tensor  # [B] int64, or [B, A] float32 in [-1, 1]
    reward: Tensor  # [B] n-step return without the bootstrap
    discount: Tensor  # [B] factor of the bootstrap: γᵏ, or 0 after a terminal state
    next_obs: Tensor  # [B, ...] k steps later
    weight: Tensor  # [B] importance weight; a row of weight 0 adds nothing to a loss, whose mean is over all B
    slot: Tensor  # [B] int64 place in the buffer, for priorities


Metrics: TypeAlias = dict[str, Tensor]
"""Metrics of a gradient step by name, each ``[]``."""


class NStepTrajectory(NamedTuple):
    """n-step transitions with each of their steps, for ICM, whose bonus belongs to a step."""

    transition: Transition
    obs: Tensor  # [B, H+1, ...] observations of the steps; after the end of an episode, those of the next episode
    action: Tensor  # [B, H]
    discounts: Tensor  # [B, H] of a step's reward in the n-step return: γʰ, and 0 after the episode's end

    @property
    def slot(self) -> Tensor:
        """``[B]`` int64 place in the buffer, for priorities."""
        return self.transition.slot


class Rollout(NamedTuple):
    """The newest T steps of N environments, in the order of time."""

    obs: Tensor  # [T+1, N, ...]; row T begins the next rollout
    action: Tensor  # [T, N, ...] as sampled: continuous ones may lie outside [-1, 1]
    reward: Tensor  # [T, N]
    terminated: Tensor  # [T, N] bool: nothing to bootstrap from
    done: Tensor  # [T, N] bool: the next row is the final observation
    final: Tensor  # [T, N] bool: a final observation; no action was taken here
