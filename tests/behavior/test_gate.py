"""The gate on trained runs: a tenfold learning rate regresses, and an unchanged rerun passes."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rlbench.cli.app import main
from rlbench.report import baseline
from tests.commands import stderr_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RECORDS = Path(__file__).parents[2] / "results/toy/a2c/Catch"
CELL = ("toy", "a2c", "--task", "Catch", "--quiet")


def without_speeds(path: Path) -> None:
    """Remove the speeds of a baseline: they depend on how busy the machine is."""
    saved = baseline.read_baseline(path)
    assert all(entry.speeds for entry in saved.cells)
    cells = tuple(replace(entry, speeds={}) for entry in saved.cells)
    path.write_text(baseline.baseline_text(replace(saved, cells=cells)))


def test_tenfold_learning_rate_exits_3_and_an_unchanged_rerun_exits_0(tmp_path: Path) -> None:
    base = str(tmp_path / "base.json")
    before, again, broken = (str(tmp_path / name) for name in ("before", "again", "broken"))
    shutil.copytree(RECORDS, tmp_path / "before/toy/a2c/Catch")
    assert main(["baseline", "save", base, "--results", before]) == 0
    without_speeds(Path(base))
    assert main(["run", *CELL, "--seeds", "110-112", "--results", again]) == 0
    assert main(["check", "toy", "--baseline", base, "--results", again, "--other-machine"]) == 0
    assert main(["run", *CELL, "--seeds", "10-12", "--set", "algo.lr=0.05", "--results", broken]) == 0  # ten times 5e-3
    assert "toy/a2c/Catch score: REGRESSED" in stderr_of(
        f"check toy --baseline {base} --results {broken} --other-machine", 3
    )
