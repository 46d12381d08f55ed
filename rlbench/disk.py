"""Safe reading of untrusted files, and atomic writing: a reader finds the old file or the new one.

Only regular files of a bounded size are opened: a FIFO would wait for ever, a device fills the memory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path
from time import monotonic, sleep, time
from typing import Final
from zlib import crc32

from rlbench import faults
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError


def _host() -> str:
    """Hash of the host's name, of its boot and of the name space of its process ids, where Linux names them."""
    parts = [platform.node()]
    with suppress(OSError):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text("utf-8"), str(Path("/proc/self/ns/pid").readlink())]
    return f"{crc32(''.join(parts).encode()):08x}"


HOST: Final = _host()
DAY: Final = 86_400.0  # seconds
POLL: Final = 0.05  # seconds between two attempts to lock a folder
REMEDIES: Final = {
    errno.EFBIG: "raise `ulimit -f`", errno.EMFILE: "raise `ulimit -n`",
    errno.ENOSPC: "free some space", errno.EDQUOT: "free some space",
    # overlayfs renames no folder of a lower layer
    errno.EXDEV: "a container's image holds it: put a copy of the results in their place (`cp -a`)",
}  # fmt: skip
MAX_BYTES: Final = 2**24  # bytes of a text that describes data: JSON takes some twenty times as much memory


def open_regular(path: Path, *, max_bytes: int | None = None, links: bool = False) -> BufferedReader:
    """Open a regular file for reading; ``links``: a link to one is followed.

    Raises:
        RefusedFile: it is a link, no regular file, or has more than ``max_bytes`` bytes.
        OSError: the system refuses.
    """
    return os.fdopen(_handle(path, os.O_RDONLY | (0 if links else os.O_NOFOLLOW), max_bytes), "rb")


def open_append(path: Path) -> BufferedWriter:
    """Open a regular file for writing at its end; create it where it is missing.

    Raises:
        RefusedFile: it is a link, no regular file, or has a second name: a hard link.
        OSError: the system refuses.
    """
    return os.fdopen(_handle(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, None), "ab")


def walk(folder: Path, onerror: Callable[[OSError], None] | None = None) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a folder as ``os.walk`` does, whose recursion Python 3.11 limits.

    Raises:
        RefusedFile: its folders are nested deeper than that.
    """
    try:
        yield from os.walk(folder, onerror=onerror)
    except RecursionError:
        raise RefusedFile(f"{folder}: has folders nested too deep to read; remove them") from None


def refusal_of_special_file(path: Path) -> RefusedFile:
    """Build the refusal of a link or a special file."""
    what = "is a link, and records are read and written through none" if path.is_symlink() else "is no regular file"
    remedy = "put the file or folder itself in its place; only the folder of --results may be a link"
    return RefusedFile(f"{path}: {what}; {remedy}")


def _handle(path: Path, flags: int, max_bytes: int | None) -> int:
    try:  # without O_NONBLOCK a FIFO would wait for ever
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise refusal_of_special_file(path) from None
        raise
    state = os.fstat(handle)
    refusal = None
    if not stat.S_ISREG(state.st_mode):
        refusal = RefusedFile(f"{path}: is no regular file; put the file itself in its place")
    elif max_bytes is not None and state.st_size > max_bytes:
        refusal = RefusedFile(f"{path}: has {state.st_size:,} bytes, {max_bytes:,} are allowed; restore it")
    elif flags & os.O_APPEND and state.st_nlink > 1:
        what = "has a second name (a hard link), under which it would change as well"
        refusal = RefusedFile(f"{path}: {what}; put a copy of the file in its place")
    if refusal is None:
        return handle
    os.close(handle)
    raise refusal


def temporary_of(path: Path) -> Path:
    """Name this process's temporary file for ``path``, beside it: ``NAME.<host>.<process id>.tmp``."""
    return path.with_name(f"{path.name}.{HOST}.{os.getpid()}.tmp")


def replace(path: Path, raw: bytes, temporary: Path | None = None) -> None:
    """Put ``raw`` in the place of a file by way of ``temporary`` beside it, and wait until the disk has both."""
    temporary = temporary or temporary_of(path)
    sweep(temporary)
    try:
        temporary.unlink(missing_ok=True)  # of a crash or another program: no link is followed
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
    sync(path.parent)


def sweep(temporary: Path) -> None:
    """Remove the temporary files of ``temporary``'s target that killed processes left on this host.

    The processes of another host cannot be seen: its files are removed a day after their last change.
    """
    target = temporary.name.removesuffix(f".{HOST}.{os.getpid()}.tmp")
    name = re.compile(re.escape(target) + r"(?:\.([0-9a-f]{8}))?\.([0-9]{1,9})\.tmp")
    with suppress(OSError):
        for path in temporary.parent.iterdir():
            if not (match := name.fullmatch(path.name)):
                continue
            if not _is_running(int(match[2])) if match[1] == HOST else time() - path.lstat().st_mtime > DAY:
                path.unlink(missing_ok=True)
                faults.point("copy.swept")


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return error.errno == errno.EPERM  # of another user
    return True


def current_folder() -> Path:
    """The current folder.

    Raises:
        UsageError: it was removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder was removed; cd to another") from None


def content(path: Path) -> str:
    """The whole of a small text file.

    Raises:
        RefusedFile: it is no regular file, or has more than ``MAX_BYTES`` bytes.
        OSError: it cannot be read.
    """
    with open_regular(path, max_bytes=MAX_BYTES, links=True) as file:
        return file.read().decode()


def sync(path: Path) -> None:
    """Wait until the disk has a file, or a folder's list of names if it can wait for one."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():  # as vboxsf answers for a folder
            raise
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path, *, patience: float, required: bool = True) -> Iterator[None]:
    """Make ``folder`` and lock it against other writers; it is the lock itself, so that a killed process leaves none.

    Raises:
        UsageError: another process holds the lock for more than ``patience`` seconds, or the disk has no locks and
            one is ``required``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    faults.point("dataset.made")
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            deadline = monotonic() + patience
            while not _try_lock(handle):
                if monotonic() >= deadline:
                    raise UsageError(f"{folder}: another process is writing it; wait for it to finish")
                sleep(POLL)
        except OSError as error:
            if required:
                why = f"cannot be locked ({error.strerror}); choose a folder on a local disk"
                raise UsageError(f"{folder}: {why}, for own data sets with RLBENCH_DATASETS") from None
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Lock an open folder; False while another process holds the lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def refusing(folder: Path, remedy: str = "choose another folder with --results") -> Iterator[None]:
    """Refuse a folder in which the body cannot make or open a file.

    Raises:
        UsageError: the system refused it.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror}); {remedy}") from None


@contextmanager
def writing(path: Path, *, elsewhere: str = "", then: str = "run the same command again: it resumes") -> Iterator[None]:
    """Turn a failed write into one line that names the file; what was there before stays.

    ``elsewhere`` says how another path is chosen (`` with --results``), ``then`` what is done once there is space.

    Raises:
        UsageError: its folder cannot be written, it is a folder itself, or its name is too long or a link to itself.
        ResourceExhausted: the disk is full or failed, or the file is larger than ``ulimit -f`` allows.
    """
    try:
        yield
    except PermissionError:
        raise UsageError(f"{path.parent}: cannot be written; choose another folder{elsewhere}") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a folder; name a file") from None
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{path.parent}: is no folder; choose another{elsewhere}") from None
    except FileNotFoundError:
        raise ResourceExhausted(f"{path}: its folder is gone; put it back and {then}") from None
    except OSError as error:
        if error.errno in {errno.EROFS, errno.EBADF, errno.ELOOP, errno.ENAMETOOLONG}:
            raise UsageError(f"{path}: {error.strerror}; choose another path{elsewhere}") from None
        remedy = REMEDIES.get(error.errno or 0, "check the disk")
        raise ResourceExhausted(f"{path}: {error.strerror or error}; {remedy} and {then}") from None
