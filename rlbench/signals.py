"""Handlers of SIGINT, SIGTERM and SIGHUP that let a run end at its next record, with its state saved."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final, Literal, TypeAlias

from rlbench.errors import Interrupted

PR_SET_PDEATHSIG: Final = 1  # of Linux's prctl

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Phase: TypeAlias = Literal["idle", "setup", "training"]


class Terminated(BaseException):
    """SIGTERM or SIGHUP outside of training, where no state is to be saved; no ``Exception``, which handlers catch."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


INTERRUPTIONS: Final = (KeyboardInterrupt, Terminated)


def interruption_behind(error: BaseException | None) -> BaseException | None:
    """The interruption behind an error; None without one.

    Compiled code replaces it: mujoco's modules by ImportError, from which others follow, h5py by SystemError, and
    pydantic by an error whose last line names it.
    """
    visited = set[int]()  # an error may be its own cause
    while error is not None and id(error) not in visited:
        if isinstance(error, (*INTERRUPTIONS, Interrupted)):
            return error
        if name := re.search(r"\n +(KeyboardInterrupt|Terminated): *$", str(error)):
            return KeyboardInterrupt() if name[1] == "KeyboardInterrupt" else Terminated(128 + signal.SIGTERM)
        visited.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def cause(number: int) -> str:
    """Name a signal as a user knows it: ``Ctrl-C``, ``SIGTERM``."""
    if number == signal.SIGINT:
        return "Ctrl-C"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(slots=True)
class Stop:
    """Request to stop, set by a signal handler and polled between two records."""

    signal: int | None = None  # number of the first signal
    again: bool = False  # a second signal arrived
    until: int | None = None  # steps at whose evaluation the run pauses; gradient steps on recorded data
    phase: Phase = "idle"  # of the run in this process; in "setup" there is no state to save yet


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Note signals in ``stop`` as requests to stop; an ignored SIGHUP (``nohup``) stays ignored.

    Signals reach the main thread alone, so that another one is left as it is.

    Raises:
        Interrupted: in the body, at once, when a signal arrives during "setup".
        KeyboardInterrupt: in the body, when Ctrl-C is pressed a second time during "training".
    """

    def handle(number: int, _frame: object) -> None:
        stop.again = stop.signal is not None
        stop.signal = stop.signal or number
        if stop.again and number == signal.SIGINT and stop.phase != "idle":
            raise KeyboardInterrupt
        if stop.phase == "setup":
            raise Interrupted("stopped before the run began", signal=number)

    names = [signal.SIGINT, signal.SIGTERM] if threading.current_thread() is threading.main_thread() else []
    if names and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        names.append(signal.SIGHUP)
    before = {name: signal.signal(name, handle) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def keep_process_state() -> Iterator[None]:
    """Put the current folder and the signal handlers that Python sees back after the code of an environment."""
    before = _process_state()
    try:
        yield
    finally:
        if _process_state() != before:
            folder, handlers = before
            with suppress(OSError):  # it is gone
                os.chdir(folder)
            if threading.current_thread() is threading.main_thread():
                for name, handler in handlers.items():
                    signal.signal(name, handler)


def _process_state() -> tuple[str, dict[signal.Signals, Handler]]:
    """The current folder, empty where it is gone, and the handlers of SIGINT, SIGTERM and SIGHUP that Python sees."""
    try:
        folder = os.getcwd()  # noqa: PTH109 - twice in each step of the environments; a Path takes three times as long
    except FileNotFoundError:
        folder = ""
    return folder, {name: handler for name in STOPPING if (handler := signal.getsignal(name)) is not None}


def end_with_parent(parent: int) -> None:
    """Let Linux kill this process when its parent ends, also within compiled code; other systems cannot.

    ``parent`` is the parent's process id: where it has changed, the parent has ended already, and so does the process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
