"""One run in a process of its own: the same command line a person would type, its words in a log, its steps in a pipe.

The process leads a session of its own, so that a terminal's Ctrl-C reaches it only through its parent; it ends by
itself when its parent is gone (``cli/piped.py``).
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
from rlbench.sweep.events import Exited, News, from_line

PATIENCE = 25.0
"""Seconds that a process has to save its state and end, once it was asked to."""


class Worker:
    """A started process."""

    def __init__(self, words: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.pipe, theirs = os.pipe()
        os.set_blocking(self.pipe, False)
        self._torn = ""
        try:
            with attempts.open_log(folder) as log:
                self.process = subprocess.Popen(  # noqa: S603 - our own command line, and no shell
                    [sys.executable, "-P", "-m", "rlbench", *words, "--pipe", str(theirs)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(environ),
                    pass_fds=(theirs,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(self.pipe)
            raise
        finally:
            os.close(theirs)

    def told(self) -> list[News]:
        """What came through the pipe since, and at last how the process ended."""
        code = self.process.poll()  # asked first: what is read afterwards is then all there will ever be
        found: list[News] = [told for line in self._lines() if (told := from_line(line)) is not None]
        if code is None:
            return found
        os.close(self.pipe)
        return [*found, Exited(code, attempts.last_line(self.folder))]

    def ask(self) -> None:
        """Let it save its state and end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, with all that it may have started."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    def _lines(self) -> list[str]:
        text = self._torn
        with suppress(BlockingIOError):
            while piece := os.read(self.pipe, 65536):
                text += piece.decode(errors="replace")
        *lines, self._torn = text.split("\n")
        return lines


def environment(threads: int, environ: Mapping[str, str]) -> dict[str, str]:
    """What a run's process is started with: its share of the threads, and no setting that its command line repeats."""
    kept = {name: value for name, value in environ.items() if not _repeated(name)}
    return {**kept, "OMP_NUM_THREADS": str(threads)}


def _repeated(name: str) -> bool:
    """Whether a variable is a field of the specification, or an option, which the command line says already."""
    return name.startswith("RLBENCH_") and ("__" in name or name in {"RLBENCH_STEPS", "RLBENCH_SEEDS"})
