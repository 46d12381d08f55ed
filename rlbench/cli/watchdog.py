"""Timeout of environments: a thread that watches the main thread's calls into them.

A call that does not return in time is first interrupted by a signal whose handler raises an error. A call into compiled
code runs no handler; the watchdog then records the run as failed and ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn, Self, cast

from rlbench.cli.output import print_error
from rlbench.errors import BrokenEnvironment, Interrupted, RlbenchError

if TYPE_CHECKING:
    from rlbench.records.store import Store

CHECKS: Final = 10  # in one timeout
MAX_PAUSE: Final = 2.0  # seconds between two checks
GRACE: Final = 10.0  # seconds to leave an environment after an interrupt or a signal to stop
ALARM: Final = signal.SIGUSR2  # interrupts the main thread
STOPPING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
STOPPED: Final = "stopped, though the environments did not answer"
Call = tuple[FrameType, int, FrameType | None]  # rlbench's frame that calls an env, its position, and the env's frame
INSIDE: Final = str(Path(__file__).parents[1] / "envs") + os.sep


class Watchdog:
    """Ends a run whose environments do not answer within ``env_timeout`` seconds, or ``GRACE`` once it is to stop."""

    def __init__(self, store: Store | None, env_timeout: float, where: str) -> None:
        self.store, self.env_timeout, self.where, self.stacks, self.place = store, env_timeout, where, "", ""
        self.stopped = f"{where}: {STOPPED}" + ("; the same command resumes at the last checkpoint" if store else "")
        self.pause = min(MAX_PAUSE, env_timeout / CHECKS)
        self._stuck: Call | None = None  # to interrupt
        self.stop_signal: int | None = None  # arrived, whether or not the main thread has handled it
        self._main = threading.main_thread().ident or 0
        self._done, self._raised = threading.Event(), False  # the handler has raised
        self._thread = threading.Thread(target=self._check, name="watch", daemon=True)
        self._before: signal.Handlers | Callable[[int, FrameType | None], object] | int | None = None
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)  # works in the middle of compiled code, too
        self._before = signal.signal(ALARM, self._interrupt)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        self._thread.join()
        signal.signal(ALARM, self._before)
        signal.set_wakeup_fd(-1)
        for end in (self._read_end, self._write_end):
            os.close(end)
        if self.store is None and self._raised and kind is None:  # a close ignores every error
            raise self._error()

    def _check(self) -> None:
        """Count the checks at which the same call is under way; a suspended process makes none."""
        call, waited, interrupted = None, 0.0, False
        while not self._done.wait(self.pause):
            with suppress(BlockingIOError):
                self.stop_signal = next((n for n in os.read(self._read_end, 512) if n in STOPPING), self.stop_signal)
            frame = sys._current_frames().get(self._main)  # noqa: SLF001 - no public function gives frames
            now, stops = _call(frame), self.stop_signal is not None  # then no further env has a time of its own
            waited = waited + self.pause if now is not None and (now == call or stops) else 0.0
            interrupted = interrupted and (now == call or self._raised)  # else it answered at the last moment
            call = now
            if waited < (min(GRACE, self.env_timeout) if interrupted or stops else self.env_timeout):
                continue
            if interrupted:
                self._end()
            interrupted, waited, self.stacks, self._stuck = True, 0.0, _stacks(), now
            if frame is not None:  # by its module: a record is published, a path names its user
                self.place = f"{frame.f_globals.get('__name__')}:{frame.f_lineno}"
            signal.pthread_kill(self._main, ALARM)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        """Raise in the call that hangs; a signal from elsewhere or too late does nothing."""
        call = _call(frame)
        if self._stuck is None or call is None or (call != self._stuck and self.stop_signal is None):
            return
        self._raised = True
        raise self._error()

    def _error(self) -> RlbenchError:
        if self.stop_signal is not None:
            return Interrupted(self.stopped, signal=self.stop_signal)
        error = BrokenEnvironment(("" if self.store else f"{self.where}: ") + self._hang_text())
        error.add_note(self.stacks)
        return error

    def _end(self) -> NoReturn:
        from rlbench.run import fail_lost_run

        if self.stop_signal is not None:
            print_error(self.stopped)
            os._exit(128 + self.stop_signal)
        store = self.store
        if store is not None and not store.starts_over and (store.outcome is None or store.outcome.status != "failed"):
            store.write_traceback(self.stacks)
            with suppress(RlbenchError):  # another process may hold the folder by now, or the disk be full
                fail_lost_run(store, f"{BrokenEnvironment.__name__}: {self._hang_text()}")
        print_error(f"{self.where}: failed: {self._hang_text()}; nothing can interrupt them, so the process ends")
        os._exit(BrokenEnvironment.exit_code)

    def _hang_text(self) -> str:
        return f"the environments have not answered for {self.env_timeout:g} s; they hang in {self.place}"


def _call(frame: FrameType | None) -> Call | None:
    """Return the outermost call into an environment; an equal one later is the same call, not that of the next env."""
    call, inner, is_inside = cast("Call | None", None), None, False
    while frame is not None:
        was_inside, is_inside = is_inside, frame.f_code.co_filename.startswith(INSIDE)
        if is_inside and not was_inside:
            call = frame, frame.f_lasti, inner
        inner, frame = frame, frame.f_back
    return call


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - as above
    )
