"""Training on what was recorded beforehand: gradient steps alone, and an evaluation after every so many.

As online, the loop is a generator of frozen records between which everything is at rest. The data are no part of its
state: they come from their file again, and a state made with other data is refused.

An epoch whose policy is judged elsewhere is given when that is done, in its turn, and learning goes on meanwhile. Its
record is the same to the bit: what was learned is taken, and the policy copied, when the epoch ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

import torch

from rlbench.algorithms.base import Learner
from rlbench.config.run import Budget
from rlbench.errors import RefusedFile
from rlbench.ops.state_dict import State, Stateful, branch, of_module, tensor
from rlbench.records.store import epoch_of, line_of
from rlbench.records.types import Epoch, Evaluated, Progress
from rlbench.training.clock import Clock
from rlbench.training.protocols import Evaluation, Schedule, Updater

STRIDE: Final = 25
"""Gradient steps between two records: a fraction of a second, so that a signal is honoured at once."""

SOON: Final = 0.2
"""Seconds between two records while there is nothing to do but wait."""

AHEAD: Final = 2
"""Epochs for each process that judges which may wait for their evaluation; learning that is further ahead waits."""


class Data(NamedTuple):
    """What is learned from, as far as it matters here."""

    sha256: str
    scale: State | None  # what the policy must know of observations beside its weights


class EvalPool(Stateful, Protocol):
    """Evaluation workers beside the training; their state is the policies with a pending evaluation."""

    @property
    def most(self) -> int:
        """Number of workers; 0: the training evaluates itself, but for evaluations pending in its checkpoint."""

    def submit(self, epoch: int) -> None:
        """Evaluate a copy of the current policy."""

    def poll(self, epoch: int, seconds: float) -> Evaluated | int:
        """Return the evaluation of an epoch, or the number of its ended games after at most ``seconds`` of waiting."""

    def take(self, epoch: int) -> State:
        """Remove a finished evaluation and return its policy."""

    def close(self) -> None:
        """End every worker."""


class Offline:
    """One run of a learner on one data set; iterate it."""

    def __init__(
        self,
        *,
        updater: Updater,
        sampler: Stateful,
        learner: Learner,
        noise: Stateful,
        evaluate: Callable[[int], Evaluation],
        judges: EvalPool,
        budget: Budget,
        schedules: Sequence[Schedule],
        data: Data,
    ) -> None:
        self.updater, self.sampler, self.learner, self.noise = updater, sampler, learner, noise
        self.evaluate, self.judges, self.budget, self.schedules = evaluate, judges, budget, schedules
        self.data, self.scale = data
        self.clock = Clock()
        self.inexact: tuple[int, ...] = ()  # gradient steps at which a loaded state was not gone on with bit for bit
        self.pending: list[Epoch] = []  # complete but for their evaluation, in order
        self._began = 0  # gradient steps at which the running epoch began
        self._aside: State | None = None  # the noise of the training, set aside during an evaluation
        self._judged: State | None = None  # the policy of the epoch that was given last, where it is an earlier one

    def __iter__(self) -> Iterator[Progress | Epoch]:
        """A ``Progress`` after every stride, an ``Epoch`` after every epoch; number 0 is the untrained policy."""
        clock, beside = self.clock, self.judges.most > 0
        if not beside:
            yield from self.outstanding()
        while self._number == 0 or clock.updates < self.budget.steps or clock.updates > self._began:
            end = min(self._number * self.budget.epoch, self.budget.steps)
            while clock.updates < end:
                self._stride(min(STRIDE, end - clock.updates))
                yield self.progress()
                yield from self._arrived(AHEAD * self.judges.most)
            yield from self._handed_over() if beside else self._evaluated()
        yield from self.outstanding()

    def outstanding(self) -> Iterator[Progress | Epoch]:
        """Every epoch that is judged elsewhere, each when that is done."""
        return self._arrived(0)

    @property
    def judged(self) -> State:
        """The policy of the epoch that was given last."""
        return of_module(self.learner.policy()) if self._judged is None else self._judged

    def state_dict(self) -> State:
        """Everything the next record depends on, but the data."""
        noise = self.noise.state_dict() if self._aside is None else self._aside
        parts = {name: getattr(self, name).state_dict() for name in _PARTS}
        pending: State = {str(epoch.number): line_of(epoch) for epoch in self.pending}
        fixed: State = {"began": torch.tensor(self._began), "noise": noise, "data": self.data}
        inexact = torch.tensor(self.inexact, dtype=torch.int64)
        return {**parts, **fixed, "pending": pending, "inexact": inexact}

    def load_state_dict(self, state: State) -> None:
        """Take it over.

        Raises:
            RefusedFile: it was made with other data.
        """
        if state.get("data") != self.data:
            raise RefusedFile(f"checkpoint: made with other data than {self.data[:12]}; bring them back, or --force")
        for name in _PARTS:
            getattr(self, name).load_state_dict(branch(state, name))
        self._began, self.inexact = int(tensor(state, "began")), tuple(map(int, tensor(state, "inexact")))
        self.noise.load_state_dict(branch(state, "noise"))
        lines = sorted((int(number), str(line)) for number, line in branch(state, "pending").items())
        self.pending = [epoch_of(line, f"checkpoint: epoch {number}") for number, line in lines]

    def progress(self, judged: int | None = None) -> Progress:
        """Where the run stands."""
        return Progress(env_steps=0, updates=self.clock.updates, last_return=None, evaluated=judged)

    def close(self) -> None:
        """Let who judges go."""
        self.judges.close()

    @property
    def _number(self) -> int:
        """Of the running epoch."""
        return self.clock.epochs + len(self.pending)

    def _stride(self, count: int) -> None:
        for schedule, setter in self.schedules:
            setter(schedule(self.clock.updates))
        self.updater.run(self.clock.updates, count)
        self.clock.updates += count

    def _evaluated(self) -> Iterator[Progress | Epoch]:
        """Judge the policy here and now, without moving any stream of the training."""
        self._aside = self.noise.state_dict()
        evaluation = self.evaluate(self.clock.epochs)
        for judged in evaluation:
            yield self.progress(judged)
        self.noise.load_state_dict(self._aside)
        self._aside = None
        epoch = replace(self._ended(), evaluated=evaluation.result())
        self.clock.epochs += 1
        self._judged = None
        yield epoch

    def _handed_over(self) -> Iterator[Progress]:
        """Have the policy judged as it is now, and go on."""
        self.judges.submit(self._number)
        self.pending.append(self._ended())
        yield self.progress()

    def _ended(self) -> Epoch:
        """The epoch that is complete, not judged yet."""
        self._began = self.clock.updates
        return Epoch(
            number=self._number,
            env_steps=0,
            updates=self.clock.updates,
            seconds=self.clock.seconds,
            collected=None,
            updated=self.updater.take(),
            evaluated=None,
        )

    def _arrived(self, most: int) -> Iterator[Progress | Epoch]:
        """Every epoch whose evaluation is there, in order; waits while more than ``most`` are not."""
        while self.pending:
            epoch, waits = self.pending[0], len(self.pending) > most
            found = self.judges.poll(epoch.number, SOON if waits else 0.0)
            if isinstance(found, Evaluated):
                self._judged = self.judges.take(epoch.number)
                self.clock.epochs += 1
                del self.pending[0]
                yield replace(epoch, evaluated=found)
            elif waits:
                yield self.progress(found)
            else:
                return


_PARTS = ("clock", "judges", "learner", "sampler", "updater")
