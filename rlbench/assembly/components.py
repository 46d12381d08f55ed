"""What a family of algorithms brings to a run; the rest is the same for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from rlbench.algorithms.base import OffPolicyLearner
from rlbench.buffers.ring import Column
from rlbench.collectors.explore import Explorer, NoExploration
from rlbench.ops.types import Transition
from rlbench.training.protocols import Schedule


class Parts(NamedTuple):
    """One family's share of a run."""

    learner: OffPolicyLearner[Transition]
    action: Column  # how an action lies in the ring
    training: Callable[[torch.Generator], Explorer]
    judging: Callable[[torch.Generator], Explorer]
    exploration: Callable[[int], float]  # live agent steps to how much is explored


def _as_preferred(generator: torch.Generator) -> Explorer:  # noqa: ARG001 - no coin is thrown
    return NoExploration()


class OfflineParts(NamedTuple):
    """What an algorithm brings to a run that never explores."""

    learner: OffPolicyLearner[Transition]
    action: Column  # how an action lies in the ring
    schedules: list[Schedule]  # of the number of updates made, not of steps
    judging: Callable[[torch.Generator], Explorer] = _as_preferred
