"""All that is learned from a rollout, at once: the inner loop of every on-policy learner."""

from __future__ import annotations

from typing import Protocol

from rlbench.ops.state_dict import State, branch
from rlbench.ops.types import Metrics, Rollout
from rlbench.records.types import Updated
from rlbench.training.metrics import MeanMetrics


class Rollouts(Protocol):
    """What an on-policy updater needs of a buffer."""

    def rollout(self, rows: int) -> Rollout:
        """The newest rows."""


class OnPolicy(Protocol):
    """What it needs of a learner."""

    @property
    def steps(self) -> int:
        """Gradient steps that one update counts as."""

    def update(self, rollout: Rollout) -> Metrics:
        """Everything that is learned from a rollout."""


class RolloutUpdater:
    """All that is learned from the newest rows, once they are complete."""

    def __init__(
        self,
        *,
        source: Rollouts,
        learner: OnPolicy,
        rows: int,
        metrics: MeanMetrics,
    ) -> None:
        self.source, self.learner, self.rows, self.metrics = source, learner, rows, metrics

    def run(self, first: int, count: int) -> None:  # noqa: ARG002 - the steps of one update have no numbers
        """The ``count`` gradient steps of one update.

        Raises:
            ValueError: there are not as many in one.
        """
        if count != self.learner.steps:
            raise ValueError(f"{count} gradient steps are due; a rollout is learned from in {self.learner.steps}")
        self.metrics.add(self.learner.update(self.source.rollout(self.rows)))

    def take(self) -> Updated | None:
        """Means since the last call; None if nothing was learned."""
        return self.metrics.take(self.learner.steps)

    def state_dict(self) -> State:
        """The sums so far."""
        return {"metrics": self.metrics.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        self.metrics.load_state_dict(branch(state, "metrics"))
