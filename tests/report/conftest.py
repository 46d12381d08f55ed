"""Records of several seeds, and where they lie."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rlbench.report.cells import Cell, every_cell
from tests.conftest import RecordRun

RESULTS = Path(__file__).parents[2] / "results"
"""The committed records."""

RecordSeeds = Callable[..., list[Path]]


@pytest.fixture
def record_seeds(record_run: RecordRun) -> RecordSeeds:
    """Writes a run for each list of evaluation means, its seeds from ``start`` on."""

    def write(*means: Sequence[float], start: int = 0, **words: object) -> list[Path]:
        return [record_run(row, seed=seed, **words) for seed, row in enumerate(means, start)]

    return write


@pytest.fixture(scope="session")
def mujoco_cells() -> tuple[Cell, ...]:
    """The cells of the committed records."""
    return every_cell(["mujoco"], RESULTS)
