"""Cheap start-up: help needs nothing that is slow to import; tests/reliability/test_output.py has the queries."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.laws.layers import HEAVY

SLOW_TO_START = {"numpy", "scipy", "pandas", "matplotlib", "h5py"}  # not heavy, but too slow for a help page

# A name bound to None in sys.modules cannot be imported.
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys({missing!r}))
sys.argv = ["rlbench", *{arguments!r}]
runpy.run_module("rlbench", run_name="__main__", alter_sys=True)
"""


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
def test_blocked_imports_are_really_blocked(tmp_path: Path) -> None:
    done = rlbench(tmp_path, "run", "toy", "dqn", "--task", "Catch", "--smoke", missing=HEAVY)
    assert done.returncode != 0
