"""What a family of algorithms brings to a run; the rest is the same for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import torch

from rlbench.buffers.ring import Column
from rlbench.collectors.explore import Explorer
from rlbench.learners.actorcritic import ACUpdate
from rlbench.learners.base import Learner
from rlbench.learners.bcq import ConstrainedUpdate
from rlbench.learners.cql import ConservativeUpdate
from rlbench.learners.filtered import FilteredUpdate
from rlbench.learners.imitation import ClonedUpdate
from rlbench.learners.qlearning import QUpdate
from rlbench.ops.types import Transition
from rlbench.record.types import Learned

OffPolicyLearner: TypeAlias = Learner[Transition, QUpdate | ACUpdate]
"""Learns from transitions and acts."""

OfflineLearner: TypeAlias = Learner[
    Transition, ACUpdate | ClonedUpdate | ConstrainedUpdate | ConservativeUpdate | FilteredUpdate | QUpdate
]
"""Learns from recorded transitions and acts."""

LearnerT_co = TypeVar("LearnerT_co", OffPolicyLearner, OfflineLearner, covariant=True)


class Parts(NamedTuple, Generic[LearnerT_co]):
    """One family's share of a run."""

    learner: LearnerT_co
    action: Column  # how an action lies in the ring
    training: Callable[[torch.Generator], Explorer]
    judging: Callable[[torch.Generator], Explorer]
    exploration: Callable[[int], float]  # live agent steps to how much is explored
    metrics: tuple[str, ...]  # fields of the learner's report that are averaged
    summary: Callable[[int, tuple[float, ...]], Learned]  # number of updates and their means, to a record
