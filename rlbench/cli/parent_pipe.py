"""Pipe from a worker process to the sweep that started it.

A worker never outlives its parent: when the parent is gone, it saves its state and ends, as after SIGTERM.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from rlbench.cli.progress_display import Lines
from rlbench.records.types import Progress
from rlbench.sweep.events import to_line

if TYPE_CHECKING:
    from rlbench.sweep.events import Message
    from rlbench.sweep.plan import Job

INTERVAL = 0.5  # seconds between two Progress messages
PATIENCE = 25.0  # seconds until an orphan that does not end is killed


def end_with_parent(pipe: int) -> None:
    """End this process when the parent's end of ``pipe`` is closed."""
    os.set_blocking(pipe, False)
    Thread(target=_watch, args=(pipe,), daemon=True).start()


def _watch(pipe: int) -> None:
    poll = select.poll()
    poll.register(pipe, 0)  # errors are always reported
    while not poll.poll():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGKILL)


class PipeDisplay(Lines):
    """Sends messages to the parent; its lines go to stderr, which is the run's log."""

    def __init__(self, pipe: int, jobs: Sequence[Job]) -> None:
        super().__init__(jobs)
        self.pipe, self.last_progress = pipe, 0.0

    def show(self, job: Job, message: Message) -> None:
        """Send a message; one that finds no room in the pipe is lost, and the next says more."""
        super().show(job, message)
        if isinstance(message, Progress):
            if monotonic() - self.last_progress < INTERVAL:
                return
            self.last_progress = monotonic()
        with suppress(OSError):
            os.write(self.pipe, (to_line(message) + "\n").encode())
