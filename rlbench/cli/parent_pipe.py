"""What a run that a sweep started shows: its records, a line each, into the pipe that it was given.

Such a run never outlives its parent: it ends as if by Ctrl-C, its state saved, when the parent is gone.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from rlbench.cli.progress_display import Silent, epoch_line

if TYPE_CHECKING:
    from rlbench.config.run import Spec
    from rlbench.records.types import Epoch, Progress
    from rlbench.sweep.events import Told

OFTEN = 0.5  # seconds between two words on where a run stands
LAST = 25.0  # seconds after which an orphan that cannot come to an end is ended


def leashed(pipe: int) -> None:
    """Have this process end when nobody holds the other end of its pipe, which is when its parent is gone."""
    os.set_blocking(pipe, False)
    Thread(target=_follow, args=(pipe,), daemon=True).start()


def _follow(pipe: int) -> None:
    watch = select.poll()
    watch.register(pipe, 0)  # errors are always told
    while not watch.poll():
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # as a person would: the run saves its state
    sleep(LAST)
    os.kill(os.getpid(), signal.SIGKILL)


class PipeDisplay(Silent):
    """Tells the parent."""

    def __init__(self, pipe: int) -> None:
        self.pipe, self.name, self.steps, self.told = pipe, "", 0, 0.0

    def begin(self, spec: Spec, done: int) -> None:
        """The folder is ours, and the run goes on from here."""
        from rlbench.sweep.events import Begun

        self.name, self.steps = f"{spec.name} seed {spec.seed}", spec.budget.steps
        self.log(f"{self.name}  {'resumes at' if done else 'starts at'} {done:,}/{self.steps:,} steps")
        self._tell(Begun(done))

    def show(self, record: Progress | Epoch) -> None:
        """Every epoch, and of the rest what is worth a movement."""
        from rlbench.records.types import Epoch
        from rlbench.sweep.events import Said

        if isinstance(record, Epoch):
            line = epoch_line(self.name, record, self.steps)
            self.log(line)
            self._tell(Said(line))
        elif monotonic() - self.told > OFTEN:
            self.told = monotonic()
            self._tell(record)

    def end(self, message: str) -> None:
        """How it ended stands in the log, which is looked into when the process is gone."""
        self.log(message)

    def say(self, message: str) -> None:
        """For the log."""
        self.log(message)

    def log(self, message: str) -> None:
        """A line in the log, which is where stderr goes."""
        sys.stderr.write(message + "\n")
        sys.stderr.flush()

    def _tell(self, told: Told) -> None:
        """A line into the pipe; one that finds no room is lost, and the next says more."""
        from rlbench.sweep.events import to_line

        with suppress(OSError):
            os.write(self.pipe, (to_line(told) + "\n").encode())
