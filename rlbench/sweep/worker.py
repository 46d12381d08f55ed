"""Worker process of one run: the command line a person would type, its output in a log, its events in a pipe.

The process leads a session of its own, so that a terminal's Ctrl-C reaches it only through its parent. It ends by
itself when its parent is gone (``cli/parent_pipe.py``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rlbench.records import attempts
from rlbench.sweep.events import Event, Exited, from_line

PATIENCE = 25.0
"""Seconds that a process has to save its state and end."""


class Worker:
    """A started process."""

    def __init__(self, words: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.pipe, child_end = os.pipe()
        os.set_blocking(self.pipe, False)
        self._partial_line = ""
        try:
            with attempts.open_log(folder) as log:
                self.process = subprocess.Popen(  # noqa: S603 - our own command line, and no shell
                    [sys.executable, "-P", "-m", "rlbench", *words, "--pipe", str(child_end)],
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

    def ask(self) -> None:
        """Ask the process to save its state and end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and its children."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    def _lines(self) -> list[str]:
        text = self._partial_line
        with suppress(BlockingIOError):
            while piece := os.read(self.pipe, 65536):
                text += piece.decode(errors="replace")
        *lines, self._partial_line = text.split("\n")
        return lines


def environment(threads: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Environment of a worker: its number of threads, and no setting that its command line repeats."""
    inherited = {name: value for name, value in environ.items() if not _on_command_line(name)}
    return {**inherited, "OMP_NUM_THREADS": str(threads)}


def _on_command_line(name: str) -> bool:
    return name.startswith("RLBENCH_") and ("__" in name or name in {"RLBENCH_STEPS", "RLBENCH_SEEDS"})
