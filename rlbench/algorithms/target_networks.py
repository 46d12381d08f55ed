"""Target networks: copies of networks that move towards them after every so many updates."""

from __future__ import annotations

import torch
from torch import nn

from rlbench.algorithms.base import Periodic


@torch.no_grad()
def polyak_update(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move ``target`` towards ``online`` by the share ``tau`` of the way, in place; 1 copies."""
    if tau == 1:
        torch._foreach_copy_(list(target.parameters()), list(online.parameters()))
    else:
        torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)


def target_updates(*pairs: tuple[nn.Module, nn.Module], tau: float = 1.0, period: int = 1) -> tuple[Periodic, ...]:
    """Move each target network of ``(target, online)`` after every ``period`` updates."""

    def move() -> None:
        for target, online in pairs:
            polyak_update(target, online, tau)

    return (Periodic(period, move),)
