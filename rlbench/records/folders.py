"""Folders of runs below a results folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rlbench.config.names import printable
from rlbench.errors import RefusedFile, UsageError
from rlbench.records import files

PARTS: Final = ("spec.json", "epochs.jsonl", "outcome.json", "checkpoint")


def folders(results: Path) -> Iterator[Path]:
    """Yield every run's folder below ``results``, in order of name, without the attempts that ``--force`` set aside.

    Raises:
        UsageError: ``results`` is no folder.
        RefusedFile: a folder in it cannot be read, is a link, or has a name that does not print.
    """
    if results.exists() and not results.is_dir():
        raise UsageError(f"{results}: not a folder; choose a folder of records with --results")
    for place, names, _ in os.walk(results, onerror=_refuse_unreadable):
        names[:] = sorted(name for name in names if not name.startswith(("attempt-", ".")))
        for name in names:
            files.refuse_link(Path(place, name))
            if not name.isprintable():
                raise RefusedFile(f"{Path(place, printable(name))}: has a name that does not print; rename the folder")
        if Path(place).name.startswith("seed="):
            names.clear()
            if any(Path(place, part).exists() for part in PARTS):
                yield Path(place)


def _refuse_unreadable(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):
        return  # nothing is recorded yet, or another process removed it
    raise RefusedFile(f"{error.filename}: cannot be read ({error.strerror}); check its permissions")
