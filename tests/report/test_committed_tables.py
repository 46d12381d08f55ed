"""The committed tables are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlbench.cli.app import main
from rlbench.report.markdown_summary import with_reproduced
from rlbench.report.sources import Sources

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("suite", ["atari", "mujoco", "offline", "goals", "toy"])
def test_a_committed_table_is_current(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", suite, "--results", str(RESULTS), "--format", "md"]) == 0
    committed = (RESULTS / "tables" / f"{suite}.md").read_text(encoding="utf-8")
    assert committed.rstrip("\n") == capsys.readouterr().out.rstrip("\n"), "run scripts/tables and commit its output"


def test_readme_shows_what_was_reproduced() -> None:
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert with_reproduced(readme, Sources(RESULTS)) == readme, "run scripts/tables and commit what it writes"
    assert readme.count("\n| ") > 10
    tables = "".join((RESULTS / "tables" / f"{suite}.md").read_text(encoding="utf-8") for suite in ("atari", "mujoco"))
    on_track = len(re.findall(r"\| ON TRACK @", tables))
    assert f" cells have a verdict: {on_track} on track, " in readme


def test_the_committed_results_page_is_current(tmp_path: Path) -> None:
    assert main(["report", "--results", str(RESULTS), "--output", str(tmp_path / "page.md")]) == 0
    committed = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert committed == (tmp_path / "page.md").read_text(encoding="utf-8"), (
        "run scripts/tables and commit what it writes"
    )
