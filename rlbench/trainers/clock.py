"""Time, in the only units there are: live agent steps, gradient steps, epochs, and seconds of the wall."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from rlbench.ops.state import State, number, whole


class Clock:
    """How far a run has come; the trainer moves it."""

    def __init__(self) -> None:
        self.env_steps = 0  # live agent steps
        self.updates = 0  # gradient steps
        self.epochs = 0  # epochs that are complete, the untrained one included
        self._seconds, self._since = 0.0, monotonic()

    @property
    def seconds(self) -> float:
        """Of the wall, over all attempts."""
        return self._seconds + monotonic() - self._since

    def state_dict(self) -> State:
        """All of it."""
        return {"env_steps": self.env_steps, "updates": self.updates, "epochs": self.epochs, "seconds": self.seconds}

    def load_state_dict(self, state: State) -> None:
        """Go on from there."""
        self.env_steps, self.updates, self.epochs = (whole(state, key) for key in ("env_steps", "updates", "epochs"))
        self._seconds, self._since = number(state, "seconds"), monotonic()


class Pace(NamedTuple):
    """How many gradient steps follow how many live agent steps."""

    warmup: int  # live agent steps before the first update
    updates_per_step: float

    def due(self, clock: Clock) -> int:
        """Updates that are owed now."""
        return max(0, int((clock.env_steps - self.warmup) * self.updates_per_step) - clock.updates)
