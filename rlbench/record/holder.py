"""Who is at work in a run's folder: asked of the kernel's own table of locks, so that nothing can be left behind.

The lock of a process ends with it, however it ends; a ``.lock`` that nobody holds is only a file.
"""

from __future__ import annotations

from pathlib import Path

LOCKS = Path("/proc/locks")


def holder(folder: Path, locks: Path = LOCKS) -> str:
    """``process 4242``, or ``another process`` where that one is of another machine, or gone by now."""
    try:
        inode = (folder / ".lock").stat().st_ino
        lines = locks.read_text(encoding="utf-8").splitlines()
    except OSError:
        return "another process"
    for line in lines:  # 1: FLOCK ADVISORY WRITE 4242 08:01:1234 0 EOF
        words = line.split()
        if words[1:2] == ["FLOCK"] and words[5].rpartition(":")[2] == str(inode) and words[4] not in {"0", "-1"}:
            return f"process {words[4]}"
    return "another process"
