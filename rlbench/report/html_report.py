"""The HTML report: tables, verdicts, figures, every seed, machines, and missing runs.

It is one file without network access, and equal records give equal bytes.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from rlbench import __version__
from rlbench.errors import UsageError
from rlbench.report.baseline import machine_of, speed
from rlbench.report.estimate import best, final, last_tenth
from rlbench.report.pooled import pooled_rows
from rlbench.report.reference_table import DATA, CellKey, task_name
from rlbench.report.remaining_work import RemainingRuns, remaining_runs
from rlbench.report.run_index import Runs, differences, label
from rlbench.report.runs import Run
from rlbench.report.tables import STYLES, html_grid, html_legend, html_table, score_text

if TYPE_CHECKING:
    from rlbench.report.cells import Cell
    from rlbench.report.plots import Kind
    from rlbench.report.sources import Sources

LARGE: Final[tuple[tuple[Kind, str], ...]] = (
    ("curves", "Learning curves; bands are ± one std over seeds."),
    ("walltime", "The same against wall clock."),
)
SMALL: Final[tuple[tuple[Kind, str], ...]] = (
    ("interval", "The tasks that all algorithms have, with 95 % bootstrap intervals over seeds."),
    ("improvement", "The probability that a run beats its published score; a half is a draw."),
    ("profile", "Share of runs above each score."),
)
URL_SAFE: Final = " /:;=,.-+'!*?@$~_"  # characters, besides letters and digits, unescaped in a quoted URL in HTML
NUMBERS: Final = frozenset({"Seed", "Seeds", "Steps", "Best", "Last", "Last tenth", "Hours", "Steps/s", "Runs"})
SPARK = (90, 22)  # width and height of a seed's curve, in pixels


def page(suites: Sequence[str], evidence: Sources) -> str:
    """The report of some suites as HTML."""
    runs_by_cell = evidence.runs()
    cells = {suite: evidence.cells([suite]) for suite in suites}
    sections = [_section(suite, cells[suite], runs_by_cell, evidence) for suite in suites]
    links = [*((suite, suite.capitalize()) for suite in suites), ("machines", "Machines"), ("words", "Verdicts")]
    parts = {
        "{{version}}": html.escape(__version__),
        "{{nav}}": " ".join(f'<a href="#{anchor}">{label}</a>' for anchor, label in links),
        "{{summary}}": _tiles([cell for part in cells.values() for cell in part]) if len(cells) > 1 else "",
        "{{sections}}": "\n".join(sections),
        "{{machines}}": _machines(
            run for key, runs in runs_by_cell.items() if key.suite in suites for run in _runs_to_count(runs)
        ),
    }
    text = (DATA / "report.html").read_text(encoding="utf-8")
    marks = "|".join(map(re.escape, parts))  # replaced in one pass: records may contain them
    return re.sub(marks, lambda mark: parts[mark[0]], text)


def _section(suite: str, cells: Sequence[Cell], runs_by_cell: Mapping[CellKey, Runs], evidence: Sources) -> str:
    with_score = [cell for cell in cells if cell.measured is not None]
    rest = [cell for cell in cells if cell.measured is None]
    parts = [f'<h2 id="{suite}">{suite.capitalize()}</h2>', _tiles(cells)]
    variants = sum(len(runs.variants) for key, runs in runs_by_cell.items() if key.suite == suite)
    sentence = "Nothing has been run yet."
    if variants:
        sentence = f"No run has the published settings; {variants} {'has' if variants == 1 else 'have'} others."
    parts.append(html_table(with_score) if with_score else f'<p class="quiet">{sentence}</p>')
    if with_score or variants:
        several = sum(cell.measured.n for cell in with_score if cell.measured) > 1
        parts += [*_figures(suite, evidence, several=several), _seeds(suite, runs_by_cell)]
    if rest:
        title = f"{len(rest)} documented cells without a finished run"
        parts.append(f"<details><summary>{title}</summary>{html_table(rest)}</details>")
    parts.append(_missing(remaining_runs(suite, evidence)))
    return "\n".join([*parts, f'<ul class="legend">{html_legend(cells, pooled_rows(cells))}</ul>'])


def _tiles(cells: Sequence[Cell]) -> str:
    counts: Counter[str] = Counter(cell.verdict.word for cell in cells)
    tiles = [
        f'<div class="tile"><b class="{STYLES[word]}">{counts[word]}</b>{word}</div>' for word in STYLES if counts[word]
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _figures(suite: str, evidence: Sources, *, several: bool) -> list[str]:
    """Curves, and with several runs the statistics over them."""
    large = [_figure(suite, kind, caption, evidence) for kind, caption in LARGE]
    small = [_figure(suite, kind, caption, evidence) for kind, caption in SMALL] if several else []
    return [*large, f'<div class="pair">{"".join(small)}</div>']


def _figure(suite: str, kind: Kind, caption: str, evidence: Sources) -> str:
    from rlbench.report.plots import draw, encode_figure

    try:
        svg = encode_figure(draw(suite, kind, evidence), ".svg")
    except UsageError:  # nothing to draw of this kind
        return ""
    data = quote(" ".join(svg.decode().split()), safe=URL_SAFE)  # shorter than in base 64
    image = f'<img alt="{caption}" src="data:image/svg+xml,{data}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _seeds(suite: str, runs_by_cell: Mapping[CellKey, Runs]) -> str:
    header = ("Cell", "Seed", "Status", "Steps", "Best", "Last", "Last tenth", "Hours", "Steps/s", "Curve")
    rows = []
    for key, runs in sorted(runs_by_cell.items()):
        if key.suite == suite and (every := _runs_to_count(runs)):
            levels = [evaluation.mean for run in every for evaluation in run.evaluations] or [0.0]
            bounds = min(levels), max(levels), max(1, *(run.env_steps for run in every))
            rows += [[*map(html.escape, _seed(key, run)), _spark(run, bounds)] for run in every]
    return f"<details open><summary>Every seed</summary>{html_grid(header, rows, NUMBERS)}</details>" if rows else ""


def _seed(key: CellKey, run: Run) -> list[str]:
    steps_per_second = speed(run)
    return [
        f"{key.algorithm} {task_name(key)}" + (f" ({label(run)})" if differences(run) else ""),
        str(run.seed),
        run.status + (f" ({run.reason})" if run.status == "failed" else ""),
        f"{run.env_steps:,}",
        *(score_text(kind(run.evaluations)) if run.evaluations else "" for kind in (best, final, last_tenth)),
        f"{run.seconds / 3600:.2f}",
        f"{steps_per_second:,.0f}" if steps_per_second else "",
    ]


def _spark(run: Run, bounds: tuple[float, float, int]) -> str:
    """A seed's evaluations as a line, all seeds of a cell on one scale."""
    width, height = SPARK
    low, high, last = bounds
    rise = high - low or 1.0  # equal evaluations are a line at the bottom
    points = " ".join(
        f"{width * e.env_steps / last:.1f},{height * (1 - (e.mean - low) / rise):.1f}" for e in run.evaluations
    )
    line = f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
    base = f'<line x1="0" y1="{height}" x2="{width}" y2="{height}" stroke="#8c959f" stroke-width=".5"/>'
    return f'<svg class="spark" width="{width}" height="{height}" role="img" aria-label="curve">{base}{line}</svg>'


def _missing(rows: Sequence[RemainingRuns]) -> str:
    """The runs that complete the table with ten seeds per cell, and their cost."""
    if not rows:
        return '<p class="quiet">Ten seeds of every cell: nothing is missing.</p>'
    seeds, hours = sum(len(row.seeds) for row in rows), sum(row.hours or 0.0 for row in rows)
    unknown = sum(row.hours is None for row in rows)
    cost = f"about {hours:,.0f} hours one after another at the speeds measured here" if hours else "of unknown duration"
    rest = f"; no speed is known for {unknown} cells" if unknown and hours else ""
    fields = (
        (
            html.escape(f"{row.key.algorithm} {task_name(row.key)}"),
            str(len(row.seeds)),
            f"{row.steps:,}" if row.steps else "",
            "" if row.hours is None else f"{row.hours:,.1f}",
        )
        for row in rows
    )
    table = html_grid(("Cell", "Seeds", "Steps", "Hours"), fields, NUMBERS)
    title = f"Missing for ten seeds a cell: {seeds:,} runs of {len(rows)} cells, {cost}{rest}"
    return f"<details><summary>{title}</summary>{table}</details>"


def _machines(runs: Iterable[Run]) -> str:
    runs_by_machine: dict[str, list[Run]] = {}
    for run in runs:
        runs_by_machine.setdefault(machine_of(run), []).append(run)
    if not runs_by_machine:
        return '<p class="quiet">Nothing has been run yet.</p>'
    rows = (map(html.escape, _machine(name, runs_by_machine[name])) for name in sorted(runs_by_machine))
    return html_grid(("Machine", "Runs", "Python", "Packages", "Commits"), rows, NUMBERS)


def _machine(name: str, runs: Sequence[Run]) -> list[str]:
    pythons, commits = ({str(run.environment.get(part, "")) for run in runs} for part in ("python", "commit"))
    every = [packages for run in runs if isinstance(packages := run.environment.get("packages"), dict)]
    packages = {f"{package} {version}" for versions in every for package, version in versions.items()}
    return [name, str(len(runs)), *(", ".join(sorted(texts)) for texts in (pythons, packages, commits))]


def _runs_to_count(runs: Runs) -> list[Run]:
    return [*runs.scored, *runs.short, *runs.variants]
