"""A file's SHA-256, recorded beside it on first use: what was learned from can be named, and a change is noticed."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rlbench.errors import RefusedFile

SCHEMA_VERSION = 1
SUFFIX = ".sha256.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal:
    """What a file was when it was first used."""

    size: int  # bytes
    sha256: str
    modified: int  # nanoseconds, the file's own clock; what is untouched is not hashed again
    url: str | None  # where it was downloaded from


def sealed(path: Path) -> Seal:
    """The record of a file, made now if there is none.

    Raises:
        RefusedFile: the file is no longer the one that was recorded.
    """
    seal, state = recorded(path), path.stat()
    if seal is not None and (seal.size, seal.modified) == (state.st_size, state.st_mtime_ns):
        return seal
    return verified(path)


def verified(path: Path) -> Seal:
    """The record of a file, compared with every byte of it.

    Raises:
        RefusedFile: the file is no longer the one that was recorded.
    """
    seal, now = recorded(path), measured(path)
    if seal is not None and (seal.size, seal.sha256) != (now.size, now.sha256):
        raise RefusedFile(
            f"{path}: SHA-256 {now.sha256[:12]}… ({now.size:,} bytes), recorded was {seal.sha256[:12]}… "
            f"({seal.size:,} bytes); restore the file, or delete {_beside(path).name} if you meant to change it"
        )
    if seal is None or seal.modified != now.modified:
        seal = Seal(size=now.size, sha256=now.sha256, modified=now.modified, url=seal.url if seal else None)
        with suppress(OSError):  # a file in a folder that cannot be written is measured each time
            write(path, seal)
    return seal


def measured(path: Path, url: str | None = None) -> Seal:
    """What a file is now."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        state = os.fstat(file.fileno())
    return Seal(size=state.st_size, sha256=digest, modified=state.st_mtime_ns, url=url)


def recorded(path: Path) -> Seal | None:
    """What was written down beside a file, which need not be there any more; None if nothing was.

    Raises:
        RefusedFile: the record is damaged, or of a newer version.
    """
    beside = _beside(path)
    if not beside.is_file():
        return None
    try:
        told = json.loads(beside.read_text(encoding="utf-8"))
        version = told["schema_version"]
        if version > SCHEMA_VERSION:
            newer = f"schema {version} was written by a newer rlbench (this one reads ≤ {SCHEMA_VERSION})"
            raise RefusedFile(f"{beside}: {newer}; upgrade")
        return Seal(
            size=int(told["size"]), sha256=str(told["sha256"]), modified=int(told["modified"]), url=told.get("url")
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise RefusedFile(f"{beside}: damaged; delete it, and the file is recorded anew on its next use") from None


def write(path: Path, seal: Seal) -> None:
    """Write the record of a file, whole or not at all."""
    temporary = _beside(path).with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps({"schema_version": SCHEMA_VERSION, **asdict(seal)}) + "\n", encoding="utf-8")
        temporary.replace(_beside(path))
    finally:
        temporary.unlink(missing_ok=True)


def forget(path: Path) -> None:
    """The file is to be another."""
    _beside(path).unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)
