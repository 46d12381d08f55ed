"""Offline training: gradient steps on a data set, with an evaluation after each epoch.

As online, the loop is a generator of frozen records, between which nothing is in progress. Its state excludes the data,
which come from their file again; a state made with other data is refused.

An epoch that a worker evaluates is yielded in order once its evaluation is finished, while training goes on. Its record
is the same to the bit: the metrics are taken, and the policy is copied, when the epoch ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

import torch

from rlbench.algorithms.base import Learner
from rlbench.config.run import Budget
from rlbench.errors import RefusedFile
from rlbench.ops.state_dict import State, Stateful, module_state, subtree, tensor
from rlbench.records.epochs import epoch_of, line_of
from rlbench.records.types import Epoch, Evaluated, Progress
from rlbench.training.clock import Clock
from rlbench.training.protocols import Evaluation, Schedule, Updater

STRIDE: Final = 25
"""Gradient steps between two records: a fraction of a second, so that a signal takes effect at once."""

POLL_SECONDS: Final = 0.2
"""Seconds between two records while training waits for an evaluation."""

MAX_PENDING: Final = 2
"""Maximum number of pending evaluations per worker; training waits beyond it."""


class DatasetIdentity(NamedTuple):
    """Identity and normalization of the data set."""

    sha256: str
    obs_moments: State | None  # mean and std of the observations, which the policy needs


class EvalPool(Stateful, Protocol):
    """Evaluation workers beside the training; their state is the policies with a pending evaluation."""

    @property
    def max_workers(self) -> int:
        """Number of workers; with 0 the training's process evaluates, except what its checkpoint left pending."""

    def submit(self, epoch: int) -> None:
        """Evaluate a copy of the current policy."""

    def poll(self, epoch: int, seconds: float) -> Evaluated | int:
        """Return the evaluation of an epoch, or the number of its ended episodes; wait for at most ``seconds``."""

    def take(self, epoch: int) -> State:
        """Remove a finished evaluation and return its policy."""

    def close(self) -> None:
        """End every worker."""


class OfflineTrainer:
    """One run of a learner on one data set; iterate it."""

    def __init__(
        self,
        *,
        updater: Updater,
        sampler: Stateful,
        learner: Learner,
        rng: Stateful,
        evaluate: Callable[[int], Evaluation],
        eval_pool: EvalPool,
        budget: Budget,
        schedules: Sequence[Schedule],
        data: DatasetIdentity,
    ) -> None:
        self.updater, self.sampler, self.learner, self.rng = updater, sampler, learner, rng
        self.evaluate, self.eval_pool, self.budget, self.schedules = evaluate, eval_pool, budget, schedules
        self.data, self.obs_moments = data
        self.clock = Clock()
        self.inexact: tuple[int, ...] = ()  # gradient steps at which a resume was not bit-exact
        self.pending: list[Epoch] = []  # epochs whose evaluation is pending, in order
        self._epoch_start = 0  # gradient steps at which the running epoch began
        self._training_rng: State | None = None  # random streams of the training during an evaluation
        self._evaluated_policy: State | None = None  # of the last yielded epoch, if training is ahead of it

    def __iter__(self) -> Iterator[Progress | Epoch]:
        """A ``Progress`` per stride and step of an evaluation, an ``Epoch`` per epoch; number 0 is untrained."""
        clock, has_workers = self.clock, self.eval_pool.max_workers > 0
        if not has_workers:
            yield from self.outstanding()
        while self._number == 0 or clock.updates < self.budget.steps or clock.updates > self._epoch_start:
            end = min(self._number * self.budget.epoch, self.budget.steps)
            while clock.updates < end:
                self._train(min(STRIDE, end - clock.updates))
                yield self.progress()
                yield from self._finished_epochs(MAX_PENDING * self.eval_pool.max_workers)
            yield from self._submit() if has_workers else self._evaluate_here()
        yield from self.outstanding()

    def outstanding(self) -> Iterator[Progress | Epoch]:
        """Wait for each pending evaluation, and yield its epoch."""
        return self._finished_epochs(0)

    @property
    def evaluated_policy(self) -> State:
        """The policy of the last epoch that was yielded."""
        return module_state(self.learner.policy_net()) if self._evaluated_policy is None else self._evaluated_policy

    def state_dict(self) -> State:
        """Everything that the next record depends on, except the data."""
        rng = self.rng.state_dict() if self._training_rng is None else self._training_rng
        parts = {name: getattr(self, attribute).state_dict() for name, attribute in _PARTS.items()}
        pending: State = {str(epoch.number): line_of(epoch) for epoch in self.pending}
        rest: State = {"began": torch.tensor(self._epoch_start), "noise": rng, "data": self.data}
        inexact = torch.tensor(self.inexact, dtype=torch.int64)
        return {**parts, **rest, "pending": pending, "inexact": inexact}

    def load_state_dict(self, state: State) -> None:
        """Restore the state.

        Raises:
            RefusedFile: the state was made with other data.
        """
        if state.get("data") != self.data:
            raise RefusedFile(f"checkpoint: made with other data than {self.data[:12]}; bring them back, or --force")
        for name, attribute in _PARTS.items():
            getattr(self, attribute).load_state_dict(subtree(state, name))
        self._epoch_start, self.inexact = int(tensor(state, "began")), tuple(map(int, tensor(state, "inexact")))
        self.clock.check_epoch_start(self._epoch_start)
        self.rng.load_state_dict(subtree(state, "noise"))
        lines = sorted((int(number), str(line)) for number, line in subtree(state, "pending").items())
        self.pending = [epoch_of(line, f"checkpoint: epoch {number}") for number, line in lines]

    def progress(self, episodes: int | None = None) -> Progress:
        """Steps so far, and ended episodes of a running evaluation."""
        return Progress(env_steps=0, updates=self.clock.updates, last_return=None, evaluated=episodes)

    def close(self) -> None:
        """End the evaluation workers."""
        self.eval_pool.close()

    @property
    def _number(self) -> int:
        return self.clock.epochs + len(self.pending)

    def _train(self, count: int) -> None:
        for schedule, setter in self.schedules:
            setter(schedule(self.clock.updates))
        self.updater.run(self.clock.updates, count)
        self.clock.updates += count

    def _evaluate_here(self) -> Iterator[Progress | Epoch]:
        """Evaluate the policy in this process; the random streams of training are restored."""
        self._training_rng = self.rng.state_dict()
        evaluation = self.evaluate(self.clock.epochs)
        for episodes in evaluation:
            yield self.progress(episodes)
        self.rng.load_state_dict(self._training_rng)
        self._training_rng = None
        epoch = replace(self._end_epoch(), evaluated=evaluation.result())
        self.clock.epochs += 1
        self._evaluated_policy = None
        yield epoch

    def _submit(self) -> Iterator[Progress]:
        self.eval_pool.submit(self._number)
        self.pending.append(self._end_epoch())
        yield self.progress()

    def _end_epoch(self) -> Epoch:
        self._epoch_start = self.clock.updates
        return Epoch(
            number=self._number,
            env_steps=0,
            updates=self.clock.updates,
            seconds=self.clock.seconds,
            collected=None,
            updated=self.updater.take(),
            evaluated=None,
        )

    def _finished_epochs(self, max_pending: int) -> Iterator[Progress | Epoch]:
        """Yield epochs with a finished evaluation, in order; wait while more than ``max_pending`` are pending."""
        while self.pending:
            epoch, waits = self.pending[0], len(self.pending) > max_pending
            result = self.eval_pool.poll(epoch.number, POLL_SECONDS if waits else 0.0)
            if isinstance(result, Evaluated):
                self._evaluated_policy = self.eval_pool.take(epoch.number)
                self.clock.epochs += 1
                del self.pending[0]
                yield replace(epoch, evaluated=result)
            elif waits:
                yield self.progress(result)
            else:
                return


_PARTS = {name: name for name in ("clock", "learner", "sampler", "updater")} | {"judges": "eval_pool"}
"""Attributes by their names in a checkpoint."""
