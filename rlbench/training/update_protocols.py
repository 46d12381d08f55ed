"""What the inner loop needs of a buffer and of a learner, and nothing of how they work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from torch import Tensor

from rlbench.ops.types import Metrics


class Report(Protocol):
    """Metrics and priorities of an update."""

    @property
    def metrics(self) -> Metrics:
        """Figures of the gradient step."""

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
