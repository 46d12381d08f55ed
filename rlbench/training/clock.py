"""Time in agent steps, gradient steps, epochs and seconds; and the state of torch's global generators."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple, TypeAlias

import torch

from rlbench.ops.state_dict import State, integer, number, tensor


class Clock:
    """Counters of a run, which the trainer advances."""

    def __init__(self) -> None:
        self.env_steps = 0  # agent steps
        self.rows = 0  # vector steps: one row of the buffer each
        self.updates = 0  # gradient steps
        self.epochs = 0  # epochs that are complete, the untrained one included
        self._seconds, self._since = 0.0, monotonic()

    @property
    def steps(self) -> int:
        """Steps that the budget counts: agent steps, or gradient steps of offline training."""
        return self.env_steps or self.updates

    @property
    def seconds(self) -> float:
        """Wall-clock seconds over all attempts."""
        return self._seconds + monotonic() - self._since

    def state_dict(self) -> State:
        """The counters and seconds."""
        counts: State = {name: getattr(self, name) for name in _COUNTS}
        return {**counts, "seconds": self.seconds}

    def load_state_dict(self, state: State) -> None:
        """Restore the counters and seconds."""
        self.env_steps, self.rows, self.updates, self.epochs = (integer(state, key) for key in _COUNTS)
        self._seconds, self._since = number(state, "seconds", 0, 1e15), monotonic()

    def check_epoch_start(self, steps: float, seconds: float = 0.0) -> None:
        """Refuse a saved beginning of the running epoch that lies after the current step or second.

        Raises:
            TypeError: it does, or lies before 0.
        """
        if not (0 <= steps <= self.steps and 0 <= seconds <= self.seconds):
            raise TypeError(f"the running epoch began at step {steps:,}, after {seconds:g} s: after the current step")


_COUNTS = ("env_steps", "rows", "updates", "epochs")


class ReplayRatio(NamedTuple):
    """Off-policy: a fixed number of gradient steps per agent step."""

    learning_starts: int  # agent steps before the first update
    updates_per_step: float

    def due(self, clock: Clock) -> int:
        """Number of updates that are due."""
        return max(0, int((clock.env_steps - self.learning_starts) * self.updates_per_step) - clock.updates)

    def at_boundary(self, clock: Clock) -> bool:  # noqa: ARG002 - a transition depends on no rollout
        """Always."""
        return True


class RolloutSchedule(NamedTuple):
    """On-policy: all gradient steps of an update at once, after each rollout."""

    rollout_length: int  # vector steps between two updates
    updates: int  # gradient steps of one of them

    def due(self, clock: Clock) -> int:
        """The gradient steps of one update if a rollout is complete, otherwise none."""
        return clock.rows // self.rollout_length * self.updates - clock.updates

    def at_boundary(self, clock: Clock) -> bool:
        """True between two rollouts, where replaced environments truncate none."""
        return clock.rows % self.rollout_length == 0


UpdateSchedule: TypeAlias = ReplayRatio | RolloutSchedule
"""When gradient steps are due."""


class RngState:
    """The host's generator and, where a run computes on a GPU, that GPU's."""

    def __init__(self, gpu: torch.device | None) -> None:
        self.gpu = gpu

    def state_dict(self) -> State:
        """Both states; on the host."""
        host: State = {"host": torch.get_rng_state()}
        return host if self.gpu is None else {**host, "card": torch.cuda.get_rng_state(self.gpu)}

    def load_state_dict(self, state: State) -> None:
        """Draw on from there; a state saved without a GPU leaves the GPU's alone."""
        torch.set_rng_state(tensor(state, "host"))
        if self.gpu is not None and "card" in state:
            torch.cuda.set_rng_state(tensor(state, "card"), self.gpu)
