"""Write recorded games: a folder of numbered files, each whole or absent, and at the end a list of them.

``<name>.frames/<source>.<number>.segment`` hold the rows, ``dataset.json`` names every one of them with its SHA-256.
Without it the set is unfinished: the set of a killed process reads up to its last file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbench import disk, faults
from rlbench.config.names import printable
from rlbench.datasets import checksums, recording_format
from rlbench.datasets.catalogue import CONTENTS
from rlbench.datasets.recording_format import Chunk, Frames, Steps
from rlbench.errors import RefusedFile

SCHEMA_VERSION: Final = 1
REQUEST: Final = "request.json"  # only while the set is unfinished: what is to be written
PLAY: Final = "play"  # begins the names of the files of recorded games
DONE: Final = ".done.json"  # suffix of the file that a converted shard has
PART: Final = ".part"  # suffix of a file that is being written
ROWS: Final = 10_000  # of a file, about: the rows in memory, which are lost when the process is killed
BYTES: Final = 2**28  # of the frames of a file, about

Metadata = Mapping[str, object]


class RecordingWriter:
    """Write rows of several tracks; the rows of one track come in their order.

    With a ``request`` the first file removes the set in the folder, and the request is written down.
    """

    def __init__(self, folder: Path, source: str = PLAY, rows: int = ROWS, *, request: Metadata | None = None) -> None:
        self.folder, self.source, self.rows, self.request = folder, source, rows, request
        self.digests: dict[str, str] = {}  # files and their SHA-256
        self._waiting: dict[int, list[Chunk]] = {}
        self._count = 0
        _create(folder)

    def add(self, chunk: Chunk) -> None:
        """Append rows to a track."""
        self._waiting.setdefault(chunk.track, []).append(chunk)
        self._count += len(chunk.obs)
        if self._count >= self.rows or self._count * chunk.obs.nbytes >= BYTES * len(chunk.obs):
            self.flush()

    def flush(self) -> None:
        """Write the rows in memory as the next file.

        Raises:
            ResourceExhausted: the disk is full; earlier files stay.
        """
        if not self._count:
            return
        raw = recording_format.pack([_join(pieces) for _, pieces in sorted(self._waiting.items())])
        if self.request is not None and not self.digests:
            begin(self.folder, self.request)
        name = f"{self.source}.{len(self.digests):05}.segment"
        write_file(self.folder / name, raw)
        self.digests[name] = recording_format.digest_name(raw)
        self._waiting, self._count = {}, 0


def row(track: int, obs: Frames, action: int, reward: float, flags: int) -> Chunk:
    """One row at ``obs``, ``[*shape]``; of a final observation action and reward are 0, and ``flags`` are ``FINAL``."""
    steps = Steps(np.array([action], np.int64), np.array([reward], np.float32), np.array([flags], np.uint8))
    return Chunk(track, obs[None], steps)


def finish(folder: Path, files: Mapping[str, str], metadata: Metadata) -> None:
    """Write the list of a set's files and its metadata, which makes it whole."""
    write_file(folder / CONTENTS, seal_set({"segments": dict(sorted(files.items())), "told": dict(metadata)}))
    drop_request(folder)


def contents(folder: Path) -> tuple[dict[str, str], dict[str, object]] | None:
    """Read the files of a set with their SHA-256, and its metadata; None where it is unfinished.

    Raises:
        RefusedFile: ``dataset.json`` is damaged, or of a newer version.
    """
    path = folder / CONTENTS
    if not path.is_file():
        return None
    head = read_sealed_set(path)
    files, metadata = head.get("segments"), head.get("told")
    if not isinstance(files, dict) or not isinstance(metadata, dict):
        raise recording_format.refusal(path, "names no files")
    others = [str(name) for name in files if Path(str(name)).name != name or not str(name).isprintable()]
    if others:
        raise recording_format.refusal(path, f"names {printable(others[0])}, which is no file in its folder")
    return {str(name): str(digest) for name, digest in files.items()}, metadata


def seal_set(head: Mapping[str, object]) -> bytes:
    """Serialize JSON with its schema version and SHA-256."""
    rest = {"schema_version": SCHEMA_VERSION, **head}
    digest = sha256(json.dumps(rest, indent=1, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**rest, "sha256": digest}, indent=1, sort_keys=True) + "\n").encode()


def read_sealed_set(path: Path) -> dict[str, object]:
    """Read JSON whose SHA-256 is verified.

    Raises:
        RefusedFile: it is damaged, or of a newer version.
    """
    try:
        text = disk.content(path)
        head = dict(json.loads(text))
        whole = text.encode() == seal_set({key: value for key, value in head.items() if key != "sha256"})
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise recording_format.refusal(path, str(error)) from None
    if not whole:
        raise recording_format.refusal(path, "its SHA-256 is not the one it names")
    version = head["schema_version"]
    if not isinstance(version, int):
        raise recording_format.refusal(path, "its schema_version is no number")
    if version > SCHEMA_VERSION:
        raise RefusedFile(
            f"{path}: schema {version} was written by a newer rlbench (this one reads ≤ {SCHEMA_VERSION}); upgrade"
        )
    return head


def begin(folder: Path, request: Metadata) -> None:
    """Remove a set and write down the request for the next one."""
    _create(folder)
    clear(folder)
    write_file(folder / REQUEST, seal_set(request))


def is_begun(folder: Path, request: Metadata) -> bool:
    """True if an unfinished set was begun by an equal request."""
    with suppress(OSError, ValueError, RefusedFile):
        return disk.content(folder / REQUEST).encode() == seal_set(request)
    return False


def drop_request(folder: Path) -> None:
    """Remove the request of a set that is complete."""
    with _writing(folder / REQUEST):
        (folder / REQUEST).unlink(missing_ok=True)
        faults.point("recording.cleared")


def clear(folder: Path) -> None:
    """Remove a set, its list of files first; other files in its folder stay."""
    with _writing(folder / CONTENTS):
        for kind in (CONTENTS, CONTENTS + checksums.SUFFIX, REQUEST, "*.segment", f"*{DONE}"):
            for path in (*folder.glob(kind), *folder.glob(kind + PART)):
                path.unlink()
                faults.point("recording.cleared")


def write_file(path: Path, raw: bytes) -> None:
    """Write a file, whole or not at all.

    Raises:
        UsageError: the folder cannot be written.
        ResourceExhausted: the disk is full.
    """
    with _writing(path):
        disk.replace(path, raw, path.with_name(path.name + PART))


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Create and lock ``folder`` against other writers.

    Raises:
        UsageError: another process holds the lock, or the folder cannot be written or locked.
        RefusedFile: it is a link.
        ResourceExhausted: the disk is full.
    """
    if folder.is_symlink():  # a folder of data sets may come from anybody
        raise RefusedFile(f"{folder}: is a link, and no data set is written through one; choose another --name")
    with ExitStack() as stack:
        with _writing(folder):
            stack.enter_context(disk.locked(folder, patience=0))
        yield


def _create(folder: Path) -> None:
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        faults.point("recording.made")


def _writing(path: Path) -> AbstractContextManager[None]:
    again = "run the same command again, with --force if it asks for that"
    return disk.writing(path, elsewhere=" with RLBENCH_DATASETS", then=again)


def _join(chunks: list[Chunk]) -> Chunk:
    obs: NDArray[np.generic] = np.concatenate([chunk.obs for chunk in chunks])
    steps = Steps(*(np.concatenate(column) for column in zip(*(chunk.steps for chunk in chunks), strict=True)))
    return Chunk(chunks[0].track, obs, steps)
