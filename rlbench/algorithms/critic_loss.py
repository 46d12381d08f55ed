"""The TD error that DDPG, TD3, SAC and REDQ share."""

from __future__ import annotations

from torch import Tensor

from rlbench.nets.critics import Critics
from rlbench.ops.losses import valid_mean
from rlbench.ops.types import Transition


def td_loss(critics: Critics, batch: Transition, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The squared TD errors of all critics against ``goal`` ``[B]`` (1802.09477, algorithm 1).

    Gives the loss (each member's weighted mean, summed) and the mean value over members and rows of weight > 0, both
    ``[]``, and the mean absolute error of each row, ``[B]``.
    """
    return squared_td_errors(critics(batch.obs, batch.action), goal, batch.weight)


def squared_td_errors(value: Tensor, goal: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same of values ``[K, B]`` that are known already."""
    error = value - goal
    loss = (weight * error.square()).mean(1).sum()
    return loss, valid_mean(value.detach(), weight), error.abs().mean(0).detach()
