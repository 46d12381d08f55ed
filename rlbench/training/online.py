"""Online training: a step in every env, then the gradient steps that are due.

Off-policy and on-policy learners differ only in their ``UpdateSchedule``: the number of gradient steps after a vector
step.

The loop is a generator of frozen records. Between two of them nothing is in progress, so the caller may display them,
write a checkpoint or stop. A restored state continues bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from rlbench.algorithms.base import Learner
from rlbench.config.run import Budget
from rlbench.ops.state_dict import State, Stateful, module_state, subtree, tensor
from rlbench.records.types import Collected, Epoch, Evaluated, Progress
from rlbench.training.clock import Clock, UpdateSchedule
from rlbench.training.protocols import Collector, Evaluation, Schedule, Updater


class OnlineTrainer:
    """One run of a learner and its environments; iterate it."""

    def __init__(
        self,
        *,
        collector: Collector,
        updater: Updater,
        buffer: Stateful,
        learner: Learner,
        rng: Stateful,
        evaluate: Callable[[int], Evaluation],
        budget: Budget,
        schedules: Sequence[Schedule],
        update_schedule: UpdateSchedule,
    ) -> None:
        self.collector, self.updater, self.buffer, self.learner = collector, updater, buffer, learner
        self.rng, self.evaluate, self.budget, self.schedules = rng, evaluate, budget, schedules
        self.update_schedule, self.clock = update_schedule, Clock()
        self.inexact: tuple[int, ...] = ()  # agent steps at which a resume was not bit-exact
        self._epoch_start = (0, 0.0)  # env steps and seconds at which the running epoch began
        self._training_rng: State | None = None  # random streams of the training during an evaluation

    def __iter__(self) -> Iterator[Progress | Epoch]:
        """A ``Progress`` after every vector step, evaluation included, and an ``Epoch`` after each; 0 is untrained."""
        clock = self.clock  # a restored state may follow an epoch's last step and precede its evaluation
        while clock.epochs == 0 or clock.env_steps < self.budget.steps or clock.env_steps > self._epoch_start[0]:
            end = min(clock.epochs * self.budget.epoch, self.budget.steps)
            while clock.env_steps < end:
                self._step()
                yield self.progress()
            yield from self._evaluate()

    def state_dict(self) -> State:
        """Everything that the next record depends on."""
        began = torch.tensor(self._epoch_start, dtype=torch.float64)
        rng = self.rng.state_dict() if self._training_rng is None else self._training_rng
        parts = {name: getattr(self, name).state_dict() for name in _PARTS}
        return {**parts, "began": began, "noise": rng, "inexact": torch.tensor(self.inexact, dtype=torch.int64)}

    def load_state_dict(self, state: State) -> None:
        """Restore the state; the buffer precedes the collector, which compares its observations with it."""
        for name in _PARTS:
            getattr(self, name).load_state_dict(subtree(state, name))
        steps, seconds = tensor(state, "began").tolist()
        self.clock.check_epoch_start(steps, seconds)
        self._epoch_start = (int(steps), seconds)
        self.rng.load_state_dict(subtree(state, "noise"))
        before = tensor(state, "inexact").tolist() if "inexact" in state else ()  # older checkpoints have none
        self.inexact = (*before, *(() if self.collector.exact else (self.clock.env_steps,)))

    def _step(self) -> None:
        segment = self.clock.env_steps // self.budget.segment
        if segment != self.collector.segment and (
            self.collector.segment < 0 or self.update_schedule.at_boundary(self.clock)
        ):
            self.collector.open(segment)
        for schedule, setter in self.schedules:
            setter(schedule(self.clock.env_steps))
        self.clock.env_steps += self.collector.step()
        self.clock.rows += 1
        due = self.update_schedule.due(self.clock)
        if due > 0:
            self.updater.run(self.clock.updates, due)
            self.clock.updates += due

    def _evaluate(self) -> Iterator[Progress | Epoch]:
        """Evaluate the policy, restore the random streams of training, and close the epoch."""
        self._training_rng = self.rng.state_dict()
        evaluation = self.evaluate(self.clock.epochs)
        for episodes in evaluation:
            yield self.progress(episodes)
        self.rng.load_state_dict(self._training_rng)
        self._training_rng = None
        yield self._close_epoch(evaluation.result())

    def _close_epoch(self, evaluation: Evaluated) -> Epoch:
        clock, (steps, seconds) = self.clock, self._epoch_start
        returns, lengths = self.collector.episode_stats.take()
        collection = Collected(
            episodes=len(returns),
            steps=clock.env_steps - steps,
            returns=returns,
            lengths=lengths,
            steps_per_second=(clock.env_steps - steps) / max(clock.seconds - seconds - evaluation.seconds, 1e-9),
        )
        epoch = Epoch(
            number=clock.epochs,
            env_steps=clock.env_steps,
            updates=clock.updates,
            seconds=clock.seconds,
            collected=collection,
            updated=self.updater.take(),
            evaluated=evaluation,
        )
        clock.epochs += 1
        self._epoch_start = (clock.env_steps, clock.seconds)
        return epoch

    @property
    def obs_moments(self) -> State | None:
        """Running mean and std of the observations, which the policy needs; None without normalization."""
        return None if self.collector.obs_normalizer is None else self.collector.obs_normalizer.state_dict()

    @property
    def evaluated_policy(self) -> State:
        """The policy of the last epoch that was yielded."""
        return module_state(self.learner.policy_net())

    def outstanding(self) -> Iterator[Progress | Epoch]:
        """Yield nothing: every epoch is evaluated at its end."""
        return iter(())

    def close(self) -> None:
        """Close the environments."""
        self.collector.close()

    def progress(self, episodes: int | None = None) -> Progress:
        """Steps so far, and ended episodes of a running evaluation."""
        last = self.collector.episode_stats.last
        return Progress(
            env_steps=self.clock.env_steps, updates=self.clock.updates, last_return=last, evaluated=episodes
        )


_PARTS = ("clock", "learner", "buffer", "updater", "collector")
