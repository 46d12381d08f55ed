"""Generalized advantage estimates (GAE) and discounted returns of a rollout.

Row t holds observation and action at time t; row t + 1 holds the next observation, also the true final one of an
episode. The row of a final observation is final: it holds no action, and no estimate passes through it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rlbench.ops.types import Rollout


class RunningMoments(NamedTuple):
    """Running mean and variance, merged batch by batch."""

    mean: Tensor  # [...] float64
    var: Tensor  # [...] float64, of the population
    rows: Tensor  # [] float64


def initial_moments(shape: tuple[int, ...], like: Tensor) -> RunningMoments:
    """Initial moments ``[*shape]``: mean 0 and variance 1, so that normalizing by them is the identity."""
    zeros = like.new_zeros(shape, dtype=torch.float64)
    return RunningMoments(zeros, zeros + 1, like.new_zeros((), dtype=torch.float64))


def update_moments(moments: RunningMoments, x: Tensor, weight: Tensor) -> RunningMoments:
    """Merge the rows of ``x`` ``[B, ...]`` of ``weight`` ``[B]`` 1 into the moments (Chan et al. 1979, eq. 1.5)."""
    x, weight = x.double(), weight.double().view(-1, *([1] * (x.dim() - 1)))
    rows = weight.sum()
    mean = (weight * x).sum(0) / rows.clamp_min(1)
    squares = (weight * (x - mean).square()).sum(0)
    total = (moments.rows + rows).clamp_min(1)
    delta = mean - moments.mean
    square_sum = moments.var * moments.rows + squares + delta.square() * moments.rows * rows / total
    has_rows = rows > 0
    return RunningMoments(
        torch.where(has_rows, moments.mean + delta * rows / total, moments.mean),
        torch.where(has_rows, square_sum / total, moments.var),
        moments.rows + rows,
    )


def advantages(rollout: Rollout, value: Tensor, *, gamma: float, gae_lambda: float) -> Tensor:
    """Generalized advantage estimates, GAE(λ) (https://arxiv.org/abs/1506.02438, eq. 16), ``[T, N]``.

    ``value`` is ``[T + 1, N]``. The sum stops at the end of an episode. A termination does not bootstrap; a truncation
    does so from the value of the true final observation, and the end of the rollout from that of the newest
    observation. Final rows get 0.
    """
    nonterminal, has_action = (~rollout.terminated).to(value.dtype), (~rollout.final).to(value.dtype)
    error = (rollout.reward + gamma * nonterminal * value[1:] - value[:-1]) * has_action
    decay = gamma * gae_lambda * (~rollout.done).to(value.dtype) * has_action
    advantage = torch.empty_like(error)
    running = torch.zeros_like(error[0])
    for row in range(len(error) - 1, -1, -1):
        running = error[row] + decay[row] * running
        advantage[row] = running
    return advantage


def discounted_returns(rollout: Rollout, bootstrap: Tensor, *, gamma: float) -> Tensor:
    """Discounted returns to the end of each episode, ``[T, N]``; final rows get 0.

    An episode that a limit or the end of the rollout truncates is bootstrapped from the value ``bootstrap`` ``[]``.
    """
    value = bootstrap.expand(len(rollout.reward) + 1, rollout.reward.shape[1])
    return advantages(rollout, value, gamma=gamma, gae_lambda=1.0) + bootstrap * (~rollout.final).to(bootstrap.dtype)
