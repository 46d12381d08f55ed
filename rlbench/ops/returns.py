"""What a rollout was worth: advantages and discounted returns, over rows of lanes.

Row t holds what was seen and done at t; row t + 1 is what came of it, the true final observation of an episode too. A
dead row shows a final observation: no action was taken there, it counts for nothing, and nothing flows through it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rlbench.ops.types import Rollout


class Moments(NamedTuple):
    """Mean and variance of everything seen so far, merged batch by batch without keeping it."""

    mean: Tensor  # [...] float64
    var: Tensor  # [...] float64, of the population
    rows: Tensor  # [] float64


def fresh(shape: tuple[int, ...], like: Tensor) -> Moments:
    """Of nothing yet, each ``[*shape]``: mean 0 and variance 1, so that dividing by them changes nothing."""
    zeros = like.new_zeros(shape, dtype=torch.float64)
    return Moments(zeros, zeros + 1, like.new_zeros((), dtype=torch.float64))


def merged(moments: Moments, x: Tensor, weight: Tensor) -> Moments:
    """With the rows of ``x`` ``[B, ...]`` whose ``weight`` ``[B]`` is 1 (Chan et al. 1979, eq. 1.5)."""
    x, weight = x.double(), weight.double().view(-1, *([1] * (x.dim() - 1)))
    rows = weight.sum()
    mean = (weight * x).sum(0) / rows.clamp_min(1)
    squares = (weight * (x - mean).square()).sum(0)
    total = (moments.rows + rows).clamp_min(1)
    gap = mean - moments.mean
    spread = moments.var * moments.rows + squares + gap.square() * moments.rows * rows / total
    some = rows > 0
    return Moments(
        torch.where(some, moments.mean + gap * rows / total, moments.mean),
        torch.where(some, spread / total, moments.var),
        moments.rows + rows,
    )


def advantages(rollout: Rollout, value: Tensor, *, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimates (https://arxiv.org/abs/1506.02438, eq. 16), ``[T, N]``.

    ``value`` is ``[T + 1, N]``. A termination bootstraps nothing, a truncation and the end of the rollout bootstrap
    from what was really seen there. Dead rows get 0.
    """
    going, alive = (~rollout.terminated).to(value.dtype), (~rollout.dead).to(value.dtype)
    error = (rollout.reward + gamma * going * value[1:] - value[:-1]) * alive
    carried = gamma * gae_lambda * (~rollout.done).to(value.dtype) * alive
    found = torch.empty_like(error)
    behind = torch.zeros_like(error[0])
    for row in range(len(error) - 1, -1, -1):
        behind = error[row] + carried[row] * behind
        found[row] = behind
    return found


def discounted(rollout: Rollout, ending: Tensor, *, gamma: float) -> Tensor:
    """Sums of discounted rewards to the end of each episode, ``[T, N]``; dead rows get 0.

    What is not terminated there, by a limit or by the end of the rollout, is taken to be worth ``ending`` ``[]``.
    """
    constant = ending.expand(len(rollout.reward) + 1, rollout.reward.shape[1])
    return advantages(rollout, constant, gamma=gamma, gae_lambda=1.0) + ending * (~rollout.dead).to(ending.dtype)
