"""Attempts at a run that ``--force`` puts aside: records of their own, in ``attempt-1`` and so on beside it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from rlbench import disk, faults
from rlbench.records import files

ATTEMPT_PARTS = ("epochs.jsonl", "checkpoint", "failure.txt", "crash.txt", "outcome.json")
"""In the order in which they come back: a run without its outcome is an unfinished one, and resumes."""

MOVING = ".moving"  # in an attempt's folder until a move into it, or back, has ended


def set_aside(folder: Path) -> Path | None:
    """Move a run's record into an attempt's folder; ``spec.json`` stays, so that readers see the run or its attempt.

    Return the attempt's folder; None where the record has nothing but settings, and is no attempt.
    """
    crash, spec_file = folder / "crash.txt", folder / "spec.json"
    if crash.exists() and crash.stat().st_size == 0:  # of a process that was killed
        crash.unlink()
    present = [folder / part for part in ATTEMPT_PARTS if (folder / part).exists()]
    if not present:
        return None
    aside = _attempt_folder(folder, present)
    with files.writing(aside):
        aside.mkdir(exist_ok=True)
        try:
            (aside / MOVING).touch()
            faults.point("aside.made")
            if spec_file.exists():
                disk.replace(aside / spec_file.name, spec_file.read_bytes())
            for part in reversed(present):
                part.rename(aside / part.name)
                faults.point("aside.moved")
            (aside / MOVING).unlink()
        except OSError:
            restore(folder, aside)
            raise
        disk.sync(folder)
    return aside


def end_moves(folder: Path) -> None:
    """End the moves that a kill has ended: the run goes on without ``--force``, as another attempt."""
    for path in folder.glob(f"attempt-*/{MOVING}"):
        with suppress(OSError):
            path.unlink()
            faults.point("lock.swept")


def restore(folder: Path, aside: Path) -> None:
    """Undo ``set_aside``; where a kill ends it, the next ``set_aside`` moves the rest into ``aside`` again."""
    spec_file = aside / "spec.json"
    with suppress(OSError):
        (aside / MOVING).touch()
        if spec_file.exists():
            disk.replace(folder / spec_file.name, spec_file.read_bytes())
        moved = [part for part in ATTEMPT_PARTS if (aside / part).exists()]
        for part in moved:
            (aside / part).rename(folder / part)
            faults.point("aside.restored")
        if moved and not spec_file.exists():
            (folder / spec_file.name).unlink()  # the record had none, and stays refused
        spec_file.unlink(missing_ok=True)
        (aside / MOVING).unlink()
        aside.rmdir()


def _attempt_folder(folder: Path, parts: list[Path]) -> Path:
    """Folder of the attempt: the last one if a kill ended a move into it, else a new one."""
    names = [re.fullmatch(r"attempt-(\d+)", p.name) for p in folder.iterdir()]
    number = max((int(match[1]) for match in names if match), default=0)
    last = folder / f"attempt-{number}"
    is_unfinished = last.is_dir() and ((last / MOVING).exists() or not any(last.iterdir()))
    is_unfinished = is_unfinished and not any((last / part.name).exists() for part in parts)  # else the run went on
    return last if is_unfinished else folder / f"attempt-{number + 1}"
