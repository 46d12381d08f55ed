"""Recorded play as it is written: a folder of numbered files, each whole or absent, and at the end what they are.

``<name>.frames/<source>.<number>.segment`` hold the rows, ``dataset.json`` names every one of them with its SHA-256.
While it is missing the set is unfinished: what a killed process left behind can be read up to its last file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbench import disk, faults
from rlbench.datasets import recording_format
from rlbench.datasets.recording_format import FINAL, TERMINATED, TRUNCATED, Frames, Piece, Steps
from rlbench.errors import RefusedFile, UsageError

SCHEMA_VERSION: Final = 1
SUFFIX: Final = ".frames"
CONTENTS: Final = "dataset.json"
ROWS: Final = 10_000  # of a file, about: as many are in memory, and lost when the process is killed

Told = Mapping[str, object]


class RecordingWriter:
    """Writes rows of several tracks side by side; those of one track in their order."""

    def __init__(self, folder: Path, source: str = "play", rows: int = ROWS) -> None:
        self.folder, self.source, self.rows = folder, source, rows
        self.written: dict[str, str] = {}  # files and their SHA-256
        self._waiting: dict[int, list[Piece]] = {}
        self._count = 0
        with _writing(folder / CONTENTS):
            folder.mkdir(parents=True, exist_ok=True)
            faults.point("film.made")

    def add(self, piece: Piece) -> None:
        """Rows that follow those of the same track so far."""
        self._waiting.setdefault(piece.track, []).append(piece)
        self._count += len(piece.obs)
        if self._count >= self.rows:
            self.flush()

    def flush(self) -> None:
        """Put on disk what is in memory, as the next file.

        Raises:
            ResourceExhausted: the disk is full; what was written before stays.
        """
        if not self._count:
            return
        raw = recording_format.packed([_joined(pieces) for _, pieces in sorted(self._waiting.items())])
        name = f"{self.source}.{len(self.written):05}.segment"
        put(self.folder / name, raw)
        self.written[name] = recording_format.named(raw)
        self._waiting, self._count = {}, 0


def step(track: int, obs: Frames, action: int, reward: float, *, terminated: bool, truncated: bool) -> Piece:
    """One row in which something was done, seeing ``obs``, ``[*shape]``."""
    marks = TERMINATED * terminated | TRUNCATED * truncated
    return Piece(track, obs[None], _steps(action, reward, marks))


def last(track: int, obs: Frames) -> Piece:
    """One row that shows where an episode ended, ``[*shape]``."""
    return Piece(track, obs[None], _steps(0, 0.0, FINAL))


def finish(folder: Path, written: Mapping[str, str], told: Told) -> None:
    """Say that the set is whole: which files it is, and all that is known of it."""
    put(folder / CONTENTS, sealed({"segments": dict(sorted(written.items())), "told": dict(told)}))


def contents(folder: Path) -> tuple[dict[str, str], dict[str, object]] | None:
    """The files of a set with their SHA-256, and what is known of it; None where it is unfinished.

    Raises:
        RefusedFile: ``dataset.json`` is damaged, or of a newer version.
    """
    path = folder / CONTENTS
    if not path.is_file():
        return None
    head = unsealed(path)
    files, told = head.get("segments"), head.get("told")
    if not isinstance(files, dict) or not isinstance(told, dict):
        raise recording_format.refused(path, "names no files")
    strangers = [str(name) for name in files if Path(str(name)).name != name]
    if strangers:
        raise recording_format.refused(path, f"names {strangers[0]}, which lies elsewhere")
    return {str(name): str(digest) for name, digest in files.items()}, told


def sealed(head: Mapping[str, object]) -> bytes:
    """A document with its version and the SHA-256 of the rest of it."""
    rest = {"schema_version": SCHEMA_VERSION, **head}
    digest = sha256(json.dumps(rest, indent=1, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**rest, "sha256": digest}, indent=1, sort_keys=True) + "\n").encode()


def unsealed(path: Path) -> dict[str, object]:
    """A document whose every byte is as it was written.

    Raises:
        RefusedFile: it is not, or of a newer version.
    """
    try:
        text = disk.content(path)
        head = dict(json.loads(text))
        whole = text.encode() == sealed({key: value for key, value in head.items() if key != "sha256"})
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise recording_format.refused(path, str(error)) from None
    if not whole:
        raise recording_format.refused(path, "its SHA-256 is not the one it names")
    version = head["schema_version"]
    if not isinstance(version, int):
        raise recording_format.refused(path, "its schema_version is no number")
    if version > SCHEMA_VERSION:
        raise RefusedFile(
            f"{path}: schema {version} was written by a newer rlbench (this one reads ≤ {SCHEMA_VERSION}); upgrade"
        )
    return head


def clear(folder: Path) -> None:
    """Remove a set, what makes it one first; other files in its folder stay."""
    with _writing(folder / CONTENTS):
        (folder / CONTENTS).unlink(missing_ok=True)
        faults.point("film.cleared")
        for kind in ("*.segment", "*.part", "*.json"):
            for path in folder.glob(kind):
                path.unlink()
                faults.point("film.cleared")


def put(path: Path, raw: bytes) -> None:
    """A file, whole or not at all.

    Raises:
        UsageError: the folder cannot be written.
        ResourceExhausted: the disk is full.
    """
    with _writing(path):
        disk.replace(path, raw, path.with_name(path.name + ".part"))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else writes a set in ``folder`` meanwhile; it is made, and held itself, so that no lock stays behind.

    Raises:
        UsageError: somebody does, or the folder cannot be written.
        ResourceExhausted: the disk is full.
    """
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        faults.point("film.made")
        handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UsageError(f"{folder}: another process is writing it; wait for it to finish") from None
    finally:
        os.close(handle)


def _writing(path: Path) -> AbstractContextManager[None]:
    again = "run the same command again, with --force if it asks for that"
    return disk.writing(path, elsewhere=" with RLBENCH_DATASETS", then=again)


def _steps(action: int, reward: float, marks: int) -> Steps:
    return Steps(np.array([action], np.int64), np.array([reward], np.float32), np.array([marks], np.uint8))


def _joined(pieces: list[Piece]) -> Piece:
    obs: NDArray[np.generic] = np.concatenate([piece.obs for piece in pieces])
    steps = Steps(*(np.concatenate(column) for column in zip(*(piece.steps for piece in pieces), strict=True)))
    return Piece(pieces[0].track, obs, steps)
