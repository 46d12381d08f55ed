"""What a trainer needs of a learner, and nothing of how it learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from rlbench.ops.state import State
from rlbench.ops.types import Role

BatchT_contra = TypeVar("BatchT_contra", contravariant=True)
UpdateT_co = TypeVar("UpdateT_co", covariant=True)


class Periodic(NamedTuple):
    """Something that happens in place after every so many updates: a copy to a target network."""

    period: int  # updates
    action: Callable[[], None]


class Learner(Protocol[BatchT_contra, UpdateT_co]):
    """Learns from batches and acts; knows neither buffer nor environment nor time."""

    @property
    def every(self) -> tuple[Periodic, ...]:
        """What is due after every so many updates."""

    @property
    def cycle(self) -> int:
        """Updates after which their pattern repeats: TD3's actor moves in every second one."""

    def update(self, batch: BatchT_contra, phase: int) -> UpdateT_co:
        """The ``phase``-th gradient step of a cycle, of fixed shape; a record of 0-d tensors and priorities."""

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """The preferred actions at ``obs``, ``[N]`` or ``[N, A]``; exploring is the collector's."""

    def policy(self) -> nn.Module:
        """The network that acts, for hashing and for keeping."""

    def state_dict(self) -> State:
        """Networks, targets and optimizers."""

    def load_state_dict(self, state: State) -> None:
        """Take them over."""


def descend(loss: Tensor, optimizers: Sequence[torch.optim.Optimizer], *, max_norm: float | None = None) -> None:
    """One step down ``loss``, touching only these optimizers' parameters: no freezing, no gradient left elsewhere."""
    parameters = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    gradients = torch.autograd.grad(loss, parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    if max_norm is not None:
        nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True)
    for optimizer in optimizers:
        optimizer.step()
