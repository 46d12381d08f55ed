"""Sample, update, reprioritize, K times: the inner loop of every off-policy learner, and nothing else in it."""

from __future__ import annotations

from typing import Generic

from rlbench.ops.state_dict import State, branch
from rlbench.records.types import Updated
from rlbench.training.metrics import MeanMetrics
from rlbench.training.update_protocols import DrawnT, Learner, Source


class EagerUpdater(Generic[DrawnT]):
    """One operation after another."""

    def __init__(
        self,
        *,
        source: Source[DrawnT],
        learner: Learner[DrawnT],
        batch: int,
        metrics: MeanMetrics,
    ) -> None:
        self.source, self.learner, self.batch = source, learner, batch
        self.metrics = metrics

    def run(self, first: int, count: int) -> None:
        """Updates ``first`` … ``first + count − 1``."""
        for number in range(first, first + count):
            batch = self.source.sample(self.batch)
            report = self.learner.update(batch, number % self.learner.cycle)
            self.source.reprioritize(batch.slot, report.priority)
            self.metrics.add(report.metrics)
            for periodic in self.learner.every:
                if (number + 1) % periodic.period == 0:
                    periodic.action()

    def take(self) -> Updated | None:
        """Means since the last call; None if nothing was learned."""
        return self.metrics.take()

    def state_dict(self) -> State:
        """The sums so far."""
        return {"metrics": self.metrics.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        self.metrics.load_state_dict(branch(state, "metrics"))
