"""Output: complete results go to stdout, everything else to stderr."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from io import TextIOWrapper
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from rlbench import disk
from rlbench.config.names import count_text, in_ascii, printable
from rlbench.errors import UsageError

if TYPE_CHECKING:
    from rlbench.report.reference_table import CellKey
    from rlbench.report.run_index import Runs

STDOUT, STDERR = 1, 2  # file descriptors
LINKS = 40  # as many as Linux follows
MAX_DESCRIPTOR = 2**31 - 1
_streams: list[TextIO] = []  # stdout while a verb runs
BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell reports it when the reader has closed the pipe


@contextmanager
def stdout_for_results(*, ends: bool) -> Iterator[None]:
    """Give results a copy of stdout, and lead file descriptor 1 to stderr: compiled libraries print there.

    They do so with ``MKL_VERBOSE=1``. A stream that a program has put in the place of stdout stays. Where the process
    ``ends`` with the command, stdout leads to stderr from then on: exit handlers of libraries and plug-ins print, too.
    """
    stream = sys.stdout
    if not isinstance(stream, TextIOWrapper) or stream is not sys.__stdout__ or stream.fileno() != STDOUT:
        yield
        return
    copy = os.fdopen(
        fcntl.fcntl(STDOUT, fcntl.F_DUPFD_CLOEXEC, STDERR + 1), "w", encoding=stream.encoding, errors=stream.errors
    )
    try:
        os.dup2(STDERR, STDOUT)
    except OSError:  # stderr is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
    sys.stdout = copy
    try:
        yield
    finally:
        sys.stdout = stream
        with suppress(OSError):
            copy.flush()
        if not ends:
            os.dup2(copy.fileno(), STDOUT)
        with suppress(OSError):
            copy.close()


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Lead to stderr what packages, environments and their threads print; results alone go to stdout.

    Stdout is one for all threads, so that a verb in another thread than the main one, or within a verb, leaves it.
    """
    if _streams or threading.current_thread() is not threading.main_thread():
        yield
        return
    _streams.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _streams.clear()


def results_stream() -> TextIO:
    """Stdout, also where ``prints_to_stderr`` holds."""
    return _streams[0] if _streams else sys.stdout


def print_text(text: str | bytes) -> None:
    """Write to stdout and flush; a failed write is an error."""
    stdout = results_stream()
    try:
        if isinstance(text, bytes):
            stdout.buffer.write(text)
        else:
            stdout.write(text if text.endswith("\n") else text + "\n")
        stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None
    except (OSError, AttributeError) as error:
        raise UsageError(f"stdout: cannot be written ({getattr(error, 'strerror', None) or 'it is closed'})") from None


def print_result(document: Mapping[str, object], text: str, *, json: bool) -> None:
    """Emit a text for people, or with ``json`` the document for scripts; ``report/data/schema`` has its schema."""
    out = dumps({"schema_version": 1, **document}, indent=2, allow_nan=False, ensure_ascii=False) if json else text
    print_text(escaped(out))


def escaped(text: str) -> str:
    """Lines of text whose signs all print."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else dumps(sign)[1:-1] for sign in text)


def one_line(text: str) -> str:
    """Text of one line: line breaks and tabs, as foreign names of files may have, are escaped."""
    return escaped(text).replace("\n", "\\n").replace("\t", "\\t")


def check_output_path(path: Path, option: str) -> None:
    """Refuse a path that is a folder, a link or a file of a record, or whose folder is missing."""
    from rlbench.records.files import refuse_record_file

    refuse_record_file(path, option)
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: {path.parent} is not a folder; make it first")
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; name a file")
    if path.is_symlink() and _open_file(path) is None:  # the folder may come from anybody, and git keeps links
        raise UsageError(f"{option} {path}: is a link; name the file itself, or remove it")


def refuse_same_file(path: Path | None, option: str, *others: Path | None) -> None:
    """Refuse an output that is one of ``others``, which the command also reads or writes, or a file of references."""
    from rlbench.report.reference_files import reference_files

    if path is None or (path.exists() and not path.is_file()):
        return
    place, *sources = (Path(os.path.realpath(p)) for p in (path, *others, *reference_files()) if p is not None)
    if place in sources or any(place.exists() and other.exists() and place.samefile(other) for other in sources):
        raise UsageError(f"{option} {path}: the command reads or writes this file already; name another")


def write_file(path: Path, content: str | bytes, option: str = "--output", *, append: bool = False) -> None:
    """Write a file, or ``append`` to it, whole or not at all; no device, pipe or open file is replaced.

    Raises:
        UsageError: it cannot be written there.
        ResourceExhausted: the disk is full.
    """
    if (open_file := _open_file(path)) == STDOUT:
        print_text(content)
        return
    check_output_path(path, option)
    raw = content.encode() if isinstance(content, str) else content
    with disk.writing(path, elsewhere=f" with {option}", then="run the same command again"):
        if open_file is not None:
            with os.fdopen(os.dup(open_file), "wb") as stream:
                stream.write(raw)
            return
        if path.exists() and not path.is_file():
            path.write_bytes(raw)
        else:
            former = path.read_bytes() if append and path.exists() else b""
            disk.replace(path, former + raw)


def _open_file(path: Path) -> int | None:
    """The number of this process's open file that ``/dev/stdout`` or ``/dev/fd/N`` names, also by links; else None."""
    for _ in range(LINKS):
        process = re.fullmatch(r"/proc/(\d+)(/task/\d+)?/fd", os.path.realpath(path.parent))
        if process and path.name.isdecimal():
            return min(int(path.name), MAX_DESCRIPTOR) if int(process[1]) == os.getpid() else None
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def terminal_width() -> int | None:
    """Columns of stdout's terminal; None for a pipe or a file, where no line is folded."""
    return _terminal_size("COLUMNS", 0)


def terminal_height() -> int | None:
    """Lines of stdout's terminal; None where it states none."""
    return _terminal_size("LINES", 1)


def _terminal_size(name: str, index: int) -> int | None:
    stdout = results_stream()
    try:
        if not stdout.isatty():
            return None
        value = os.environ.get(name, "")
        size = int(value) if value.isdecimal() else os.get_terminal_size(stdout.fileno())[index]
    except (AttributeError, ValueError, OSError):  # closed; ``print_text`` reports it
        return None
    return size or None  # a serial line or a container's terminal may state 0


def print_note(message: str) -> None:
    """Write a line to stderr that is no error."""
    write_line(printable(message, len(message)))


def print_left_out(cells: Mapping[CellKey, Runs], **reasons: str) -> None:
    """Count the runs of each part that has no score, and of those in ``reasons``, on stderr; imported curves aside."""
    from rlbench.report.run_index import LEFT_OUT

    for part, reason in {**reasons, **LEFT_OUT}.items():
        if count := sum(sum(not run.origin for run in getattr(runs, part)) for runs in cells.values()):
            print_note(f"{count_text(count, 'run')} {reason}: left out")


def print_error(message: str) -> None:
    """Write an error to stderr, as one line."""
    write_line(f"rlbench: {printable(message, len(message))}")


def tolerate_narrow_encodings() -> None:
    """Let a terminal that cannot show ≥ or 84×84 show >= or 84x84, and a question mark for other signs."""
    codecs.register_error("rlbench", in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="rlbench")


def write_line(line: str) -> None:
    """Write a line to stderr, unless it is closed: a lost terminal must not end a run."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
