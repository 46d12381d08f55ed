"""The claim of a process on a run's folder: a lock on a file that is there only while it is held.

Nothing ignores that file, so a tool that sweeps ignored files leaves it; whoever finds it gone or replaced lets go.
"""

from __future__ import annotations

import fcntl
import os
import platform
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from rlbench import faults

NAME = ".lock"


class Claim:
    """One run's folder, held by this process from ``acquire`` to ``release``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._lock = FileLock(self.path)
        self._file: tuple[int, int] | None = None  # device and inode of what is locked

    def acquire(self) -> bool:
        """Hold the folder; False while another process holds it.

        Raises:
            OSError: the folder cannot be written.
        """
        try:
            self._lock.acquire(timeout=0.2)  # `status` looks for a moment
        except Timeout:
            return False
        self._file = self._found()
        self._sign()
        return True

    def intact(self) -> bool:
        """Whether what is locked still lies where others look for it."""
        return self._file is not None and self._file == self._found()

    def release(self) -> None:
        """Let other processes have the folder."""
        if self.intact() and isinstance(self._lock, FileLock):  # where the disk has no locks, the file is the lock
            with suppress(OSError):
                self.path.unlink()  # while it is held: who waits for it finds it gone, and begins anew
                faults.point("claim.removed")
        self._lock.release()

    def _sign(self) -> None:
        """Name this process and its machine in the file, for whoever is turned away; a full disk does no harm."""
        with suppress(OSError):
            handle = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if os.fstat(handle).st_nlink != 1:  # another file by a second name
                    return
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()} {platform.node()}\n".encode())
            finally:
                os.close(handle)

    def _found(self) -> tuple[int, int] | None:
        try:
            state = self.path.lstat()
        except OSError:
            return None
        return state.st_dev, state.st_ino


def held(folder: Path) -> bool:
    """Whether a process is at work in a run's folder; asks for a shared lock and gives it back at once."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False
