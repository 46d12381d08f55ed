"""Whether a process is at work in a run's folder, asked from outside."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def held(folder: Path) -> bool:
    """Whether a process is at work in a run's folder; asks for a shared lock and gives it back at once."""
    try:
        handle = os.open(folder / ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
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
