"""Training on what was recorded beforehand: gradient steps alone, and an evaluation after every so many.

As online, the loop is a generator of frozen records between which everything is at rest. The data are no part of its
state: they come from their file again, and a state made with other data is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import torch

from rlbench.errors import RefusedFile
from rlbench.ops.state import State, Stateful, branch, tensor
from rlbench.record.types import Epoch, Evaluated, Progress
from rlbench.spec.run import Budget
from rlbench.trainers.base import Evaluation, Learner, Schedule, Updater
from rlbench.trainers.clock import Clock

STRIDE: Final = 25
"""Gradient steps between two records: a fraction of a second, so that a signal is honoured at once."""


class Offline:
    """One run of a learner on one data set; iterate it."""

    inexact: tuple[int, ...] = ()  # nothing here cannot be gone on with bit for bit

    def __init__(
        self,
        *,
        updater: Updater,
        sampler: Stateful,
        learner: Learner,
        noise: Stateful,
        evaluate: Callable[[int], Evaluation],
        budget: Budget,
        schedules: Sequence[Schedule],
        data: str,
        scale: State | None,
    ) -> None:
        self.updater, self.sampler, self.learner, self.noise = updater, sampler, learner, noise
        self.evaluate, self.budget, self.schedules = evaluate, budget, schedules
        self.data = data  # SHA-256 of what is learned from
        self.scale = scale  # what the policy must know of observations beside its weights
        self.clock = Clock()
        self._began = 0  # gradient steps at which the running epoch began
        self._aside: State | None = None  # the noise of the training, set aside during an evaluation

    def __iter__(self) -> Iterator[Progress | Epoch]:
        """A ``Progress`` after every stride, an ``Epoch`` after every epoch; number 0 is the untrained policy."""
        clock = self.clock
        while clock.epochs == 0 or clock.updates < self.budget.steps or clock.updates > self._began:
            end = min(clock.epochs * self.budget.epoch, self.budget.steps)
            while clock.updates < end:
                self._stride(min(STRIDE, end - clock.updates))
                yield self.progress()
            self._aside = self.noise.state_dict()
            evaluation = self.evaluate(clock.epochs)
            for judged in evaluation:
                yield self.progress(judged)
            self.noise.load_state_dict(self._aside)
            self._aside = None
            yield self._closed(evaluation.result())

    def state_dict(self) -> State:
        """Everything the next record depends on, but the data."""
        noise = self.noise.state_dict() if self._aside is None else self._aside
        parts = {name: getattr(self, name).state_dict() for name in _PARTS}
        return {**parts, "began": torch.tensor(self._began), "noise": noise, "data": self.data}

    def load_state_dict(self, state: State) -> None:
        """Take it over.

        Raises:
            RefusedFile: it was made with other data.
        """
        if state.get("data") != self.data:
            raise RefusedFile(f"checkpoint: made with other data than {self.data[:12]}; bring them back, or --force")
        for name in _PARTS:
            getattr(self, name).load_state_dict(branch(state, name))
        self._began = int(tensor(state, "began"))
        self.noise.load_state_dict(branch(state, "noise"))

    def progress(self, judged: int | None = None) -> Progress:
        """Where the run stands."""
        return Progress(env_steps=0, updates=self.clock.updates, last_return=None, judged=judged)

    def close(self) -> None:
        """Nothing is held."""

    def _stride(self, count: int) -> None:
        for schedule, setter in self.schedules:
            setter(schedule(self.clock.updates))
        self.updater.run(self.clock.updates, count)
        self.clock.updates += count

    def _closed(self, evaluated: Evaluated) -> Epoch:
        clock = self.clock
        epoch = Epoch(
            number=clock.epochs,
            env_steps=0,
            updates=clock.updates,
            seconds=clock.seconds,
            collected=None,
            updated=self.updater.take(),
            evaluated=evaluated,
        )
        clock.epochs += 1
        self._began = clock.updates
        return epoch


_PARTS = ("clock", "learner", "sampler", "updater")
