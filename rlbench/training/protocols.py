"""What a trainer drives, and nothing of how any of it works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias, TypeVar

from torch import Tensor

from rlbench.ops.state_dict import Stateful
from rlbench.ops.types import Rollout
from rlbench.records.types import Evaluated, Updated

Schedule: TypeAlias = tuple[Callable[[int], float], Callable[[float], None]]
"""From live agent steps to a value, and who wants to know it."""


class EpisodeStats(Protocol):
    """Training games."""

    @property
    def last(self) -> float | None:
        """Return of the one that ended last."""

    def take(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Returns and lengths since the last call."""


class Collector(Stateful, Protocol):
    """Where experience comes from."""

    @property
    def segment(self) -> int:
        """The segment that is open, −1 before the first."""

    @property
    def games(self) -> EpisodeStats:
        """Training games."""

    @property
    def exact(self) -> bool:
        """Whether it stands where the state that was loaded last was saved, to the bit."""

    @property
    def scale(self) -> Stateful | None:
        """Of observations, where the environments show them in one."""

    def open(self, segment: int) -> None:
        """Begin a segment in fresh environments."""

    def step(self) -> int:
        """One step in every lane; gives the number of live ones."""

    def close(self) -> None:
        """Let the environments go."""


class Updater(Stateful, Protocol):
    """Where learning happens: sample, update, reprioritize, and what is due every so often."""

    def run(self, first: int, count: int) -> None:
        """Updates ``first`` … ``first + count − 1``."""

    def take(self) -> Updated | None:
        """Means since the last call; None if nothing was learned."""


class Evaluation(Protocol):
    """An evaluation under way."""

    def __iter__(self) -> Iterator[int]:
        """Steps it."""

    def result(self) -> Evaluated:
        """What came of it."""


class Minibatch(Protocol):
    """A minibatch."""

    @property
    def slot(self) -> Tensor:
        """``[B]`` int64 places in the buffer."""


BatchT = TypeVar("BatchT", bound=Minibatch)
BatchT_co = TypeVar("BatchT_co", bound=Minibatch, covariant=True)


class Source(Protocol[BatchT_co]):
    """A buffer that an off-policy updater samples."""

    def sample(self, batch: int) -> BatchT_co:
        """Return ``batch`` transitions."""

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Store the priorities of slots ``[B]``."""


class Rollouts(Protocol):
    """A buffer whose newest rows an on-policy updater learns from."""

    def rollout(self, rows: int) -> Rollout:
        """Return the newest rows."""
