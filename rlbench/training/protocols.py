"""Interfaces of the objects that a trainer drives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias, TypeVar

from torch import Tensor

from rlbench.ops.state_dict import Stateful
from rlbench.records.types import Evaluated, Updated

Schedule: TypeAlias = tuple[Callable[[int], float], Callable[[float], object]]
"""A function of agent steps (offline: gradient steps), and the setter of its value."""


class EpisodeStats(Protocol):
    """Returns and lengths of training episodes."""

    @property
    def last(self) -> float | None:
        """Return of the last finished episode."""

    def take(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Returns and lengths since the last call."""


class Collector(Stateful, Protocol):
    """Steps environments and stores transitions."""

    @property
    def segment(self) -> int:
        """The segment that is open, −1 before the first."""

    @property
    def episode_stats(self) -> EpisodeStats:
        """Returns and lengths of training episodes."""

    @property
    def exact(self) -> bool:
        """True unless a restored state differs from the saved one."""

    @property
    def obs_normalizer(self) -> Stateful | None:
        """Running statistics of the observations, if the environments normalize them."""

    def open(self, segment: int) -> None:
        """Begin a segment in fresh environments."""

    def step(self) -> int:
        """Step every env; return the number of agent steps."""

    def close(self) -> None:
        """Close the environments."""


class Updater(Stateful, Protocol):
    """The inner loop: sample, update, store priorities, and periodic actions."""

    def run(self, first: int, count: int) -> None:
        """Make updates ``first`` … ``first + count − 1``."""

    def take(self) -> Updated | None:
        """Mean metrics since the last call; None without an update."""


class Evaluation(Protocol):
    """A running evaluation."""

    def __iter__(self) -> Iterator[int]:
        """Step it; yield the number of ended episodes."""

    def result(self) -> Evaluated:
        """Returns and lengths of its episodes."""


class Minibatch(Protocol):
    """A minibatch."""

    @property
    def slot(self) -> Tensor:
        """``[B]`` int64 places in the buffer."""


BatchT = TypeVar("BatchT", bound=Minibatch)
BatchT_co = TypeVar("BatchT_co", bound=Minibatch, covariant=True)


class ReplaySource(Protocol[BatchT_co]):
    """A buffer that an off-policy updater samples."""

    def sample(self, batch: int) -> BatchT_co:
        """Return ``batch`` transitions."""

    def update_priorities(self, slot: Tensor, priority: Tensor) -> None:
        """Store the priorities of slots ``[B]``."""
