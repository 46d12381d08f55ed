"""Lock on a run's folder: a file that exists only while a process holds it.

No ignore rule names the file, so that a tool that removes ignored files leaves it. A process that finds it gone or
replaced stops.
"""

from __future__ import annotations

import fcntl
import os
import platform
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from filelock import FileLock, Timeout

from rlbench import disk, faults
from rlbench.errors import RefusedFile, UsageError
from rlbench.records import files

NAME = ".lock"


class FolderLock:
    """Lock on one folder, held by this process from ``acquire`` to ``release``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._lock = FileLock(self.path)
        self._file: tuple[int, int] | None = None  # device and inode of what is locked

    def acquire(self) -> bool:
        """Lock the folder; return False while another process holds it.

        Raises:
            OSError: the folder cannot be written.
        """
        try:
            self._lock.acquire(timeout=0.2)  # `status` holds a shared lock for a moment
        except Timeout:
            return False
        self._file = self._inode()
        if isinstance(self._lock, FileLock):  # otherwise the file is the lock, and filelock's own words stay in it
            self._sign()
        return True

    def intact(self) -> bool:
        """Return whether the locked file is still in its place."""
        return self._file is not None and self._file == self._inode()

    def release(self) -> None:
        """Unlock the folder."""
        if self.intact() and isinstance(self._lock, FileLock):  # where the disk has no locks, the file is the lock
            with suppress(OSError):
                self.path.unlink()  # while it is held: a waiting process finds it gone, and tries again
                faults.point("lock.removed")
        with suppress(OSError):  # a network disk's, whose server is gone; the end of the process unlocks
            self._lock.release()

    def _sign(self) -> None:
        """Write the process id and the machine into the file; a full disk does no harm."""
        if self.intact():  # a file that is gone would be made without its lock
            with suppress(OSError, RefusedFile), disk.open_append(self.path) as file:
                file.truncate(0)
                file.write(f"{os.getpid()} {platform.node()}\n".encode())

    def _inode(self) -> tuple[int, int] | None:
        try:
            state = self.path.lstat()
        except OSError:
            return None
        return state.st_dev, state.st_ino


def is_locked(folder: Path) -> bool:
    """Return whether a process holds a run's folder, by a shared lock that is released at once."""
    with suppress(OSError, RefusedFile), disk.open_regular(folder / NAME) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # the disk has no locks
            number = _process(file)
            return number is not None and Path(f"/proc/{number}").exists()
    return False


def holder(folder: Path) -> str:
    """Return ``process 4242``; ``another process`` where it is of another machine, or gone."""
    with suppress(OSError, RefusedFile), disk.open_regular(folder / NAME) as file:
        if (number := _process(file)) is not None:
            return f"process {number}"
    return "another process"


def _process(file: BufferedReader) -> int | None:
    """The process of this machine that a lock's file names; None where it names none."""
    number, node, *_ = [*file.read(200).decode("utf-8", "replace").split(), "", ""]
    return int(number) if number.isdecimal() and node == platform.node() else None


def remove_empty_crash(folder: Path) -> None:
    """Remove the empty ``crash.txt`` and the lock of a process that was killed after the run's outcome."""
    path, lock = folder / files.CRASH, FolderLock(folder)
    with suppress(OSError, RefusedFile, UsageError):
        if path.is_file() and path.stat().st_size == 0 and lock.acquire():
            try:
                path.unlink()
                faults.point("crash.removed")
            finally:
                lock.release()
