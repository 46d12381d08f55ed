"""What ``--force`` put aside below a run: attempts that a table counts or at least tells of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rlbench.config.names import clean_texts, printable
from rlbench.errors import RefusedFile, UsageError
from rlbench.records import files

MENDED = ("rlbench", "commit", "python", "packages", "env", "data")
"""Parts of an environment whose change can mend a failure. Threads, engine, processor and the command line only round
the numbers otherwise: to change them is to throw the dice again."""


class Attempt(NamedTuple):
    """One attempt at a run that was put aside."""

    name: str  # of its folder
    status: str  # done, failed, interrupted, or damaged where it cannot be read
    reason: str
    environment: Mapping[str, object]


def attempts(folder: Path) -> tuple[Attempt, ...]:
    """The attempts below a run's folder, the oldest first; a damaged one is often why there is a later one."""
    numbers = sorted(int(number) for path in folder.glob("attempt-*") if (number := path.name[8:]).isdecimal())
    return tuple(_attempt(folder / f"attempt-{number}") for number in numbers)


def _attempt(folder: Path) -> Attempt:
    try:
        files.refuse_link(folder)
        environment = clean_texts(files.read_sealed(folder / "spec.json").get("environment"))
        path = folder / "outcome.json"
        outcome = files.read_sealed(path) if path.exists() else {"status": "interrupted"}
    except (RefusedFile, UsageError):
        return Attempt(folder.name, "damaged", "", {})
    reason = printable(str(outcome.get("reason")))
    known = environment if isinstance(environment, dict) else {}
    return Attempt(folder.name, str(outcome.get("status")), reason, known)


def failure(made: tuple[Attempt, ...], environment: Mapping[str, object]) -> Attempt | None:
    """The first attempt that failed in an ``environment`` of the same code, versions and data."""
    now = [environment.get(part) for part in MENDED]
    failed = (attempt for attempt in made if attempt.status == "failed")
    return next((attempt for attempt in failed if [attempt.environment.get(part) for part in MENDED] == now), None)
