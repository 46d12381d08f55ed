"""What DDPG, TD3, SAC and REDQ share: their report, the critics' error, and targets that trail behind."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlbench.nets.critics import Critics
from rlbench.ops.types import Transition


class ACUpdate(NamedTuple):
    """What one gradient step has to say; what was not touched in it keeps its last value."""

    critic_loss: Tensor  # [] summed over the critics
    actor_loss: Tensor  # []
    q: Tensor  # [] mean value of the actions taken
    entropy: Tensor  # [] of the policy, by the log-density of its samples; 0 of a deterministic one
    alpha: Tensor  # [] temperature; 0 of a deterministic policy
    priority: Tensor  # [B]


def td_loss(critics: Critics, batch: Transition, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The squared TD errors of all critics against ``goal`` ``[B]`` (1802.09477, algorithm 1).

    Gives the loss (each member's weighted mean, summed), the members' mean value, both ``[]``, and the mean absolute
    error of each row, ``[B]``.
    """
    return squared_td_errors(critics(batch.obs, batch.action), goal, batch.weight)


def squared_td_errors(value: Tensor, goal: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same of values ``[K, B]`` that are known already."""
    error = value - goal
    loss = (weight * error.square()).mean(1).sum()
    return loss, value.mean().detach(), error.abs().mean(0).detach()


@torch.no_grad()
def polyak_update(target: nn.Module, online: nn.Module, rate: float) -> None:
    """Move ``target`` towards ``online`` by this share of the way, in place."""
    torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), rate)
