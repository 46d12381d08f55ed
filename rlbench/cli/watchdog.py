"""What keeps a run from hanging: signals that ask it to stop, and a thread that watches over the main one.

The thread looks at which call into the environments the main thread is in. One that does not return in time is first
interrupted, by a signal whose handler raises in the middle of it; what does not even hear that hangs in compiled code:
then the run is recorded as failed and the process ends.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, NoReturn, Self

from rlbench.cli.output import complain
from rlbench.errors import BrokenEnvironment, Interrupted, RlbenchError

if TYPE_CHECKING:
    from rlbench.records.store import Store
    from rlbench.run import Stop

LOOKS: Final = 10  # in the patience that is given
LONGEST: Final = 2.0  # seconds between two looks
GRACE: Final = 10.0  # seconds to leave an environment, once asked to
ALARM: Final = signal.SIGUSR2  # what the main thread is interrupted by
STOPPING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
INSIDE: Final = str(Path(__file__).parents[1] / "envs") + os.sep


class Watchdog:
    """Ends a run whose environments do not answer within ``env_timeout`` seconds, or within some once it is to stop."""

    def __init__(self, store: Store, env_timeout: float) -> None:
        self.store, self.env_timeout = store, env_timeout
        self.pause = min(LONGEST, env_timeout / LOOKS)
        self.stacks = ""
        self._stuck: tuple[FrameType, int] | None = None  # the call that is to be interrupted
        self._raised = False  # it was
        self.told_to_stop: int | None = None  # by this signal, heard or not by the main thread
        self._main = threading.main_thread().ident or 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self._before: signal.Handlers | Callable[[int, FrameType | None], object] | int | None = None
        self._arrived, self._arriving = os.pipe()

    def __enter__(self) -> Self:
        if self.store.crash is not None:
            faulthandler.enable(self.store.crash)  # what a dying process can still say
        for end in (self._arrived, self._arriving):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(
            self._arriving, warn_on_full_buffer=False
        )  # written to even in the middle of compiled code
        self._before = signal.signal(ALARM, self._interrupt)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        signal.signal(ALARM, self._before)
        signal.set_wakeup_fd(-1)
        for end in (self._arrived, self._arriving):
            os.close(end)
        faulthandler.disable()

    def _look(self) -> None:
        """Count how long the same call has been out; for a process that was suspended for an hour that is one look."""
        call, waited, asked = None, 0.0, False
        while not self._done.wait(self.pause):
            self._listen()
            now = _call(sys._current_frames().get(self._main))  # noqa: SLF001 - there is no other way to look
            waited = waited + self.pause if now is not None and now == call else 0.0
            asked = asked and (now == call or self._raised)  # it answered at the last moment
            call = now
            soon = asked or self.told_to_stop is not None
            if waited < (min(GRACE, self.env_timeout) if soon else self.env_timeout):
                continue
            if asked:
                self._end()
            asked, waited, self.stacks, self._stuck = True, 0.0, _stacks(), now
            signal.pthread_kill(self._main, ALARM)

    def _listen(self) -> None:
        with suppress(BlockingIOError):
            self.told_to_stop = next((n for n in os.read(self._arrived, 512) if n in STOPPING), self.told_to_stop)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        """Somebody else's signal, or one that comes too late, interrupts nothing."""
        if self._stuck is None or _call(frame) != self._stuck:
            return
        self._raised = True
        if self.told_to_stop is not None:
            raise Interrupted(f"{self.store.folder}: {self._stopped()}", signal=self.told_to_stop)
        error = BrokenEnvironment(self._hung())
        error.add_note(self.stacks)
        raise error

    def _end(self) -> NoReturn:
        from rlbench.run import lost

        store = self.store
        if self.told_to_stop is not None:
            complain(f"{store.folder}: {self._stopped()}")
            os._exit(128 + self.told_to_stop)
        outcome = store.outcome
        if outcome is None or outcome.status != "failed":
            store.explain(self.stacks)
            with suppress(RlbenchError):  # the folder may be another's by now, or the disk full
                lost(store, f"{BrokenEnvironment.__name__}: {self._hung()}")
        complain(f"{store.folder}: failed: {self._hung()}; nothing can interrupt them, so the process ends")
        os._exit(BrokenEnvironment.exit_code)

    def _hung(self) -> str:
        return f"the environments have not answered for {self.env_timeout:g} s; failure.txt says where they hang"

    def _stopped(self) -> str:
        return "stopped, though the environments did not answer; the same command resumes at the last checkpoint"


def _call(frame: FrameType | None) -> tuple[FrameType, int] | None:
    """The outermost call into the environments, and where in it: the same two later are the same call."""
    found = None
    while frame is not None:
        if frame.f_code.co_filename.startswith(INSIDE):
            found = frame, frame.f_lasti
        frame = frame.f_back
    return found


def _stacks() -> str:
    """Where every thread is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - as above
    )


@contextmanager
def asked_to_stop() -> Iterator[Stop]:
    """SIGINT and SIGTERM ask the run to stop at the next record; a second SIGINT ends the process at once.

    A run that is not under way yet has nothing to save and stops where it is. A signal that is ignored stays so.
    """
    from rlbench.run import Stop

    stop = Stop()

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number
        if not stop.under_way:
            raise Interrupted("stopped before the run began; the same command begins it", signal=number)

    names = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        names.append(signal.SIGHUP)
    before = {name: signal.signal(name, ask) for name in names}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
