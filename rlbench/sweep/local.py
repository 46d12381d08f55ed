"""Executor that packs jobs into processes of this machine, by memory, cores and GPUs."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from time import monotonic

from rlbench.errors import RlbenchError
from rlbench.records.machine import available_memory
from rlbench.sweep.events import Event, Exited
from rlbench.sweep.plan import Job, Machine, Order, Placed, place
from rlbench.sweep.worker import Worker, environment

LOOK = 0.2
"""Seconds between two looks at the free memory."""

Words = Callable[[Order], Sequence[str]]
"""Returns the command line of an order."""


class Local:
    """Executor over worker processes of this machine."""

    in_process = False

    def __init__(self, machine: Machine, processes: int, words: Words) -> None:
        self.machine, self.processes, self.words = machine, processes, words
        self._free, self._checked_at = machine.memory, monotonic()
        self._workers: dict[str, tuple[Placed, Worker]] = {}

    def room(self, job: Job) -> bool:
        """Return whether a job fits beside the running jobs and the other programs of the machine."""
        if self._place(job) is None:
            return False
        if monotonic() - self._checked_at > LOOK:
            self._free, self._checked_at = available_memory(), monotonic()
        return not self._workers or job.memory <= self._free

    def start(self, job: Job, *, force: bool) -> None:
        """Start a job that there is room for.

        Raises:
            RlbenchError: there is no room.
        """
        placement = self._place(job)
        if placement is None:
            raise RlbenchError(f"{job.name}: started without room")
        order = Order(job, None if placement.gpu is None else f"cuda:{placement.gpu}", force)
        worker = Worker(self.words(order), job.folder, environment(job.threads, os.environ))
        self._workers[job.name] = (placement, worker)

    def events(self, seconds: float) -> list[tuple[Job, Event]]:
        """Return new events of the jobs; wait at most ``seconds`` for the first."""
        select.select([worker.pipe for _, worker in self._workers.values()], [], [], seconds)
        events = [(placement.job, event) for placement, worker in self._workers.values() for event in worker.events()]
        for job, event in events:
            if isinstance(event, Exited):
                del self._workers[job.name]
        return events

    def ask(self) -> None:
        """Ask every job to save its state and end."""
        for _, worker in self._workers.values():
            worker.ask()

    def kill(self) -> None:
        """End every job at once."""
        for _, worker in self._workers.values():
            worker.kill()

    def _place(self, job: Job) -> Placed | None:
        return place(job, [placement for placement, _ in self._workers.values()], self.machine, self.processes)
