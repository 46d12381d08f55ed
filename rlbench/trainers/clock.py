"""Time, in the only units there are: live agent steps, gradient steps, epochs, and seconds of the wall."""

from __future__ import annotations

from time import monotonic

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
