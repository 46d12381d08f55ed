"""The committed records, and their cells."""

from pathlib import Path

import pytest

from rlbench.report.cells import Cell, every_cell

RESULTS = Path(__file__).parents[2] / "results"
"""The committed records."""


@pytest.fixture(scope="session")
def mujoco_cells() -> tuple[Cell, ...]:
    """The cells of the committed records."""
    return every_cell(["mujoco"], RESULTS)
