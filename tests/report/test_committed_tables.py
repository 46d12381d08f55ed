"""The tables that are committed are those that the committed records give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlbench.report.markdown_summary import with_reproduced
from rlbench.report.sources import Sources

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("suite", ["atari", "mujoco", "offline", "goals", "toy"])
def test_a_committed_table_is_current(suite: str) -> None:
    words = [sys.executable, "-m", "rlbench", "table", suite, "--results", str(RESULTS), "--format", "md"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    committed = (RESULTS / "tables" / f"{suite}.md").read_text(encoding="utf-8")
    assert committed.rstrip("\n") == done.stdout.rstrip("\n"), "run scripts/tables and commit what it writes"


def test_readme_shows_what_was_reproduced() -> None:
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert with_reproduced(readme, Sources(RESULTS)) == readme, "run scripts/tables and commit what it writes"
    assert readme.count("\n| ") > 10


def test_the_committed_results_page_is_current(tmp_path: Path) -> None:
    words = ["report", "--results", str(RESULTS), "--output", str(tmp_path / "page.md")]
    subprocess.run([sys.executable, "-m", "rlbench", *words], capture_output=True, check=True, timeout=120)
    committed = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert committed == (tmp_path / "page.md").read_text(encoding="utf-8"), (
        "run scripts/tables and commit what it writes"
    )
