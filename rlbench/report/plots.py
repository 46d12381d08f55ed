"""Figures as PNG, SVG or PDF: readable in black and white and with colour blindness, and equal bytes for equal data.

Colours are those of Okabe and Ito. An algorithm has the same colour, marker and dash pattern in every figure.
Published curves are thin and dotted, in the colour of their algorithm. Bands are ± one std over seeds, of measured
and published curves alike. A vertical band and a marker are the verdict at equal steps.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import chdir, nullcontext
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from rlbench.config.names import count_text, printable
from rlbench.errors import UsageError
from rlbench.report import plot_data
from rlbench.report.aggregate import (
    INTERVAL_SEEDS,
    Estimate,
    band,
    bootstrap,
    pooled_interquartile_mean,
    probability_of_improvement,
    profile,
)
from rlbench.report.figure_style import NO_SETTINGS, empty_figure, refuse_pixels, styled
from rlbench.report.plot_data import AlgorithmScores, Panel, ShortfallRow
from rlbench.report.reference_scores import SHARE
from rlbench.report.reference_table import DATA, task_name
from rlbench.report.tables import STYLES
from rlbench.suites import SUITES

if TYPE_CHECKING:
    from rlbench.report.evidence import Evidence

with chdir(DATA) if os.path.lexists("matplotlibrc") else nullcontext():  # matplotlib would read a foreign one
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kind = Literal["curves", "walltime", "profile", "interval", "improvement", "forest"]
UNDATED = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

PLACES: Final = re.compile(rb'\b(?:d|x|y)="[^"]*"')
FINE: Final = re.compile(rb"\d+\.\d{3,}")
"""Coordinates in an SVG, and numbers in them that are finer than hundredths of a point."""


class LineStyle(NamedTuple):
    """The style of an algorithm's line, as matplotlib takes it."""

    color: str
    dashes: Literal["-"] | tuple[int, tuple[float, ...]]
    marker: str


COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a8f00", "#7b4fb0", "#7f7f7f")
DASHES = (
    (),
    (5, 1.5),
    (1.5, 1.2),
    (6, 1.5, 1.5, 1.5),
    (3, 1),
    (8, 2),
    (4, 1, 1, 1, 1, 1),
    (2, 2),
    (7, 1, 2, 1),
    (1, 1),
)
STYLED: Final = (
    *("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow", "ppo", "sac", "trpo", "npg"),
    *("ddpg", "td3", "redq", "reinforce", "a2c"),
    *("il", "bcq", "cql", "crr", "td3bc", "iql", "td3bc-raw", "dqn+icm", "ppo+icm", "sac+icm", "ddpg+her"),
)
ORDER: Final = tuple(dict.fromkeys((*STYLED, *(name for suite in SUITES.values() for name in suite.ALGORITHMS))))
"""Algorithms in the order of their styles, new ones last; ``STYLED`` keeps colours as they were."""

VERDICT_MARKERS: Final = {"ON TRACK": ("o", True), "OPEN": ("o", False), "BEHIND": ("v", True), "AHEAD": ("^", True)}
"""Marker of each verdict at equal steps, filled or not."""

VERDICT_COLORS: Final = {"green": "#009e73", "cyan": "#0072b2", "red": "#d55e00", "yellow": "#6e7781", "dim": "#6e7781"}
"""Color of a row, by the style of its verdict."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "x", "+", "d", "1", "|", "p", "2", "_", "3", "h")


def draw(
    suite: str,
    kind: Kind,
    evidence: Evidence,
    *,
    tasks: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    rc: Mapping[str, str] = NO_SETTINGS,
) -> Figure:
    """Draw a figure of a suite's records; ``rc`` are settings of matplotlib that overrule the style.

    Raises:
        UsageError: there is nothing to draw.
        UnknownName: a task or an algorithm does not exist.
    """
    cells = plot_data.find_cells(suite, evidence, tasks, algorithms)
    with styled(rc):
        if kind in {"curves", "walltime"}:
            panels = plot_data.panels(suite, evidence, cells, by_name=bool(tasks), hours=kind == "walltime")
            panels = tuple(panel for panel in panels if panel.lines or panel.curves)
            if not panels:
                raise plot_data.nothing_to_draw(suite, evidence)
            return _curves(panels)
        if kind == "forest":
            rows = plot_data.shortfall_rows(suite, evidence, cells)
            if not rows:
                raise UsageError(f"no cell of {suite} has three seeds to bound a shortfall with; run more seeds")
            return _forest(rows)
        scale, algo_scores = plot_data.algorithm_scores(suite, cells)
        if not algo_scores:
            raise plot_data.nothing_to_draw(suite, evidence)
        if kind == "improvement":
            return _improvement(algo_scores)
        algo_scores = plot_data.on_common_tasks(algo_scores)
        return _profile(algo_scores, scale) if kind == "profile" else _interval(algo_scores, scale)


def encode_figure(figure: Figure, ending: str, *, title: str = "", rc: Mapping[str, str] = NO_SETTINGS) -> bytes:
    """A figure, below a title if there is one, as the bytes of a file; equal figures give equal bytes."""
    file = io.BytesIO()
    with styled(rc):
        if title:
            figure.suptitle(printable(title, len(title)), parse_math=False)
        if ending == ".png":
            refuse_pixels(figure)
        figure.savefig(file, format=ending[1:], metadata=UNDATED[ending])
    if ending != ".svg":
        return file.getvalue()
    # coordinates to hundredths of a point; scales keep all their digits
    return PLACES.sub(lambda places: FINE.sub(lambda n: f"{float(n[0]):.2f}".encode(), places[0]), file.getvalue())


def line_styles(labels: Sequence[str]) -> dict[str, LineStyle]:
    """Choose the style of each line; ``ppo lr=1e-4`` has the colour of ``ppo`` and other dashes."""
    styles: dict[str, LineStyle] = {}
    variants: Counter[str] = Counter()
    for index, label in enumerate(dict.fromkeys(labels)):
        algorithm, _, rest = label.partition(" ")
        i = ORDER.index(algorithm) if algorithm in ORDER else index
        variants[algorithm] += bool(rest)
        color = COLORS[i % len(COLORS)]
        i += 3 * variants[algorithm]
        dashes = DASHES[(i + i // len(COLORS)) % len(DASHES)]  # a colour that comes again has other dashes
        styles[label] = LineStyle(color, (0, dashes) if dashes else "-", MARKERS[i % len(MARKERS)])
    return styles


def _curves(panels: Sequence[Panel]) -> Figure:
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = empty_figure(max(5.2, 4.0 * columns), 2.9 * rows + 0.8)
    styles = line_styles(
        [name for p in panels for name in (*(line.algorithm for line in p.lines), *p.curves, *p.scores)]
    )
    grid = figure.subplots(rows, columns, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index >= len(panels):
            axes.set_visible(False)
            continue
        _panel(axes, panels[index], styles)
        if index % columns == 0:
            axes.set_ylabel("return")
    _legend(figure, panels, styles)
    return figure


def _panel(axes: Axes, panel: Panel, styles: dict[str, LineStyle]) -> None:
    """One task: measured lines, and the published curves and scores of their algorithms, or all where none is."""
    longest = max([line.x[-1] for line in panel.lines], default=0.0)
    measured_algorithms = {line.algorithm.partition(" ")[0] for line in panel.lines}
    unit, word = _unit(longest or 1e6, panel.clock)
    for name, curve in panel.curves.items():
        if measured_algorithms and name not in measured_algorithms:
            continue
        x, y, spread = (np.asarray(part, float) for part in (curve.env_steps, curve.mean, curve.std))
        color = styles[name].color
        axes.fill_between(x / unit, y - spread, y + spread, color=color, alpha=0.08, linewidth=0)
        axes.plot(
            x / unit, y, color=color, linewidth=1.1, linestyle=":", zorder=2,
            marker=None if measured_algorithms else styles[name].marker, markersize=3,
            markevery=max(1, len(x) // 5),
        )  # fmt: skip
    for name, reference in panel.scores.items():
        if name in measured_algorithms:
            axes.axhline(reference, color=styles[name].color, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    for line in panel.lines:
        color, dashes, marker = styles[line.algorithm]
        if line.runs > 1:
            axes.fill_between(line.x / unit, line.low, line.high, color=color, alpha=0.15, linewidth=0)
        every = max(1, len(line.x) // 6)
        axes.plot(
            line.x / unit, line.mean, color=color, linewidth=1.9, linestyle=dashes, marker=marker, markersize=4,
            markevery=every, zorder=3,
        )  # fmt: skip
    _mark_verdicts(axes, panel, styles, unit)
    axes.set_title(panel.title.replace("NoFrameskip-v4", ""))
    axes.set_xlabel(word)
    if longest and panel.clock != "hours":
        axes.set_xlim(0, 1.25 * longest / unit if panel.curves else 1.02 * longest / unit)


def _mark_verdicts(axes: Axes, panel: Panel, styles: dict[str, LineStyle], unit: float) -> None:
    """The window of evaluations and the verdict of each algorithm that was tested at equal steps."""
    for name, at in panel.verdicts.items():
        if at.word in VERDICT_MARKERS and name in styles:
            marker, fill = VERDICT_MARKERS[at.word]
            color, x = styles[name].color, at.reference.step / unit
            axes.axvline(x, color=color, linewidth=4, alpha=0.12, zorder=0)
            axes.plot(
                x, sum(at.scores) / len(at.scores), marker=marker, markersize=8, color="white", linestyle="none",
                markeredgecolor=color, markeredgewidth=1.6, markerfacecolor=color if fill else "white", zorder=4,
            )  # fmt: skip


def _unit(longest: float, clock: plot_data.Clock) -> tuple[float, str]:
    if clock == "hours":
        return (1.0, "hours") if longest >= 1 else (1 / 60, "minutes")
    return (1e6, f"million {clock}") if longest >= 5e5 else (1e3, f"thousand {clock}")


def _legend(figure: Figure, panels: Sequence[Panel], styles: dict[str, LineStyle]) -> None:
    """The measured algorithms, or those published alone, the two kinds of published lines, and the bands."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    measured_names = {line.algorithm for panel in panels for line in panel.lines}
    unmeasured_names = {name for panel in panels if not panel.lines for name in panel.curves} - measured_names
    handles: list[Artist] = [
        Line2D(
            [], [], color=color, marker=marker, markersize=4,
            label=f"{name}, published" if name in unmeasured_names else name,
            linestyle=":" if name in unmeasured_names else dashes,
        )
        for name, (color, dashes, marker) in styles.items() if name in measured_names | unmeasured_names
    ]  # fmt: skip
    if measured_names and any(panel.curves for panel in panels):
        handles.append(Line2D([], [], color="#57606a", linestyle=":", linewidth=1.1, label="published curve"))
    if measured_names:
        handles.append(Line2D([], [], color="#57606a", linestyle=(0, (1, 2)), linewidth=0.9, label="published score"))
    words = sorted({at.word for panel in panels for at in panel.verdicts.values()})
    handles += [
        Line2D(
            [], [], color="#57606a", linestyle="none", marker=VERDICT_MARKERS[word][0], markersize=7,
            markerfacecolor="#57606a" if VERDICT_MARKERS[word][1] else "white", label=f"{word} at equal steps",
        )
        for word in words if word in VERDICT_MARKERS
    ]  # fmt: skip
    handles.append(Patch(color="#57606a", alpha=0.15, linewidth=0, label="± one std over seeds"))
    longest = max(len(str(handle.get_label())) for handle in handles)
    fitting = max(1, int(figure.get_figwidth() / max(1.55, 0.6 + 0.085 * longest)))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(fitting, len(handles)), handlelength=3)


def _profile(algo_scores: Sequence[AlgorithmScores], scale: str) -> Figure:
    figure = empty_figure(6.4, 4.2)
    axes, styles = figure.subplots(), line_styles([algo.algorithm for algo in algo_scores])
    top = max(1.05, *(score for s in algo_scores for row in s.scores for score in row)) * 1.05
    taus = np.linspace(0, min(top, 10), 201)
    for algo in algo_scores:
        color, dashes, marker = styles[algo.algorithm]
        if min(map(len, algo.scores)) >= INTERVAL_SEEDS:
            low, high = band(algo.scores, taus.tolist())
            axes.fill_between(taus, low, high, color=color, alpha=0.12, linewidth=0)
        axes.plot(
            taus, profile(algo.scores, taus.tolist()), color=color, linestyle=dashes,
            marker=marker, markevery=25, markersize=4, label=algo.algorithm,
        )  # fmt: skip
    axes.axvline(1, color="#6e7781", linewidth=0.9, linestyle=(0, (1, 2)))
    axes.set(xlabel=f"normalised score τ ({scale})", ylabel="share of runs with a score above τ", ylim=(-0.02, 1.02))
    axes.set_title("Performance profiles")
    axes.legend(handlelength=3)
    return figure


def _interval(algo_scores: Sequence[AlgorithmScores], scale: str) -> Figure:
    rows = [(s, bootstrap(pooled_interquartile_mean, s.scores)) for s in algo_scores]
    figure, axes = _rows_of([s.algorithm for s in algo_scores])
    _whiskers(axes, rows, INTERVAL_SEEDS)
    for index, (algo, _) in enumerate(rows):
        if algo.references:
            level = float(pooled_interquartile_mean([[d] for d in algo.references]))
            axes.plot(level, index, marker="D", markersize=7, color="white", markeredgecolor="#24292f", zorder=2)
    low, high = axes.get_xlim()
    axes.set_xlim(low - max(0.0, 0.25 - (high - low)), high + max(0.0, 0.05 - (high - low) / 5))
    axes.set_xlabel(f"interquartile mean over tasks and seeds ({scale})")
    axes.set_title(f"Interquartile mean on {', '.join(algo_scores[0].tasks)}; ◇ is published", wrap=True)
    return figure


def _improvement(algo_scores: Sequence[AlgorithmScores]) -> Figure:
    with_references = [s for s in algo_scores if s.references]
    if not with_references:
        raise UsageError("no finished run has a reference score to be compared with")
    rows = [(s, probability_of_improvement(s.scores, [[d] for d in s.references], fixed=True)) for s in with_references]
    figure, axes = _rows_of([s.algorithm for s in with_references])
    _whiskers(axes, rows, 2)
    axes.axvline(0.5, color="#6e7781", linewidth=0.9, linestyle=(0, (1, 2)))
    axes.set(xlim=(-0.03, 1.03), xlabel="probability that a run beats its published score")
    axes.set_title("Probability of improvement over the published scores")
    return figure


def _rows_of(
    names: Sequence[str], *, width: float = 6.4, row: float = 0.42, fontsize: float | None = None
) -> tuple[Figure, Axes]:
    """A figure with a row, of this height in inches, for each name."""
    figure = empty_figure(width, row * len(names) + 1.5)
    axes = figure.subplots()
    axes.set_yticks(range(len(names)), labels=list(names), fontsize=fontsize)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    return figure, axes


def _whiskers(axes: Axes, rows: Sequence[tuple[AlgorithmScores, Estimate]], fewest: int) -> None:
    """Draw each estimate, with its interval where every task has the ``fewest`` seeds."""
    styles = line_styles([algo.algorithm for algo, _ in rows])
    for index, (algo, interval) in enumerate(rows):
        color, _, marker = styles[algo.algorithm]
        if min(map(len, algo.scores)) >= fewest:
            ends, level = [interval.low, interval.high], [index, index]
            axes.plot(ends, level, color=color, linewidth=5, alpha=0.35, solid_capstyle="butt")
        axes.plot(interval.value, index, marker=marker, color=color, markersize=7, zorder=3)
        seeds = sorted({len(row) for row in algo.scores})
        count = count_text(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]}–{seeds[-1]} seeds"
        axes.annotate(
            f"{count_text(len(algo.tasks), 'task')} × {count}", (1.02, index), xycoords=("axes fraction", "data"),
            ha="left", va="center", fontsize=7, color="#57606a",
        )  # fmt: skip


def _forest(forest_rows: Sequence[ShortfallRow]) -> Figure:
    """The figure; a diamond is a difference, a bar the bound."""
    names = [f"{row.cell.key.algorithm} {task_name(row.cell.key).replace('NoFrameskip-v4', '')}" for row in forest_rows]
    figure, axes = _rows_of(names, width=7.2, row=0.26, fontsize=7)
    for index, row in enumerate(forest_rows):
        color = VERDICT_COLORS[STYLES[row.cell.verdict.word]]
        axes.plot([row.difference - row.half, row.difference + row.half], [index, index], color=color, linewidth=1.6)
        axes.plot(row.difference, index, marker="D", markersize=4.5, color=color)
        axes.plot(row.difference - row.half, index, marker="|", markersize=9, color=color, markeredgewidth=2)
        seeds = len(row.cell.scores)
        axes.annotate(
            f"{row.cell.verdict.word}, {seeds} seeds", (1.01, index), xycoords=("axes fraction", "data"),
            va="center", fontsize=7, color=color,
        )  # fmt: skip
    axes.axvline(0, color="#24292f", linewidth=0.9)
    axes.axvline(-100 * SHARE, color="#6e7781", linewidth=0.9, linestyle=(0, (1, 2)))
    axes.set_xlabel("ours less documented, % of the way from the random policy; | is the shortfall bound")
    return figure
