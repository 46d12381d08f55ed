"""Attempts at a run that ``--force`` puts aside: records of their own, in ``attempt-1`` and so on beside it."""

from __future__ import annotations

import re
from os.path import lexists
from pathlib import Path

from rlbench import disk, faults
from rlbench.records import files

ATTEMPT_PARTS = ("outcome.json", files.CRASH, "failure.txt", "checkpoint", "epochs.jsonl")
"""In the order in which they are moved: a run without its outcome is an unfinished one, and resumes."""

MOVING = ".moving"  # in an attempt's folder until the moves into it have ended


def attempt_parts(folder: Path) -> list[Path]:
    """Parts of a record besides its settings; the empty ``crash.txt`` of a process that was killed is none."""
    paths = [folder / part for part in ATTEMPT_PARTS if (folder / part).exists()]
    return [path for path in paths if path.name != files.CRASH or path.stat().st_size > 0]


def count_aside(folder: Path) -> int:
    """Count the attempts that ``--force`` has put aside; one whose moves have not ended does not count."""
    attempts = [path for path in folder.glob("attempt-*") if not lexists(path / MOVING)]
    return sum(any(lexists(path / part) for part in ("spec.json", *ATTEMPT_PARTS)) for path in attempts)


def set_aside(folder: Path) -> Path:
    """Move a run's record into an attempt's folder, and return it; after a kill, the next call moves the rest.

    ``spec.json`` is copied, so that readers see the run or its attempt.

    Raises:
        RefusedFile: the attempt's folder is a link.
        ResourceExhausted: the disk is full.
    """
    spec_file = folder / "spec.json"
    with files.writing(folder):
        parts = attempt_parts(folder)
        aside = _attempt_folder(folder, parts)
        aside.mkdir(exist_ok=True)
        (aside / MOVING).touch()
        faults.point("aside.made")
        if spec_file.exists():
            disk.replace(aside / spec_file.name, spec_file.read_bytes())
        for path in parts:
            path.rename(aside / path.name)
            faults.point("aside.moved")
        (aside / MOVING).unlink()
        disk.sync(folder)
    return aside


def end_moves(folder: Path) -> None:
    """End the moves that a kill has ended, since what follows is another attempt; remove a folder without a part."""
    for marker in folder.glob(f"attempt-*/{MOVING}"):
        aside = marker.parent
        with files.writing(aside):
            if not attempt_parts(aside):
                (aside / "spec.json").unlink(missing_ok=True)
                faults.point("lock.swept")
            marker.unlink()
            faults.point("lock.swept")
            if not any(aside.iterdir()):
                aside.rmdir()


def _attempt_folder(folder: Path, parts: list[Path]) -> Path:
    """Folder of the attempt: the last one if a kill ended a move into it, else a new one."""
    names = [re.fullmatch(r"attempt-(\d+)", p.name) for p in folder.iterdir()]
    number = max((int(match[1]) for match in names if match), default=0)
    last = folder / f"attempt-{number}"
    files.refuse_link(last)
    is_unfinished = last.is_dir() and ((last / MOVING).is_file() or not any(last.iterdir()))
    is_unfinished = is_unfinished and not any((last / part.name).exists() for part in parts)  # else the run went on
    return last if is_unfinished else folder / f"attempt-{number + 1}"
