"""The inner loops: off-policy sample, update and set priorities in each step; on-policy one update per rollout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic

import torch
from torch import Tensor

from rlbench.algorithms.base import OffPolicyLearner, OnPolicyLearner
from rlbench.ops.state_dict import Composite, State, integer, subtree, tensor
from rlbench.ops.types import Rollout
from rlbench.records.types import Updated
from rlbench.training.protocols import BatchT, ReplaySource


class MeanMetrics:
    """Means of named metrics over the gradient steps of an epoch; their names are those of the first step."""

    def __init__(self, device: torch.device) -> None:
        self.names, self.count = tuple[str, ...](), 0
        self.sums = torch.zeros(0, dtype=torch.float64, device=device)

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """Add the metrics of one update, each ``[]``."""
        if not self.names:
            self.names = tuple(sorted(metrics))
            self.sums = self.sums.new_zeros(len(metrics))
        self.sums += torch.stack([metrics[name] for name in self.names])
        self.count += 1

    def take(self, steps: int = 1) -> Updated | None:
        """Means since the last call, of updates of ``steps`` gradient steps; None without one. Waits for the device."""
        count, sums = self.count, self.sums.tolist()
        self.count = 0
        self.sums.zero_()
        means = {name: total / count for name, total in zip(self.names, sums, strict=True)} if count else {}
        return Updated(count=count * steps, means=means) if count else None

    def state_dict(self) -> State:
        """Sums by name, and count."""
        return {"sums": dict(zip(self.names, self.sums.unbind(), strict=True)), "count": self.count}

    def load_state_dict(self, state: State) -> None:
        """Restore sums and count."""
        sums = subtree(state, "sums")
        self.names, self.count = tuple(sorted(sums)), integer(state, "count")
        self.sums = self.sums.new_zeros(len(self.names))
        for place, name in zip(self.sums.unbind(), self.names, strict=True):
            place.copy_(tensor(sums, name))


class EagerUpdater(Composite, Generic[BatchT]):
    """The off-policy inner loop, run eagerly."""

    saved = ("metrics",)

    def __init__(
        self, *, source: ReplaySource[BatchT], learner: OffPolicyLearner[BatchT], batch: int, metrics: MeanMetrics
    ) -> None:
        self.source, self.learner, self.batch, self.metrics = source, learner, batch, metrics

    def run(self, first: int, count: int) -> None:
        """Make updates ``first`` … ``first + count − 1``."""
        for number in range(first, first + count):
            batch = self.source.sample(self.batch)
            report = self.learner.update(batch, number % self.learner.cycle_length)
            self.source.update_priorities(batch.slot, report.priority)
            self.metrics.add(report.metrics)
            for periodic in self.learner.periodic_actions:
                if (number + 1) % periodic.period == 0:
                    periodic.action()

    def take(self) -> Updated | None:
        """Mean metrics since the last call; None without an update."""
        return self.metrics.take()


class RolloutUpdater(Composite):
    """The on-policy inner loop: one update on the newest rollout."""

    saved = ("metrics",)

    def __init__(self, *, rollout: Callable[[], Rollout], learner: OnPolicyLearner, metrics: MeanMetrics) -> None:
        """``rollout`` returns the newest rows of a buffer."""
        self.rollout, self.learner, self.metrics = rollout, learner, metrics

    def run(self, first: int, count: int) -> None:  # noqa: ARG002 - the steps of one update have no numbers
        """Make the ``count`` gradient steps of one update.

        Raises:
            ValueError: an update has another number of gradient steps.
        """
        if count != self.learner.steps:
            raise ValueError(f"{count} gradient steps are due; an update makes {self.learner.steps}")
        self.metrics.add(self.learner.update(self.rollout()))

    def take(self) -> Updated | None:
        """Mean metrics since the last call; None without an update."""
        return self.metrics.take(self.learner.steps)
