"""Writing that survives: a reader finds the old file or the new one, and who cannot write learns why in one line."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rlbench import faults
from rlbench.errors import ResourceExhausted, UsageError

LARGEST: Final = 2**24  # bytes of a text that describes data: JSON takes some twenty times as much memory


def replace(path: Path, raw: bytes, temporary: Path) -> None:
    """Put ``raw`` in the place of a file by way of ``temporary`` beside it, and wait until the disk has both."""
    try:
        temporary.unlink(missing_ok=True)  # a crash's or a stranger's: no link is written through
        with temporary.open("xb") as file:
            file.write(faults.cut("replace.torn", raw))
            file.flush()
            faults.point("replace.torn")
            os.fsync(file.fileno())
        faults.point("replace.written")
        temporary.replace(path)
        faults.point("replace.placed")
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def content(path: Path) -> str:
    """The whole of a small text file.

    Raises:
        OSError: it cannot be read, or has more than ``LARGEST`` bytes.
    """
    with path.open("rb") as file:
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return text.decode()


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's list of names."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def writing(path: Path, *, elsewhere: str = "", then: str = "run the same command again: it resumes") -> Iterator[None]:
    """Turn a failed write into one line that names the file; what was there before stays.

    ``elsewhere`` says how another folder is chosen (`` with --results``), ``then`` what is done once there is space.

    Raises:
        UsageError: its folder cannot be written.
        ResourceExhausted: the disk is full, or failed.
    """
    try:
        yield
    except PermissionError:
        raise UsageError(f"{path.parent}: cannot be written; choose another folder{elsewhere}") from None
    except FileNotFoundError:
        raise ResourceExhausted(f"{path}: its folder is gone; put it back and {then}") from None
    except OSError as error:
        if error.errno == errno.EROFS:
            raise UsageError(f"{path}: {error.strerror}; choose another folder{elsewhere}") from None
        raise ResourceExhausted(f"{path}: {error.strerror or error}; free some space and {then}") from None
