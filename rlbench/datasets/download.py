"""Download into a ``.part`` file, with resume; the final name appears with the whole file only.

Size and ETag of the file are stored beside the part, so that a resume never joins halves of different files.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from email.message import Message
from functools import partial
from http.client import BadStatusLine, HTTPException, HTTPMessage, HTTPResponse
from io import FileIO
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import IO, Final, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from filelock import FileLock, Timeout

from rlbench import __version__, disk, faults
from rlbench.config.names import printable
from rlbench.disk import writing
from rlbench.errors import DoesNotFit, RefusedFile, ResourceExhausted, UsageError

BLOCK = 1 << 18
ATTEMPTS = 4  # idle connections in a row, of fewer than SLOWEST new bytes a second, before the download stops
PAUSE = 1.0  # seconds of pause for each idle connection in a row
PATIENCE = 30.0  # seconds without a byte of the body after which a connection is closed
OPENING: Final = 4  # multiples of PATIENCE for a request: several addresses, redirects and headers
SLOWEST = 1024  # bytes a second, over PATIENCE, below which the download stops
UNKNOWN_SIZE = 1 << 33  # most bytes of a file whose size the server does not announce
DIGITS = 20  # digits of an announced size that count: no disk holds as many bytes
ResultT = TypeVar("ResultT")


class DownloadProgress(NamedTuple):
    """Bytes so far, and in all where the server announces them."""

    done: int
    total: int | None


class RemoteFile(NamedTuple):
    """File on the server that a part belongs to."""

    url: str
    size: int | None  # bytes
    validator: str | None  # ETag or date of the file on the server


def part_of(target: Path) -> Path:
    """Path of the partial file."""
    return target.with_name(target.name + ".part")


def fetch_file(
    url: str, target: Path, *, size: int | None = None, patience: float = PATIENCE
) -> Iterator[DownloadProgress]:
    """Download into ``part_of(target)``, which is complete when this is exhausted; ``size`` in bytes, where known.

    The caller holds ``locked_download(target)``.

    Raises:
        UsageError: the address is wrong, or the file does not fit on the disk.
        RefusedFile: the server offers a file of another size.
        ResourceExhausted: the server or the disk failed; the same call resumes.
    """
    if not _is_address(url):
        raise UsageError(f"{printable(url)}: not an http address; give one")
    part, idle, longest = part_of(target), 0, 0
    while not _complete(url, part, size):
        time.sleep(PAUSE * idle)
        since, reason = time.monotonic(), "the connection was cut"
        try:
            yield from _attempt(url, part, size, patience)
        except (OSError, HTTPException) as error:  # errors of the disk are raised as ResourceExhausted already
            reason = _reason(error)
        size_now = part.stat().st_size if part.exists() else 0
        least = SLOWEST * max(1.0, time.monotonic() - since)
        idle, longest = (0, size_now) if size_now >= longest + least else (idle + 1, longest)
        if idle == ATTEMPTS and not _complete(url, part, size):
            raise ResourceExhausted(f"{url}: {reason} after {size_now:,} bytes; run the same command again: it resumes")


@contextmanager
def locked_download(target: Path) -> Iterator[None]:
    """Lock a download against other processes, from its first byte to its final name.

    Raises:
        UsageError: another process holds the lock, or the folder cannot be written.
        ResourceExhausted: the disk failed; the same call resumes.
    """
    part = part_of(target)
    lock = _sidecar(part, ".lock")
    with writing(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        if lock.is_symlink() or lock.is_dir():
            raise UsageError(f"{lock}: is no regular file; remove it")
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
        if error.errno in {errno.ENOLCK, errno.EOPNOTSUPP}:
            raise UsageError(f"{part.parent}: cannot be locked; choose a folder on another disk") from None
        raise ResourceExhausted(f"{part}: {error.strerror or error}; run the same command again: it resumes") from None


def discard(target: Path) -> None:
    """Remove the partial file and its metadata."""
    part = part_of(target)
    for path in (part, _sidecar(part), _sidecar(part, ".lock")):
        path.unlink(missing_ok=True)
        faults.point("download.discarded")


def complete(target: Path) -> None:
    """Rename the whole part to its final name."""
    with writing(target):
        with part_of(target).open("rb") as file:
            os.fsync(file.fileno())
        part_of(target).replace(target)
    faults.point("download.settled")
    discard(target)


def _attempt(url: str, part: Path, size: int | None, patience: float) -> Iterator[DownloadProgress]:
    """Download by one connection, from the end of the part or from the beginning."""
    origin = _origin(part)
    validator = origin.validator if origin is not None and origin.url == url else None
    begin = part.stat().st_size if validator is not None else 0
    headers = {"User-Agent": f"rlbench/{__version__}", "Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={begin}-", "If-Range": validator} if begin and validator is not None else {}
    try:
        request = Request(url, headers=headers)  # noqa: S310 - http, see above
        response = _with_timeout(OPENING * patience, partial(urlopen, request, timeout=patience))
    except HTTPError as error:
        error.close()
        if error.code == 416 and begin:  # the file on the server has changed
            part.unlink(missing_ok=True)
            return
        if error.code in {408, 425, 429} or error.code >= 500:
            raise
        raise UsageError(f"{url}: {_reason(error)}; check the name, or the mirror") from None
    with response:
        yield from _receive(response, url, part, begin, size, patience)


def _receive(
    response: HTTPResponse, url: str, part: Path, begin: int, size: int | None, patience: float
) -> Iterator[DownloadProgress]:
    begin = begin if response.status == 206 else 0  # 200: the server begins anew
    origin = _origin(part)
    total = _total(response.headers, begin, origin.size if origin else None)
    tag = response.headers.get("ETag")
    validator = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")
    other_size = origin is not None and origin.size not in {None, total}
    if begin and (other_size or validator not in {None, origin and origin.validator}):
        part.unlink()  # the file on the server has changed
        return
    if size is not None and total not in {None, size}:
        part.unlink(missing_ok=True)
        raise RefusedFile(f"{url}: has {total:,} bytes, expected were {size:,}; the server has another file now")
    with writing(part):
        if not begin:
            part.unlink(missing_ok=True)  # before its new origin is stored, or a kill would mix the two
    if (size_left := (total or 0) - begin) > (free := shutil.disk_usage(part.parent).free):
        raise DoesNotFit(f"{part.parent}: {size_left:,} bytes are needed, {free:,} are free; free some space")
    with writing(part):
        # The server may omit the validator of a range; ``If-Range`` has confirmed the stored one.
        known_validator = validator or (origin.validator if begin and origin else None)
        _write_origin(part, RemoteFile(url=url, size=total, validator=known_validator))
        file = part.open("r+b" if begin else "wb", buffering=0)  # so that closing writes nothing
    most = total or size or UNKNOWN_SIZE
    with file:
        done = file.seek(begin)
        for block in _blocks(response, url, patience):
            if done + len(block) > most:
                part.unlink()
                raise RefusedFile(f"{url}: sends more than {most:,} bytes; not kept, the server has another file now")
            try:
                with writing(part):
                    _write_block(file, block)
            except ResourceExhausted:
                if total is None:  # a body without a length would keep the disk full
                    part.unlink()
                raise
            faults.point("download.block")
            done += len(block)
            yield DownloadProgress(done, total)
    if total is None:  # the connection ends the file
        with writing(part):
            _write_origin(part, RemoteFile(url=url, size=done, validator=None))


def _blocks(response: HTTPResponse, url: str, patience: float) -> Iterator[bytes]:
    """Yield the body in blocks; stop where fewer than ``SLOWEST`` bytes a second come for ``patience`` seconds."""
    received_bytes, since = 0, time.monotonic()
    while block := _read(response, patience):
        yield block
        received_bytes += len(block)
        if (seconds := time.monotonic() - since) > patience:
            if received_bytes < SLOWEST * seconds:
                raise ResourceExhausted(
                    f"{url}: fewer than {SLOWEST:,} bytes a second come; run the same command again: it resumes"
                )
            received_bytes, since = 0, time.monotonic()


def _read(response: HTTPResponse, patience: float) -> bytes:
    try:
        return _with_timeout(patience, partial(response.read1, BLOCK))
    except TimeoutError:
        with suppress(OSError, ValueError, AttributeError), socket.socket(fileno=os.dup(response.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)  # or closing the response would wait for the other thread
        raise


def _with_timeout(seconds: float, work: Callable[[], ResultT]) -> ResultT:
    """Do ``work`` in another thread: with a byte from time to time a socket's own timeout never passes.

    Raises:
        TimeoutError: it takes longer.
    """
    future: Future[ResultT] = Future()
    Thread(target=_run_into, args=(future, work), daemon=True).start()
    try:
        return future.result(seconds)
    finally:
        del future  # its error would hold it, and with it the connection


def _run_into(future: Future[ResultT], work: Callable[[], ResultT]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        future.set_exception(error)
    del future


def _write_block(file: FileIO, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[file.write(rest) :]


def _total(headers: Message, begin: int, origin_size: int | None = None) -> int | None:
    """Size of the whole file by the headers, or ``origin_size`` for ``/*``; a range with another begin is an error."""
    if begin:
        unit, _, value = str(headers.get("Content-Range", "")).partition(" ")
        span, _, whole = value.partition("/")
        if unit != "bytes" or span.partition("-")[0] != str(begin):
            raise HTTPException(f"requested byte {begin}, the server sent {value or 'no range'}")
        return int(whole[:DIGITS]) if whole.isdecimal() else origin_size
    length = str(headers.get("Content-Length", ""))
    return int(length[:DIGITS]) if length.isdecimal() else None


def _is_address(url: str) -> bool:
    with suppress(ValueError):  # of the host or the port
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and parts.port != 0 and url.isprintable() and " " not in url
    return False


def _complete(url: str, part: Path, size: int | None) -> bool:
    origin = _origin(part)
    if origin is None or origin.url != url or origin.size is None:
        return False
    return part.stat().st_size == origin.size and size in {None, origin.size}


def _origin(part: Path) -> RemoteFile | None:
    """Read the stored origin; None where it is missing or damaged, or the part is the file of another name."""
    with suppress(RefusedFile, OSError, ValueError, TypeError, AttributeError, RecursionError):
        origin, state = RemoteFile(**json.loads(disk.content(_sidecar(part)))), part.lstat()
        plain = origin.validator is None or (origin.validator.isascii() and origin.validator.isprintable())
        if plain and type(origin.size) in {int, type(None)} and stat.S_ISREG(state.st_mode) and state.st_nlink == 1:
            return origin
    return None


def _write_origin(part: Path, origin: RemoteFile) -> None:
    disk.replace(_sidecar(part), json.dumps(origin._asdict()).encode())
    faults.point("download.noted")


def _sidecar(part: Path, suffix: str = ".json") -> Path:
    return part.with_name(part.name + suffix)


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"the server says {error.code} {printable(str(error.reason), 100)}"
    if isinstance(error, BadStatusLine):
        return "no answer of a web server"
    if isinstance(error, TimeoutError):
        return "the server went silent"
    return str(getattr(error, "reason", None) or error) or type(error).__name__


class PublicRedirects(HTTPRedirectHandler):
    """Follow a redirect to a private address only from a private address, as of a mirror."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Return the redirected request.

        Raises:
            RefusedFile: it leads from a public address to a private one.
        """
        host = urlsplit(newurl).hostname or ""
        if private(host) and not private(urlsplit(f"//{req.origin_req_host}").hostname or ""):
            raise RefusedFile(f"{req.full_url}: redirects to {host}, an address of a private network; choose a mirror")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def urlopen(request: Request, timeout: float) -> HTTPResponse:
    """Open a request, following the redirects that ``PublicRedirects`` allows."""
    try:
        answer = build_opener(PublicRedirects).open(request, timeout=timeout)
    except ValueError as error:  # urllib raises it for a redirect without an address
        raise URLError(f"the server redirects to no address ({error})") from None
    if not isinstance(answer, HTTPResponse):
        raise URLError("no answer of a web server")
    return answer


def private(host: str) -> bool:
    """True if a host has a loopback, link-local or otherwise not public address."""
    try:
        addresses = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return any(not ip_address(str(address[0]).partition("%")[0]).is_global for *_, address in addresses)
