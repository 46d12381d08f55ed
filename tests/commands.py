"""Commands in the tests' own process, as a user types them."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from itertools import count

import pytest

from rlbench import faults
from rlbench.cli.app import main

TRACEBACK = re.compile(r"^Traceback .*?^(?=rlbench: )", re.MULTILINE | re.DOTALL)


def run_command(words: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command; a bug fails at once, with its traceback."""
    code, out, error = _run(["--debug", *words])
    assert code != 1, error
    error = TRACEBACK.sub("", error)
    lines = [line for line in error.splitlines() if line.startswith("rlbench: ")]
    assert code == 0 or lines or out, f"exit code {code} without a word"
    return code, out, error


class Killed(BaseException):
    """The process ends here."""


def killed_at(monkeypatch: pytest.MonkeyPatch, pass_number: int, work: Callable[[], object]) -> bool:
    """End ``work`` at its n-th pass by a fault point; return True if it comes so far."""
    passes = count()

    def point(_: str) -> None:
        if next(passes) == pass_number:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(faults, "point", point)
        try:
            work()
        except Killed:
            return True
    return False


def screen_of(terminal: int) -> str:
    """Everything that a process writes to a pseudo-terminal until it closes its end."""
    screen = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(terminal, 65536):
            screen += part
    os.close(terminal)
    return screen.decode().replace("\r\n", "\n")


def stdout_of(words: Sequence[str], code: int = 0) -> str:
    """The stdout of a command that must exit with ``code``."""
    actual, out, error = _run(words)
    assert actual == code, error
    return out


def stderr_of(words: Sequence[str], code: int = 2) -> str:
    """The stderr of a command that must exit with ``code``."""
    actual, _, error = _run(words)
    assert actual == code, error
    return error


def refusal_of(words: Sequence[str]) -> str:
    """The stdout and stderr of a command that must exit with 2."""
    code, out, error = _run(words)
    assert code == 2, (code, out, error)
    return out + error


def _run(words: Sequence[str]) -> tuple[int, str, str]:
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        code = main(list(words))
    return code, out.getvalue(), error.getvalue()
