"""Where results go: stdout, whole, and quietly when the reader has left. Everything else goes to stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

import typer

from rlbench import disk
from rlbench.config.names import printable
from rlbench.errors import UsageError

BROKEN_PIPE = 141
"""128 + SIGPIPE: what a shell reports for every tool whose reader closed the pipe."""


def emit(text: str) -> None:
    """Write to stdout and be sure it arrived."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None
    except (OSError, AttributeError) as error:
        raise UsageError(f"stdout: cannot be written ({getattr(error, 'strerror', None) or 'it is closed'})") from None


def emit_json(document: Mapping[str, object]) -> None:
    """Write one JSON document; keys stay in the order they were given."""
    emit(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


def write_file(path: Path, content: str | bytes, option: str = "--output") -> None:
    """Write a file whole or not at all; a device or a pipe is written to, never replaced.

    Raises:
        UsageError: it cannot be written there.
        ResourceExhausted: the disk is full.
    """
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: {path.parent} is not a folder; make it first")
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; name a file")
    raw, path = content.encode() if isinstance(content, str) else content, path.resolve()
    with disk.writing(path, elsewhere=f" with {option}", then="run the same command again"):
        if path.exists() and not path.is_file():
            path.write_bytes(raw)
        else:
            disk.replace(path, raw, path.with_name(f"{path.name}.{os.getpid()}.tmp"))


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is, or None: what a pipe or a file gets is never folded."""
    try:
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    except (AttributeError, ValueError):  # closed, which ``emit`` will tell
        return None


def remark(message: str) -> None:
    """One line on stderr that is no error."""
    _aside(_one_line(message))


def complain(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    _aside(f"rlbench: {_one_line(message)}")


def tolerate_narrow_encodings() -> None:
    """A terminal that cannot show ≈ or 84×84 gets a question mark, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _aside(line: str) -> None:
    """A line on stderr, or nowhere when nobody listens: a lost terminal must not end a run."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _one_line(message: str) -> str:
    """The message without line breaks, and without the escape codes that a name or a file may have brought along."""
    return printable(message, len(message))
