"""The inner loops: sample, update, reprioritize, K times, off-policy; one update on a whole rollout, on-policy."""

from __future__ import annotations

from typing import Generic

from rlbench.algorithms.base import OffPolicyLearner, OnPolicyLearner
from rlbench.ops.state_dict import Composite
from rlbench.records.types import Updated
from rlbench.training.metrics import MeanMetrics
from rlbench.training.protocols import BatchT, Rollouts, Source


class EagerUpdater(Composite, Generic[BatchT]):
    """The off-policy inner loop, run eagerly."""

    saved = ("metrics",)

    def __init__(
        self, *, source: Source[BatchT], learner: OffPolicyLearner[BatchT], batch: int, metrics: MeanMetrics
    ) -> None:
        self.source, self.learner, self.batch, self.metrics = source, learner, batch, metrics

    def run(self, first: int, count: int) -> None:
        """Make updates ``first`` … ``first + count − 1``."""
        for number in range(first, first + count):
            batch = self.source.sample(self.batch)
            report = self.learner.update(batch, number % self.learner.cycle)
            self.source.reprioritize(batch.slot, report.priority)
            self.metrics.add(report.metrics)
            for periodic in self.learner.every:
                if (number + 1) % periodic.period == 0:
                    periodic.action()

    def take(self) -> Updated | None:
        """Mean metrics since the last call; None without an update."""
        return self.metrics.take()


class RolloutUpdater(Composite):
    """The on-policy inner loop: one update on the newest rollout."""

    saved = ("metrics",)

    def __init__(self, *, source: Rollouts, learner: OnPolicyLearner, rows: int, metrics: MeanMetrics) -> None:
        self.source, self.learner, self.rows, self.metrics = source, learner, rows, metrics

    def run(self, first: int, count: int) -> None:  # noqa: ARG002 - the steps of one update have no numbers
        """Make the ``count`` gradient steps of one update.

        Raises:
            ValueError: an update has another number of gradient steps.
        """
        if count != self.learner.steps:
            raise ValueError(f"{count} gradient steps are due; a rollout is learned from in {self.learner.steps}")
        self.metrics.add(self.learner.update(self.source.rollout(self.rows)))

    def take(self) -> Updated | None:
        """Mean metrics since the last call; None without an update."""
        return self.metrics.take(self.learner.steps)
