"""Attempts at a run that ``--force`` puts aside: records of their own, in ``attempt-1`` and so on beside it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from rlbench import disk, faults
from rlbench.records import files

MOVED_PARTS = ("outcome.json", "failure.txt", "checkpoint", "epochs.jsonl")
"""In this order: a run without its outcome is an unfinished one, and resumes."""

MOVING = ".moving"  # in an attempt's folder until the moves into it have ended


def is_attempt(folder: Path) -> bool:
    """True if a folder holds more of a run than settings and the empty ``crash.txt`` of a process that was killed."""
    crash = folder / files.CRASH
    return any((folder / part).exists() for part in MOVED_PARTS) or (crash.exists() and crash.stat().st_size > 0)


def set_aside(folder: Path) -> Path:
    """Move a run's record into an attempt's folder, and return it; after a kill, the next call moves the rest.

    ``spec.json`` is copied, so that readers see the run or its attempt.
    """
    parts = [folder / part for part in MOVED_PARTS if (folder / part).exists()]
    aside, spec_file, crash = _attempt_folder(folder, parts), folder / "spec.json", folder / files.CRASH
    with files.writing(aside):
        aside.mkdir(exist_ok=True)
        (aside / MOVING).touch()
        faults.point("aside.made")
        if spec_file.exists():
            disk.replace(aside / spec_file.name, spec_file.read_bytes())
        for path in parts:
            path.rename(aside / path.name)
            faults.point("aside.moved")
        if crash.exists() and (text := crash.read_bytes()):
            disk.replace(aside / files.CRASH, text)
            os.truncate(crash, 0)
            faults.point("aside.moved")
        (aside / MOVING).unlink()
        disk.sync(folder)
    return aside


def end_moves(folder: Path) -> None:
    """End the moves that a kill has ended: the run goes on without ``--force``, as another attempt."""
    for path in folder.glob(f"attempt-*/{MOVING}"):
        with suppress(OSError):
            path.unlink()
            faults.point("lock.swept")


def _attempt_folder(folder: Path, parts: list[Path]) -> Path:
    """Folder of the attempt: the last one if a kill ended a move into it, else a new one."""
    names = [re.fullmatch(r"attempt-(\d+)", p.name) for p in folder.iterdir()]
    number = max((int(match[1]) for match in names if match), default=0)
    last = folder / f"attempt-{number}"
    is_unfinished = last.is_dir() and ((last / MOVING).exists() or not any(last.iterdir()))
    is_unfinished = is_unfinished and not any((last / part.name).exists() for part in parts)  # else the run went on
    return last if is_unfinished else folder / f"attempt-{number + 1}"
