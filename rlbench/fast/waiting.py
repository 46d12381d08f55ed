"""An updater that only notes what is due, for whoever learns for several runs at once.

What fails meanwhile is raised in the run itself, at whatever it does next that depends on it.
"""

from __future__ import annotations

from rlbench.fast.updater import Eager
from rlbench.ops.state import State
from rlbench.ops.types import Transition
from rlbench.record.types import Updated


class Waiting:
    """Updates that somebody else carries out, before the run goes on."""

    def __init__(self, eager: Eager[Transition]) -> None:
        self.eager = eager
        self.first, self.count = 0, 0  # the next update, and how many of them are due
        self.failure: Exception | None = None

    def run(self, first: int, count: int) -> None:
        """Updates ``first`` … ``first + count − 1`` are due.

        Raises:
            RuntimeError: those before are still.
        """
        self._sound()
        if self.count:
            raise RuntimeError(f"{self.count} updates are due since {self.first} and nobody has made them")
        self.first, self.count = first, count

    def made(self, count: int) -> None:
        """So many have been carried out."""
        self.first, self.count = self.first + count, self.count - count

    def failed(self, error: Exception) -> None:
        """They cannot be."""
        self.failure, self.count = error, 0

    def take(self) -> Updated | None:
        """Means since the last call; None if nothing was learned."""
        self._sound()
        return self.eager.take()

    def state_dict(self) -> State:
        """The sums so far."""
        self._sound()
        return self.eager.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        self.eager.load_state_dict(state)

    def _sound(self) -> None:
        if self.failure is not None:
            raise self.failure
