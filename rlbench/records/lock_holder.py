"""The process that holds a run's folder, as its lock file names it.

The lock of a process ends with it, however it ends; the file may stay, and is to be read only while the lock is held.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path


def holder(folder: Path) -> str:
    """``process 4242``, or ``another process`` where that one is of another machine, or gone by now."""
    try:
        handle = os.open(folder / ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return "another process"
    try:
        number, _, node = os.read(handle, 200).decode("utf-8", "replace").strip().partition(" ")
    except OSError:
        return "another process"
    finally:
        os.close(handle)
    return f"process {number}" if number.isdecimal() and node == platform.node() else "another process"
