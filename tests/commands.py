"""Commands in the tests' own process, as a user types them, and in processes of their own."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from itertools import count
from pathlib import Path
from typing import Any

from rlbench import faults
from rlbench.cli.app import main
from rlbench.cli.resolve import resolve
from rlbench.records.store import folder_of
from tests.conftest import Patch
from tests.schemas import check_document

RLBENCH = (sys.executable, "-m", "rlbench")
TRACEBACK = re.compile(r"^Traceback .*?^(?=rlbench: )", re.MULTILINE | re.DOTALL)
HEARING = (  # a suite that runs in the background ignores SIGINT, and so would its children
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rlbench.cli.app import main; sys.exit(main(sys.argv[1:]))"
)
"""The command line as a program for ``python -c``."""

TINY = (
    "budget.steps=600", "budget.epoch=200", "budget.segment=200", "algo.learning_starts=100", "algo.batch=8",
    "protocol.episodes=8", "protocol.envs=8", "algo.replay.capacity=400",
)  # fmt: skip
"""Settings of a run of Catch with four epochs, in about a second."""

Words = str | Sequence[str]
"""A command's words, or the line of them."""


def tiny_run(results: Path, *more: str) -> list[str]:
    """A command that trains Catch by ``TINY``."""
    fixed = ["run", "toy", "dqn", "--task", "Catch", "--device", "cpu", "--results", str(results)]
    return [*RLBENCH, *fixed, *(word for setting in TINY for word in ("--set", setting)), *more]


def tiny_folder(results: Path, seed: int = 0) -> Path:
    """The folder of its run."""
    return folder_of(resolve("toy", "dqn", "Catch", seed=seed, sets=TINY).spec, results)


def run_command(words: Words) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command; a bug fails at once, with its traceback."""
    code, out, error = _run(["--debug", *_split(words)])
    assert code != 1, error
    error = TRACEBACK.sub("", error)
    lines = [line for line in error.splitlines() if line.startswith("rlbench: ")]
    assert code == 0 or lines or out, f"exit code {code} without a message"
    return code, out, error


class Killed(BaseException):
    """The process ends here."""


def killed_at(monkeypatch: Patch, pass_number: int, work: Callable[[], object]) -> bool:
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
    return screen.decode(errors="replace").replace("\r\n", "\n")


def stdout_of(words: Words, code: int = 0) -> str:
    """The stdout of a command that must exit with ``code``."""
    actual, out, error = _run(words)
    assert actual == code, error
    return out


def stderr_of(words: Words, code: int = 2) -> str:
    """The stderr of a command that must exit with ``code``."""
    actual, _, error = _run(words)
    assert actual == code, error
    return error


def json_of(words: Words, code: int = 0) -> dict[str, Any]:
    """The document that a command prints."""
    document: dict[str, Any] = json.loads(stdout_of(words, code))
    return document


def line_of_refusal(words: Words) -> str:
    """The stderr of a command that exits with 2 after one line, and prints nothing else."""
    code, out, error = _run(words)
    assert (code, out, error.count("\n")) == (2, "", 1), (code, out, error)
    return error


def refusal_of(words: Words) -> str:
    """The stdout and stderr of a command that must exit with 2."""
    code, out, error = _run(words)
    assert code == 2, (code, out, error)
    return out + error


def run_process(
    words: Sequence[str], *, cwd: Path | None = None, timeout: float = 120, **environ: str
) -> subprocess.CompletedProcess[str]:
    """The end of a process that has further variables in its environment."""
    return subprocess.run(
        words, cwd=cwd, env=os.environ | environ, timeout=timeout, capture_output=True, text=True, check=False
    )


def _split(words: Words) -> list[str]:
    return words.split() if isinstance(words, str) else list(words)


def _run(words: Words) -> tuple[int, str, str]:
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        code = main(_split(words))
    if "--json" in words and out.getvalue():
        check_document(_split(words), out.getvalue())
    return code, out.getvalue(), error.getvalue()
