"""Attempts at a run: a log of all its processes, and a line for the begin and the end of each.

Both files are in the run's folder and survive ``--force``; neither holds a score.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from rlbench import disk, faults
from rlbench.errors import RefusedFile
from rlbench.records import files

LOG = "log.txt"
ATTEMPTS = "attempts.jsonl"
TAIL = 4096  # bytes at the end of a log that hold its last line
MAX_RESUMPTIONS = 1000  # of a record


def open_log(folder: Path) -> IO[bytes]:
    """Open the run's log for appending; create the folder if needed.

    Raises:
        UsageError: the folder cannot be written.
        RefusedFile: the log is a link or a special file.
    """
    with disk.refusing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        log = disk.open_append(folder / LOG)
    faults.point("log.made")
    return log


def last_line(folder: Path) -> str:
    """Return the last line of the log that is not blank; empty without one."""
    try:
        with disk.open_regular(folder / LOG) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except (OSError, RefusedFile):
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def note(folder: Path, what: Mapping[str, object]) -> None:
    """Append a line; a line that a crash has torn stays a line of its own."""
    path = folder / ATTEMPTS
    line = files.seal(what)
    files.append(path, "\n" + line if _ends_torn(path) else line)


def _ends_torn(path: Path) -> bool:
    """Detect a last line without its end; its bytes need be no text."""
    if not path.exists():
        return False
    with disk.open_regular(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        return file.read() not in {b"", b"\n"}


def read_attempts(folder: Path) -> list[dict[str, object]]:
    """Read every whole line, in order; none where the file is missing, a link, or no regular file."""
    path, lines, lines_read = folder / ATTEMPTS, list[str](), []
    with suppress(RefusedFile, OSError), disk.open_regular(path, max_bytes=files.MAX_BYTES) as file:
        lines = file.read().decode(errors="replace").splitlines()
    for line in lines:
        with suppress(RefusedFile):  # torn by a crash
            lines_read.append(files.unseal(line, str(path)))
    return lines_read


class Resumption(BaseModel):
    """A process that resumed a run elsewhere, or with an engine not named so far; other keys are ignored."""

    epoch: int  # the first that this process recorded
    updates: int | None = None  # gradient steps before it; None in older records
    environment: dict[str, object]  # the values that differ


_RESUMPTIONS = TypeAdapter(Annotated[list[Resumption], Field(max_length=MAX_RESUMPTIONS)])


def resumptions(metadata: Mapping[str, object], path: Path) -> list[Resumption]:
    """Parse the resumptions in the metadata of a record, which the file ``path`` holds.

    Raises:
        RefusedFile: the metadata is malformed.
    """
    try:
        return _RESUMPTIONS.validate_python(metadata.get("resumed", []), strict=True)
    except ValidationError:
        raise RefusedFile(f"{path}: not a record of this schema; restore it, or start over with --force") from None


def note_resumption(
    folder: Path, environment: Mapping[str, object], epoch: int, updates: int = 0, engine: str | None = None
) -> None:
    """Add to the metadata what differs in the ``environment`` of a process that records from ``epoch`` on.

    ``updates`` are the gradient steps before it; ``engine`` is the checkpoint's, None if it updates by another.

    Raises:
        RefusedFile: the record has ``MAX_RESUMPTIONS`` already.
    """
    path = folder / "spec.json"
    metadata = files.read_sealed(path)
    first, lines, later = metadata.get("environment"), metadata.get("resumed", []), resumptions(metadata, path)
    earlier = dict(first) if isinstance(first, dict) else {}
    for resumption in later:
        earlier.update(resumption.environment)
    now = {**json.loads(json.dumps(environment)), "command": earlier.get("command")}  # it may differ
    if engine is not None:  # a process between that left no checkpoint may have changed it in the record
        before = earlier.get("updates")
        now["updates"] = before if before is None or _names_engine(before, engine) else engine
    changes = {name: now.get(name) for name in sorted({**earlier, **now}) if now.get(name) != earlier.get(name)}
    begins_again = epoch == 0 and bool(later) and later[-1].epoch > 0  # which ends what the resumptions changed
    if isinstance(lines, list) and (changes or begins_again):
        if len(lines) == MAX_RESUMPTIONS:
            remedy = "resume where the run was last, or start over with --force"
            raise RefusedFile(f"{path}: has {MAX_RESUMPTIONS:,} resumptions, the most; {remedy}")
        resumption = Resumption(epoch=epoch, updates=updates, environment=changes)
        files.replace_sealed(path, {**metadata, "resumed": [*lines, resumption.model_dump()]})


def _names_engine(updates: object, engine: str) -> bool:
    """True if the ``updates`` of an environment name ``engine``; the default, numpy, is eager for large networks."""
    name, _, reason = str(updates).partition(":")
    return name == engine or (engine == "eager" and name == "numpy" and reason != "")


def attempt_count(folder: Path) -> int:
    """Count the processes that have begun the run."""
    return sum(line.get("event") == "begun" for line in read_attempts(folder))
