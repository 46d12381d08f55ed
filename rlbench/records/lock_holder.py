"""The process that holds a run's folder, by its lock file.

A lock ends with its process. The file may stay, and is valid only while the lock is held.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path


def holder(folder: Path) -> str:
    """Return ``process 4242``; ``another process`` where it is of another machine, or gone."""
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
