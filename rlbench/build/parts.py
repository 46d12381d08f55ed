"""What a family of algorithms brings to a run; the rest is the same for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from rlbench.buffers.ring import Column
from rlbench.collectors.explore import Explorer
from rlbench.fast.updater import Periodic, Report
from rlbench.ops.state import State
from rlbench.ops.types import Role, Transition
from rlbench.record.types import Updated


class OffPolicyLearner(Protocol):
    """Learns from transitions and acts."""

    @property
    def every(self) -> tuple[Periodic, ...]:
        """What is due after every so many updates."""

    @property
    def cycle(self) -> int:
        """Updates after which the pattern of updates repeats."""

    def update(self, batch: Transition, phase: int) -> Report:
        """One gradient step, the ``phase``-th of its cycle."""

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Preferred actions."""

    def policy(self) -> nn.Module:
        """The network that acts."""

    def state_dict(self) -> State:
        """Everything that learns."""

    def load_state_dict(self, state: State) -> None:
        """Take it over."""


class Parts(NamedTuple):
    """One family's share of a run."""

    learner: OffPolicyLearner
    action: Column  # how an action lies in the ring
    training: Callable[[torch.Generator], Explorer]
    judging: Callable[[torch.Generator], Explorer]
    exploration: Callable[[int], float]  # live agent steps to how much is explored
    metrics: tuple[str, ...]  # fields of the learner's report that are averaged
    summary: Callable[[int, tuple[float, ...]], Updated]  # number of updates and their means, to a record
