"""The tables that are committed are those that the committed records give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("suite", ["atari", "mujoco", "offline", "goals", "toy"])
def test_a_committed_table_is_current(suite: str) -> None:
    words = [sys.executable, "-m", "rlbench", "table", suite, "--results", str(RESULTS), "--format", "md"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    committed = (RESULTS / "tables" / f"{suite}.md").read_text(encoding="utf-8")
    assert committed.rstrip("\n") == done.stdout.rstrip("\n"), "run scripts/tables and commit what it writes"
