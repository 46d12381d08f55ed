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


def test_readme_shows_what_ran_of_ppo_as_the_committed_table_has_it() -> None:
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    shown = readme.split("<!-- begin: what ran of PPO on MuJoCo -->\n")[1].split("\n<!-- end -->")[0].splitlines()
    table = (RESULTS / "tables" / "mujoco.md").read_text(encoding="utf-8").splitlines()
    ran = [row for row in table if row.startswith("| ppo |") and "NOT RUN" not in row]
    assert shown == [*table[:2], *ran], "run scripts/tables and commit what it writes"
    assert len(ran) >= 4


def test_the_committed_results_page_is_current(tmp_path: Path) -> None:
    words = ["report", "--results", str(RESULTS), "--output", str(tmp_path / "page.md")]
    subprocess.run([sys.executable, "-m", "rlbench", *words], capture_output=True, check=True, timeout=120)
    committed = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert committed == (tmp_path / "page.md").read_text(encoding="utf-8"), (
        "run scripts/tables and commit what it writes"
    )
