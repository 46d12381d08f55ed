"""Sample, update, reprioritize, K times: the inner loop of every off-policy learner, and nothing else in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from rlbench.fast.metrics import Metrics
from rlbench.ops.state import State, branch
from rlbench.ops.types import Rollout
from rlbench.record.types import Updated


class Report(Protocol):
    """What an update says: 0-d tensors for the metrics, and this."""

    @property
    def priority(self) -> Tensor:
        """``[B]``."""


class Drawn(Protocol):
    """A minibatch."""

    @property
    def slot(self) -> Tensor:
        """``[B]`` int64 places in the buffer."""


DrawnT = TypeVar("DrawnT", bound=Drawn)
DrawnT_co = TypeVar("DrawnT_co", bound=Drawn, covariant=True)
DrawnT_contra = TypeVar("DrawnT_contra", bound=Drawn, contravariant=True)


class Source(Protocol[DrawnT_co]):
    """What an updater needs of a buffer."""

    def sample(self, batch: int) -> DrawnT_co:
        """``batch`` transitions."""

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """What was learned of slots ``[B]``."""


class Periodic(Protocol):
    """Something due after every so many updates."""

    @property
    def period(self) -> int:
        """In updates."""

    @property
    def action(self) -> Callable[[], None]:
        """What to do."""


class Learner(Protocol[DrawnT_contra]):
    """What an updater needs of a learner."""

    @property
    def every(self) -> tuple[Periodic, ...]:
        """What is due after every so many updates."""

    @property
    def cycle(self) -> int:
        """Updates after which the pattern of updates repeats."""

    def update(self, batch: DrawnT_contra, phase: int) -> Report:
        """One gradient step, the ``phase``-th of its cycle."""


class Eager(Generic[DrawnT]):
    """One operation after another."""

    def __init__(
        self,
        *,
        source: Source[DrawnT],
        learner: Learner[DrawnT],
        batch: int,
        metrics: Metrics,
        summary: Callable[[int, tuple[float, ...]], Updated],
    ) -> None:
        self.source, self.learner, self.batch = source, learner, batch
        self.metrics, self.summary = metrics, summary

    def run(self, first: int, count: int) -> None:
        """Updates ``first`` … ``first + count − 1``."""
        for number in range(first, first + count):
            batch = self.source.sample(self.batch)
            report = self.learner.update(batch, number % self.learner.cycle)
            self.source.reprioritize(batch.slot, report.priority)
            self.metrics.add(report)
            for periodic in self.learner.every:
                if (number + 1) % periodic.period == 0:
                    periodic.action()

    def take(self) -> Updated | None:
        """Means since the last call; None if nothing was learned."""
        count, means = self.metrics.take()
        return self.summary(count, means) if count else None

    def state_dict(self) -> State:
        """The sums so far."""
        return {"metrics": self.metrics.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        self.metrics.load_state_dict(branch(state, "metrics"))


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


class PerRollout:
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
