"""What a family of algorithms brings to a run; the rest is the same for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch

from rlbench.algorithms.advantage_weighted import FilteredUpdate
from rlbench.algorithms.base import Learner
from rlbench.algorithms.bcq import ConstrainedUpdate
from rlbench.algorithms.behavior_cloning import ClonedUpdate
from rlbench.algorithms.cql import ConservativeUpdate
from rlbench.algorithms.critic_loss import ACUpdate
from rlbench.algorithms.dqn import QUpdate
from rlbench.buffers.ring import Column
from rlbench.collectors.explore import Explorer, NoExploration
from rlbench.ops.types import Transition
from rlbench.records.types import Learned
from rlbench.training.protocols import Schedule

OffPolicyLearner: TypeAlias = Learner[Transition, QUpdate | ACUpdate]
"""Learns from transitions and acts."""

OfflineLearner: TypeAlias = Learner[
    Transition, ACUpdate | ClonedUpdate | ConstrainedUpdate | ConservativeUpdate | FilteredUpdate | QUpdate
]
"""Likewise, of transitions that somebody else made."""


class Parts(NamedTuple):
    """One family's share of a run."""

    learner: OffPolicyLearner
    action: Column  # how an action lies in the ring
    training: Callable[[torch.Generator], Explorer]
    judging: Callable[[torch.Generator], Explorer]
    exploration: Callable[[int], float]  # live agent steps to how much is explored
    metrics: tuple[str, ...]  # fields of the learner's report that are averaged
    summary: Callable[[int, tuple[float, ...]], Learned]  # number of updates and their means, to a record


def _as_preferred(generator: torch.Generator) -> Explorer:  # noqa: ARG001 - no coin is thrown
    return NoExploration()


class OfflineParts(NamedTuple):
    """What an algorithm brings to a run that never explores."""

    learner: OfflineLearner
    action: Column  # how an action lies in the ring
    metrics: tuple[str, ...]  # fields of the learner's report that are averaged
    summary: Callable[[int, tuple[float, ...]], Learned]  # number of updates and their means, to a record
    schedules: list[Schedule]  # of the number of updates made, not of steps
    judging: Callable[[torch.Generator], Explorer] = _as_preferred
