"""SHA-256 of a data file, recorded in a file beside it on first use, so that any change is noticed."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rlbench import disk, faults
from rlbench.config.names import printable
from rlbench.datasets.hdf5 import open_file
from rlbench.errors import RefusedFile, UsageError

SCHEMA_VERSION = 1
SUFFIX = ".sha256.json"
HDF5 = {".hdf5", ".h5"}


class Seal(BaseModel):
    """Size, SHA-256 and source of a file on its first use; older seals lack inode and ctime."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    size: int  # bytes
    sha256: str
    modified: int  # nanoseconds, modification time; an unchanged file is not hashed again
    url: str | None  # address of its download
    inode: int | None = None
    ctime: int | None = None  # nanoseconds, which no program can set


def seal_of(path: Path) -> Seal:
    """Return the seal of a file, and write it if there is none.

    Raises:
        RefusedFile: the file differs from its seal, or is no whole HDF5 file.
    """
    seal = read_seal(path)
    return seal if seal is not None and is_unchanged(path, seal) else verify(path)


def is_unchanged(path: Path, seal: Seal) -> bool:
    """True if a file has the size, times and inode of its seal."""
    return seal == _seal_from(path.stat(), seal.sha256, seal.url)


def verify(path: Path) -> Seal:
    """Hash a file, compare it with its seal, and return the seal.

    Raises:
        RefusedFile: the file differs from its seal.
    """
    seal, now = read_seal(path), compute_seal(path)
    if seal is not None and (seal.size, seal.sha256) != (now.size, now.sha256):
        raise RefusedFile(
            f"{path}: SHA-256 {now.sha256[:12]}… ({now.size:,} bytes), recorded was {seal.sha256[:12]}… "
            f"({seal.size:,} bytes); restore the file, or delete {_seal_path(path).name} if you meant to change it"
        )
    if seal is None and path.suffix in HDF5:
        with open_file(path):  # half a file must not be sealed
            pass
    now = now.model_copy(update={"url": seal.url if seal else None})
    if seal != now:
        with suppress(OSError):  # in a read-only folder the file is hashed each time
            write_seal(path, now)
    return now


def compute_seal(path: Path, url: str | None = None) -> Seal:
    """Hash a file."""
    with disk.open_regular(path, links=True) as file:
        state = os.fstat(file.fileno())  # a change from now on is noticed
        return _seal_from(state, hashlib.file_digest(file, "sha256").hexdigest(), url)


def _seal_from(state: os.stat_result, digest: str, url: str | None) -> Seal:
    ctime = state.st_ctime_ns
    return Seal(size=state.st_size, sha256=digest, modified=state.st_mtime_ns, url=url, inode=state.st_ino, ctime=ctime)


def read_seal(path: Path) -> Seal | None:
    """Read the seal beside a file, which itself may be gone; None if there is none.

    Raises:
        UsageError: the name of the file is too long for a seal beside it.
        RefusedFile: the seal is damaged, or of a newer version.
    """
    beside = _seal_path(path)
    try:
        if not beside.is_file():
            return None
    except OSError as error:  # the name with its suffix is too long
        raise UsageError(f"{printable(str(path))}: {error.strerror}; rename it") from None
    newer = False
    with suppress(RefusedFile, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        content = json.loads(disk.content(beside))
        version, checksum = content["schema_version"], content.pop("checksum", None)  # the oldest seals have none
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        if not newer and checksum in {None, _checksum(content)}:
            return Seal.model_validate({name: value for name, value in content.items() if name != "schema_version"})
    if newer:
        problem = f"schema {version} was written by a newer rlbench (this one reads ≤ {SCHEMA_VERSION})"
        raise RefusedFile(f"{beside}: {problem}; upgrade")
    raise RefusedFile(f"{beside}: damaged; delete it, and the file is recorded anew on its next use")


def write_seal(path: Path, seal: Seal) -> None:
    """Write the seal of a file, whole or not at all."""
    content = {"schema_version": SCHEMA_VERSION, **seal.model_dump()}
    raw = (json.dumps({**content, "checksum": _checksum(content)}) + "\n").encode()
    disk.replace(_seal_path(path), raw, disk.temporary_of(_seal_path(path).with_suffix("")))


def remove_seal(path: Path) -> None:
    """Remove the seal of a file that is to be replaced."""
    _seal_path(path).unlink(missing_ok=True)
    faults.point("seal.forgotten")


def _checksum(content: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _seal_path(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)
