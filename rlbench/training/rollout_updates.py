"""All that is learned from a rollout, at once: the inner loop of every on-policy learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rlbench.ops.state_dict import State, branch
from rlbench.ops.types import Rollout
from rlbench.records.types import Updated
from rlbench.training.metrics import Metrics


class Rollouts(Protocol):
    """What an on-policy updater needs of a buffer."""

    def rollout(self, rows: int) -> Rollout:
        """The newest rows."""


class OnPolicy(Protocol):
    """What it needs of a learner."""

    @property
    def steps(self) -> int:
        """Gradient steps that one update counts as."""

    def update(self, rollout: Rollout) -> object:
        """Everything that is learned from a rollout; a record of 0-d tensors."""


class RolloutUpdater:
    """All that is learned from the newest rows, once they are complete."""

    def __init__(
        self,
        *,
        source: Rollouts,
        learner: OnPolicy,
        rows: int,
        metrics: Metrics,
        summary: Callable[[int, tuple[float, ...]], Updated],
    ) -> None:
        self.source, self.learner, self.rows, self.metrics, self.summary = source, learner, rows, metrics, summary

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
        count, means = self.metrics.take()
        return self.summary(count * self.learner.steps, means) if count else None

    def state_dict(self) -> State:
        """The sums so far."""
        return {"metrics": self.metrics.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        self.metrics.load_state_dict(branch(state, "metrics"))
