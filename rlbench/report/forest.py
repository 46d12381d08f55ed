"""A forest plot: one row per cell with its difference from the reference score, at 0, and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rlbench.report.estimate import mean
from rlbench.report.figure_style import empty_figure
from rlbench.report.reference_scores import SHARE, matching
from rlbench.report.reference_table import on_scale, scale_of, task_name
from rlbench.report.tables import STYLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlbench.report.cells import Cell
    from rlbench.report.sources import Sources

COLORS = {"green": "#009e73", "cyan": "#0072b2", "red": "#d55e00", "yellow": "#6e7781", "dim": "#6e7781"}
"""Color of a row, by the style of its verdict."""


class ShortfallRow(NamedTuple):
    """A cell, in percent of the way from the random policy to the reference."""

    cell: Cell
    difference: float
    half: float  # of the interval whose lower end is the shortfall bound: 90 %, under looks wider


def rows(
    suite: str, evidence: Sources, *, tasks: Sequence[str] = (), algorithms: Sequence[str] = ()
) -> tuple[ShortfallRow, ...]:
    """The cells of a suite that have a shortfall bound, in the table's order."""
    cells = {cell.key: cell for cell in evidence.cells([suite])}
    keys = matching(list(cells), suite, tasks=tasks, algorithms=algorithms)
    return tuple(row for key in keys if (row := _row(cells[key])) is not None)


def draw_forest(forest_rows: Sequence[ShortfallRow]) -> Figure:
    """The figure; a diamond is a difference, a bar the bound."""
    figure = empty_figure(7.2, 0.26 * len(forest_rows) + 1.5)
    axes = figure.subplots()
    for place, row in enumerate(forest_rows):
        color = COLORS[STYLES[row.cell.verdict.word]]
        axes.plot([row.difference - row.half, row.difference + row.half], [place, place], color=color, linewidth=1.6)
        axes.plot(row.difference, place, marker="D", markersize=4.5, color=color)
        axes.plot(row.difference - row.half, place, marker="|", markersize=9, color=color, markeredgewidth=2)
        seeds = len(row.cell.tested)
        axes.annotate(
            f"{row.cell.verdict.word}, {seeds} seeds", (1.01, place), xycoords=("axes fraction", "data"),
            va="center", fontsize=7, color=color,
        )  # fmt: skip
    axes.axvline(0, color="#24292f", linewidth=0.9)
    axes.axvline(-100 * SHARE, color="#6e7781", linewidth=0.9, linestyle=(0, (1, 2)))
    names = [f"{row.cell.key.algorithm} {task_name(row.cell.key).replace('NoFrameskip-v4', '')}" for row in forest_rows]
    axes.set_yticks(range(len(forest_rows)), labels=names, fontsize=7)
    axes.set_ylim(len(forest_rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("ours less documented, % of the way from the random policy; | is the shortfall bound")
    return figure


def _row(cell: Cell) -> ShortfallRow | None:
    reference = cell.documented
    random = on_scale(scale_of(cell.key), reference.estimator) if reference else None
    if reference is None or random is None or cell.shortfall_percent is None:
        return None
    difference = 100 * (mean(cell.tested) - reference.score) / abs(reference.score - random)
    return ShortfallRow(cell, difference, max(0.0, cell.shortfall_percent + difference))
