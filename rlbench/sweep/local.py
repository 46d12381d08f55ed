"""Executor that packs jobs into processes of this machine, by memory, cores and GPUs.

A process ends itself when its parent is gone (``cli/progress_display.py``).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

from rlbench.errors import RlbenchError
from rlbench.records import attempts
from rlbench.records.machine import available_memory
from rlbench.sweep.events import Event, Exited, from_line
from rlbench.sweep.plan import Job, Machine, Placement, place

PATIENCE = 25.0  # seconds that a process has to save its state and end
POLL_SECONDS = 0.2  # seconds between two checks of the free memory


class Worker:
    """A started process."""

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.pipe, child_end = os.pipe()
        os.set_blocking(self.pipe, False)
        self._partial_line = ""
        try:
            with attempts.open_log(folder) as log:
                self.process = subprocess.Popen(  # noqa: S603 - our own command line, and no shell
                    [sys.executable, "-P", "-m", "rlbench", *command, "--pipe", str(child_end)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(environ),
                    pass_fds=(child_end,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(self.pipe)
            raise
        finally:
            os.close(child_end)

    def events(self) -> list[Event]:
        """Return new messages from the pipe, and at the end how the process exited."""
        code = self.process.poll()  # before the pipe is read, so that nothing can follow what is read
        messages: list[Event] = [message for line in self._lines() if (message := from_line(line)) is not None]
        if code is None:
            return messages
        os.close(self.pipe)
        return [*messages, Exited(code, attempts.last_line(self.folder))]

    def kill(self) -> None:
        """Kill the process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _lines(self) -> list[str]:
        text = self._partial_line
        with suppress(BlockingIOError):
            while piece := os.read(self.pipe, 65536):
                text += piece.decode(errors="replace")
        *lines, self._partial_line = text.split("\n")
        return lines


def environment(threads: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Environment of a worker: its number of threads, and no setting that its command line repeats."""
    options = {"RLBENCH_STEPS", "RLBENCH_SEEDS", *(n for n in environ if n.startswith("RLBENCH_") and "__" in n)}
    return {**{n: value for n, value in environ.items() if n not in options}, "OMP_NUM_THREADS": str(threads)}


CommandLine = Callable[[Job, str | None], Sequence[str]]
"""Returns the command line of a job on a device; None: the requested one."""


class Local:
    """Executor over worker processes of this machine."""

    in_process = False

    def __init__(self, machine: Machine, processes: int, command: CommandLine) -> None:
        self.machine, self.processes, self.command = machine, processes, command
        self._free, self._checked_at = machine.memory, monotonic()
        self._workers: dict[str, tuple[Placement, Worker]] = {}

    def has_room(self, job: Job) -> bool:
        """Return whether a job fits beside the running jobs and the other programs of the machine."""
        if monotonic() - self._checked_at > POLL_SECONDS:
            self._free, self._checked_at = available_memory(), monotonic()
        return self._place(job) is not None and (not self._workers or job.memory <= self._free)

    def start(self, job: Job, *, force: bool) -> None:
        """Start a job that there is room for.

        Raises:
            RlbenchError: there is no room.
        """
        placement = self._place(job)
        if placement is None:
            raise RlbenchError(f"{job.name}: started without room")
        device = None if placement.gpu is None else f"cuda:{placement.gpu}"
        command = [*self.command(job, device), *(["--force"] if force else [])]
        self._workers[job.name] = (placement, Worker(command, job.folder, environment(job.threads, os.environ)))

    def events(self, seconds: float) -> list[tuple[Job, Event]]:
        """Return new events of the jobs; wait at most ``seconds`` for the first."""
        select.select([worker.pipe for _, worker in self._workers.values()], [], [], seconds)
        events = [(placement.job, event) for placement, worker in self._workers.values() for event in worker.events()]
        for job, event in events:
            if isinstance(event, Exited):
                del self._workers[job.name]
        return events

    def terminate(self) -> None:
        """Ask every job to save its state and end."""
        for _, worker in self._workers.values():
            worker.process.terminate()

    def kill(self) -> None:
        """End every job at once."""
        for _, worker in self._workers.values():
            worker.kill()

    def _place(self, job: Job) -> Placement | None:
        return place(job, [placement for placement, _ in self._workers.values()], self.machine, self.processes)
