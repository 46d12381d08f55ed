"""Bytes from a server into a ``.part`` file, resumed where they stopped; never under the final name.

What came with a file (its size, its ETag) is kept beside the part, so that two halves of different files never meet.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from io import FileIO
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request

from filelock import FileLock, Timeout

from rlbench import __version__, disk, faults
from rlbench.datasets.redirects import urlopen
from rlbench.disk import writing
from rlbench.errors import DoesNotFit, RefusedFile, ResourceExhausted, UsageError

BLOCK = 1 << 18
ATTEMPTS = 4
"""Connections in a row that may bring nothing before the download stops; each that brings something is free."""
PAUSE = 1.0
"""Seconds before a connection that follows an idle one, each time more."""
PATIENCE = 30.0
"""Seconds without a single byte after which a connection is given up."""
SLOWEST = 1024
"""Bytes a second, over ``PATIENCE``, below which a server only keeps us."""
UNANNOUNCED = 1 << 33
"""Bytes, at most, of a file whose size the server does not say."""


class Progress(NamedTuple):
    """Bytes there so far, and how many there will be if the server said so."""

    done: int
    total: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What a part is a part of."""

    url: str
    size: int | None  # bytes
    validator: str | None  # ETag or date of the file on the server


def part_of(target: Path) -> Path:
    """Where a file grows until it is whole."""
    return target.with_name(target.name + ".part")


def received(url: str, target: Path, *, size: int | None = None, patience: float = PATIENCE) -> Iterator[Progress]:
    """Download into ``part_of(target)``, which is complete when this is exhausted; ``size`` in bytes, where known.

    To be called by whoever is ``alone`` with the target.

    Raises:
        UsageError: the address is wrong, or it does not fit.
        RefusedFile: the server offers a file of another size.
        ResourceExhausted: the server or the disk failed; the same call resumes.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise UsageError(f"{url}: not an http address; give one")
    yield from _patiently(url, part_of(target), size, patience)


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Nobody else downloads the same file, from its first byte until it has its final name.

    Raises:
        UsageError: somebody does, or the folder cannot be written.
        ResourceExhausted: the disk failed; the same call resumes.
    """
    part = part_of(target)
    lock = _lock(part)
    with writing(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        faults.point("download.made")
    try:
        with FileLock(lock, timeout=0):
            try:
                yield
            finally:
                if not part.exists():
                    lock.unlink(missing_ok=True)
    except Timeout:
        raise UsageError(f"{part}: another process is downloading it; wait for it to finish") from None
    except PermissionError:
        raise UsageError(f"{part.parent}: cannot be written; choose another folder") from None
    except OSError as error:
        raise ResourceExhausted(f"{part}: {error.strerror or error}; run the same command again: it resumes") from None


def discard(target: Path) -> None:
    """Forget what has been downloaded so far."""
    part = part_of(target)
    for path in (part, _beside(part), _lock(part)):
        path.unlink(missing_ok=True)
        faults.point("download.discarded")


def settle(target: Path) -> None:
    """Give the whole part its final name."""
    with writing(target):
        with part_of(target).open("rb") as file:
            os.fsync(file.fileno())
        part_of(target).replace(target)
    faults.point("download.settled")
    discard(target)


def _patiently(url: str, part: Path, size: int | None, patience: float) -> Iterator[Progress]:
    idle, reached = 0, -1
    while not _complete(url, part, size):
        time.sleep(PAUSE * idle)
        reason = "the connection was cut"
        try:
            yield from _attempt(url, part, size, patience)
        except (OSError, HTTPException) as error:  # what the disk refuses has a name of its own already
            reason = _reason(error)
        held = part.stat().st_size if part.exists() else 0
        idle, reached = (0, held) if held > reached else (idle + 1, reached)
        if idle == ATTEMPTS - 1:
            raise ResourceExhausted(f"{url}: {reason} after {held:,} bytes; run the same command again: it resumes")


def _attempt(url: str, part: Path, size: int | None, patience: float) -> Iterator[Progress]:
    """One connection, from where the part ends or from the beginning."""
    origin = _origin(part)
    begin = part.stat().st_size if origin is not None and origin.url == url and part.exists() else 0
    headers = {"User-Agent": f"rlbench/{__version__}", "Accept-Encoding": "identity"}
    if begin:
        headers["Range"] = f"bytes={begin}-"
        if origin is not None and origin.validator:
            headers["If-Range"] = origin.validator
    try:
        response = urlopen(Request(url, headers=headers), timeout=patience)  # noqa: S310 - http, see above
    except HTTPError as error:
        error.close()
        if error.code == 416:  # the part is no part of what is there now
            part.unlink(missing_ok=True)
            return
        if error.code in {408, 425, 429} or error.code >= 500:
            raise
        raise UsageError(f"{url}: the server says {error.code} {error.reason}; check the name, or the mirror") from None
    with response:
        yield from _receive(response, url, part, begin, size, patience)


def _receive(
    response: HTTPResponse, url: str, part: Path, begin: int, size: int | None, patience: float
) -> Iterator[Progress]:
    begin = begin if response.status == 206 else 0  # 200: the server begins anew
    total = _total(response.headers, begin)
    known = _origin(part)
    if begin and known is not None and known.size not in {None, total}:
        part.unlink()  # another file is there now
        return
    if size is not None and total not in {None, size}:
        part.unlink(missing_ok=True)
        raise RefusedFile(f"{url}: has {total:,} bytes, expected were {size:,}; the server has another file now")
    with writing(part):
        if not begin:
            part.unlink(missing_ok=True)  # before its new origin is noted, or a kill would mix the two
    _fits(part.parent, (total or 0) - begin)
    with writing(part):
        _note(part, Origin(url=url, size=total, validator=_validator(response.headers)))
        file = part.open("r+b" if begin else "wb", buffering=0)  # nothing is left to write when it is closed
    most = total or size or UNANNOUNCED
    with file:
        done = file.seek(begin)
        for block in _blocks(response, url, patience):
            if done + len(block) > most:
                part.unlink()
                raise RefusedFile(f"{url}: sends more than {most:,} bytes; not kept, the server has another file now")
            try:
                with writing(part):
                    _put(file, block)
            except ResourceExhausted:
                if total is None:  # a body without an end would keep the disk full
                    part.unlink()
                raise
            faults.point("download.block")
            done += len(block)
            yield Progress(done, total)
    if total is None:  # the end of the connection is the only end there is
        with writing(part):
            _note(part, Origin(url=url, size=done, validator=None))


def _fits(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DoesNotFit(f"{folder}: {needed:,} bytes are needed, {free:,} are free; free some space")


def _blocks(response: HTTPResponse, url: str, patience: float) -> Iterator[bytes]:
    """The body in blocks.

    Raises:
        ResourceExhausted: fewer than ``SLOWEST`` bytes a second have come for ``patience`` seconds.
    """
    came, since = 0, time.monotonic()
    while block := response.read1(BLOCK):
        yield block
        came += len(block)
        if (seconds := time.monotonic() - since) > patience:
            if came < SLOWEST * seconds:
                raise ResourceExhausted(
                    f"{url}: fewer than {SLOWEST:,} bytes a second come; run the same command again: it resumes"
                )
            came, since = 0, time.monotonic()


def _put(file: FileIO, block: bytes) -> None:
    """All of it, or what the system raises."""
    rest = memoryview(block)
    while rest:
        rest = rest[file.write(rest) :]


def _total(headers: Message, begin: int) -> int | None:
    """Bytes of the whole file, as the server says; a part of it that begins elsewhere is an error."""
    if begin:
        unit, _, told = str(headers.get("Content-Range", "")).partition(" ")
        span, _, whole = told.partition("/")
        if unit != "bytes" or span.partition("-")[0] != str(begin):
            raise HTTPException(f"asked for byte {begin}, the server sent {told or 'no range'}")
        return int(whole) if whole.isdecimal() else None
    length = str(headers.get("Content-Length", ""))
    return int(length) if length.isdecimal() else None


def _complete(url: str, part: Path, size: int | None) -> bool:
    origin = _origin(part)
    if origin is None or origin.url != url or origin.size is None or not part.exists():
        return False
    return part.stat().st_size == origin.size and size in {None, origin.size}


def _validator(headers: Message) -> str | None:
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _origin(part: Path) -> Origin | None:
    """What was noted; nothing of it is trusted that cannot be read."""
    with suppress(RefusedFile, OSError, ValueError, TypeError):
        return Origin(**json.loads(disk.content(_beside(part))))
    return None


def _note(part: Path, origin: Origin) -> None:
    _beside(part).write_text(json.dumps(asdict(origin)), encoding="utf-8")
    faults.point("download.noted")


def _beside(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _lock(part: Path) -> Path:
    return part.with_name(part.name + ".lock")


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"the server says {error.code} {error.reason}"
    if isinstance(error, TimeoutError):
        return "the server went silent"
    return str(getattr(error, "reason", None) or error) or type(error).__name__
