"""The runs of a sweep in processes of this machine, packed by memory, cores and GPUs."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from time import monotonic

from rlbench.errors import RlbenchError
from rlbench.records.machine import available_memory
from rlbench.sweep.events import Exited, News
from rlbench.sweep.plan import Job, Machine, Order, Placed, place
from rlbench.sweep.worker import Worker, environment

LOOK = 0.2
"""Seconds between two looks at the memory that is free."""

Words = Callable[[Order], Sequence[str]]
"""The command line of an order."""


class Local:
    """Processes of this machine."""

    def __init__(self, machine: Machine, processes: int, words: Words) -> None:
        self.machine, self.processes, self.words = machine, processes, words
        self._free, self._looked = machine.memory, monotonic()
        self._children: dict[str, tuple[Placed, Worker]] = {}

    def room(self, job: Job) -> bool:
        """Whether a job fits beside those that run, and beside what others have taken meanwhile."""
        if self._place(job) is None:
            return False
        if monotonic() - self._looked > LOOK:
            self._free, self._looked = available_memory(), monotonic()
        return not self._children or job.memory <= self._free

    def start(self, job: Job, *, force: bool) -> None:
        """Begin a job that there is room for.

        Raises:
            RlbenchError: there is none.
        """
        placed = self._place(job)
        if placed is None:
            raise RlbenchError(f"{job.name}: started without room")
        order = Order(job, None if placed.card is None else f"cuda:{placed.card}", force)
        child = Worker(self.words(order), job.folder, environment(job.threads, os.environ))
        self._children[job.name] = (placed, child)

    def news(self, seconds: float) -> list[tuple[Job, News]]:
        """What the jobs have told since, waiting at most so long for the first word."""
        select.select([child.pipe for _, child in self._children.values()], [], [], seconds)
        found = [(placed.job, told) for placed, child in self._children.values() for told in child.told()]
        for job, told in found:
            if isinstance(told, Exited):
                del self._children[job.name]
        return found

    def ask(self) -> None:
        """Let every job save its state and end."""
        for _, child in self._children.values():
            child.ask()

    def kill(self) -> None:
        """End every job at once."""
        for _, child in self._children.values():
            child.kill()

    def _place(self, job: Job) -> Placed | None:
        return place(job, [placed for placed, _ in self._children.values()], self.machine, self.processes)
