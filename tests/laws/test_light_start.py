"""Cheap start-up: commands that only read and print work without torch and emulators."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.laws.layers import HEAVY
from tests.laws.source import ROOT

SLOW_TO_START = {"numpy", "scipy", "pandas", "matplotlib", "h5py"}  # not heavy, but too slow for a help page

# A name bound to None in sys.modules cannot be imported.
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys({missing!r}))
sys.argv = ["rlbench", *{arguments!r}]
runpy.run_module("rlbench", run_name="__main__", alter_sys=True)
"""

PONG = ("atari", "dqn", "PongNoFrameskip-v4")
READING = [
    ("list", "suites"), ("list", "algos"), ("list", "tasks"), ("show", *PONG), ("show", *PONG, "--json"),
    ("table", "atari"), ("table", "atari", "--format", "json"), ("status",), ("verify", str(ROOT / "results" / "toy")),
    ("data", "list"),
]  # fmt: skip


def rlbench(folder: Path, *arguments: str, missing: set[str]) -> subprocess.CompletedProcess[str]:
    """Run the command line in an empty folder, in a Python without the packages ``missing``."""
    command = [sys.executable, "-c", WITHOUT.format(missing=sorted(missing), arguments=arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("--help",), ("run", "--help"), ("table", "--help"), ("data", "--help"), ("--version",)], ids=" ".join
)
def test_help_needs_nothing_that_takes_long_to_import(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = rlbench(tmp_path, *arguments, missing=HEAVY | SLOW_TO_START)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_needs_neither_torch_nor_an_emulator(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = rlbench(tmp_path, *arguments, missing=HEAVY)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_blocked_imports_are_really_blocked(tmp_path: Path) -> None:
    done = rlbench(tmp_path, "run", "toy", "dqn", "--task", "Catch", "--smoke", missing=HEAVY)
    assert done.returncode != 0
