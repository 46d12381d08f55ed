"""Several seeds of one cell learning together: in which order their updates are made.

Every run goes on by itself until updates are due in it; then it waits until the others have come as far. Who is behind,
as after a crash, catches up alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlbench.errors import UsageError
from rlbench.fast.noise import Stream
from rlbench.fast.stacked import Owner, Stack
from rlbench.fast.updater import Eager
from rlbench.fast.waiting import Waiting
from rlbench.learners.sac import SAC
from rlbench.learners.td3 import TD3
from rlbench.trainers.offline import Offline
from rlbench.trainers.online import Online


class Member:
    """One of the runs: what is due in it, and its own stream of chance."""

    def __init__(self, device: torch.device) -> None:
        self.stream = Stream(device if device.type == "cuda" else None)
        self.waiting: Waiting | None = None  # until its trainer is built

    @property
    def due(self) -> Waiting:
        """What its trainer waits for.

        Raises:
            RuntimeError: it has none yet.
        """
        if self.waiting is None:
            raise RuntimeError("no trainer has joined")
        return self.waiting

    def join(self, trainer: Online | Offline) -> None:
        """Let the updates of a trainer be carried out with those of the others.

        Raises:
            UsageError: its updates are of another kind.
        """
        eager = trainer.updater
        if not isinstance(eager, Eager) or not isinstance(trainer.learner, SAC | TD3):
            raise UsageError(
                f"{type(trainer.learner).__name__}: only DDPG, TD3, SAC and REDQ are stacked; omit --stack"
            )
        self.waiting = trainer.updater = Waiting(eager)


class Company:
    """Runs that learn together as long as they stand at the same update."""

    def __init__(self) -> None:
        self._stacked: tuple[Member, ...] = ()
        self._stack: Stack | None = None

    def learn(self, members: Sequence[Member]) -> None:
        """Make updates until one of the runs, which all wait for some, has none that are due.

        Whoever is behind makes its own until it is where the others are, and then may have to go on for more.
        """
        waiting = [member.due for member in members]
        number = max(run.first for run in waiting)
        behind = [member for member, run in zip(members, waiting, strict=True) if run.first < number]
        for member in behind:
            self._alone(member, number)
        if behind:
            return
        count = min(run.count for run in waiting)
        if number < waiting[0].eager.learner.cycle or len(members) == 1:  # before, optimizers have not begun
            for member in members:
                self._alone(member, number + count)
            return
        self._together(tuple(members), number, count)

    def part(self) -> None:
        """Let everybody go on alone."""
        if self._stack is not None:
            self._stack.part()
        self._stacked, self._stack = (), None

    def _alone(self, member: Member, end: int) -> None:
        if member in self._stacked:
            self.part()
        run = member.due
        count = min(run.count, end - run.first)
        try:
            with member.stream:
                run.eager.run(run.first, count)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this run, which tells of it
            run.failed(error)
        else:
            run.made(count)

    def _together(self, members: tuple[Member, ...], first: int, count: int) -> None:
        try:
            if self._stack is None or members != self._stacked:
                self.part()
                self._stack, self._stacked = stack(members), members
            self._stack.run(first, count)
        except Exception as error:  # noqa: BLE001 - likewise, of all of them: nobody knows how far each has come
            for member in members:
                member.due.failed(error)
        else:
            for member in members:
                member.due.made(count)


def stack(members: Sequence[Member]) -> Stack:
    """The learners of runs that wait, which have made as many updates."""
    eager = [member.due.eager for member in members]
    parts = [_parts(run.learner) for run in eager]
    return Stack(eager, parts, ("critic_loss", "policy_loss"), [member.stream.own for member in members])


def _parts(learner: object) -> tuple[Owner, ...]:
    """What of a learner keeps tensors itself."""
    return (learner.temperature,) if isinstance(learner, SAC) else ()
