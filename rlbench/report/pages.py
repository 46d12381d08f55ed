"""The report of some suites as an HTML page or a Markdown page, and the reproduced scores of README.

HTML has tables, verdicts, figures, every seed, machines and missing runs in one file without network access. Markdown
has the cells by verdict, the cost of missing runs and the tables. Equal records give equal bytes on any machine: hours
in Markdown are those of the processor with most records.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args
from urllib.parse import quote

from rlbench import __version__
from rlbench.errors import UsageError
from rlbench.report.equal_steps import StepWord
from rlbench.report.estimate import best, final
from rlbench.report.pooled import pooled_rows
from rlbench.report.reference_table import DATA, SUITES, CellKey, task_name
from rlbench.report.remaining_work import RemainingRuns, remaining_runs
from rlbench.report.run_index import Runs, differences, label
from rlbench.report.runs import Run
from rlbench.report.tables import (
    STYLES,
    escape_markdown,
    html_grid,
    html_legend,
    html_table,
    measured_text,
    reference_text,
    score_text,
    to_markdown,
)
from rlbench.report.verdict import UNDECIDABLE, Word

if TYPE_CHECKING:
    from rlbench.report.cells import Cell
    from rlbench.report.evidence import Evidence
    from rlbench.report.plots import Kind

BEGIN, END = "<!-- begin: what was reproduced -->", "<!-- end -->"
KINDS = ("interval", "curves")  # figures that the Markdown page shows if they are in ``plots``
LARGE: Final[tuple[tuple[Kind, str], ...]] = (
    ("curves", "Learning curves; bands are ± one std over seeds."),
    ("walltime", "The same against wall clock."),
)
SMALL: Final[tuple[tuple[Kind, str], ...]] = (
    ("interval", "The tasks that all algorithms have, with 95 % bootstrap intervals where each has five seeds."),
    ("improvement", "The probability that a run beats its published score; a half is a draw."),
    ("profile", "Share of runs above each score."),
)
URL_SAFE: Final = " /:;=,.-+'!*?@$~_"  # characters, besides letters and digits, unescaped in a quoted URL in HTML
NUMBERS: Final = frozenset({"Seed", "Seeds", "Steps", "Best", "Last", "Hours", "Steps/s", "Runs"})
SPARK = (90, 22)  # width and height of a seed's curve, in pixels


def html_page(suites: Sequence[str], evidence: Evidence) -> str:
    """The report of some suites as HTML."""
    runs_by_cell = evidence.runs()
    cells = {suite: evidence.cells([suite]) for suite in suites}
    sections = [_html_section(suite, cells[suite], runs_by_cell, evidence) for suite in suites]
    links = [*((suite, suite.capitalize()) for suite in suites), ("machines", "Machines"), ("words", "Verdicts")]
    parts = {
        "{{version}}": html.escape(__version__),
        "{{nav}}": " ".join(f'<a href="#{html.escape(anchor)}">{html.escape(label)}</a>' for anchor, label in links),
        "{{summary}}": _tiles([cell for part in cells.values() for cell in part]) if len(cells) > 1 else "",
        "{{sections}}": "\n".join(sections),
        "{{machines}}": _machines(
            run for key, runs in runs_by_cell.items() if key.suite in suites for run in _runs_to_count(runs)
        ),
    }
    text = (DATA / "report.html").read_text(encoding="utf-8")
    marks = "|".join(map(re.escape, parts))  # replaced in one pass: records may contain them
    return re.sub(marks, lambda mark: parts[mark[0]], text)


def _html_section(suite: str, cells: Sequence[Cell], runs_by_cell: Mapping[CellKey, Runs], evidence: Evidence) -> str:
    with_score = [cell for cell in cells if cell.measured is not None]
    rest = [cell for cell in cells if cell.measured is None]
    parts = [f'<h2 id="{html.escape(suite)}">{html.escape(suite.capitalize())}</h2>', _tiles(cells)]
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


def _figures(suite: str, evidence: Evidence, *, several: bool) -> list[str]:
    """Curves, and with several runs the statistics over them."""
    large = [_figure(suite, kind, caption, evidence) for kind, caption in LARGE]
    small = [_figure(suite, kind, caption, evidence) for kind, caption in SMALL] if several else []
    return [*large, f'<div class="pair">{"".join(small)}</div>']


def _figure(suite: str, kind: Kind, caption: str, evidence: Evidence) -> str:
    from rlbench.report.plots import draw, encode_figure

    try:
        svg = encode_figure(draw(suite, kind, evidence), ".svg")
    except UsageError:  # nothing to draw of this kind
        return ""
    data = quote(" ".join(svg.decode().split()), safe=URL_SAFE)  # shorter than in base 64
    image = f'<img alt="{caption}" src="data:image/svg+xml,{data}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _seeds(suite: str, runs_by_cell: Mapping[CellKey, Runs]) -> str:
    header = ("Cell", "Seed", "Status", "Steps", "Best", "Last", "Hours", "Steps/s", "Curve")
    rows = []
    for key, runs in sorted(runs_by_cell.items()):
        if key.suite == suite and (every := _runs_to_count(runs)):
            levels = [evaluation.mean for run in every for evaluation in run.evaluations] or [0.0]
            bounds = min(levels), max(levels), max(1, *(run.env_steps for run in every))
            rows += [[*map(html.escape, _seed(key, run)), _spark(run, bounds)] for run in every]
    return f"<details open><summary>Every seed</summary>{html_grid(header, rows, NUMBERS)}</details>" if rows else ""


def _seed(key: CellKey, run: Run) -> list[str]:
    steps_per_second = run.speed
    return [
        f"{key.algorithm} {task_name(key)}" + (f" ({label(run)})" if differences(run) else ""),
        str(run.seed),
        run.status + (f" ({run.reason})" if run.status == "failed" else ""),
        f"{run.env_steps:,}",
        *(score_text(kind(run.evaluations)) if run.evaluations else "" for kind in (best, final)),
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
        runs_by_machine.setdefault(", then ".join(run.machines), []).append(run)
    if not runs_by_machine:
        return '<p class="quiet">Nothing has been run yet.</p>'
    rows = (map(html.escape, _machine(name, runs_by_machine[name])) for name in sorted(runs_by_machine))
    return html_grid(("Machine", "Runs", "Python", "Packages", "Commits"), rows, NUMBERS)


def _machine(name: str, runs: Sequence[Run]) -> list[str]:
    environments = [environment for run in runs for environment in run.environments]
    pythons, commits = ({str(each.get(part, "")) for each in environments} for part in ("python", "commit"))
    every = [packages for each in environments if isinstance(packages := each.get("packages"), dict)]
    packages = {f"{package} {version}" for versions in every for package, version in versions.items()}
    return [name, str(len(runs)), *(", ".join(sorted(texts)) for texts in (pythons, packages, commits))]


def _runs_to_count(runs: Runs) -> list[Run]:
    return [*runs.scored, *runs.short, *runs.variants]


def markdown_page(suites: Sequence[str], evidence: Evidence) -> str:
    """The report of some suites as Markdown; figures in ``plots`` are linked."""
    runs_by_cell = evidence.runs()
    cpu = _most_used(runs_by_cell)
    cells = {suite: evidence.cells([suite]) for suite in suites}
    lacking = {suite: remaining_runs(suite, evidence, cpu=cpu) for suite in suites}
    sections = [_markdown_section(suite, cells[suite], evidence.folders[-1]) for suite in suites]
    return "\n\n".join(["# Results", _totals(cells), _counts(cells), _cost(lacking, cpu), *sections]) + "\n"


def with_reproduced(text: str, evidence: Evidence) -> str:
    """README with the reproduced scores between its two marks."""
    suites = [suite for suite in SUITES if suite != "toy"]
    cells = evidence.cells(suites)
    rows = [
        f"| {cell.key.suite} | {cell.key.algorithm} | {task_name(cell.key)} | {reference_text(cell.documented)} "
        f"| {measured_text(cell.measured)} | {cell.measured.n} |"
        for cell in cells
        if cell.verdict.word == "REPRODUCED" and cell.documented and cell.measured
    ]
    words = Counter(cell.verdict.word for cell in cells if cell.documented)
    published_scores = words.total()
    del words["NOT RUN"], words["PARTIAL"]
    counts = ", ".join(f"{words[word]} {word}" for word in get_args(Word) if words[word])
    words_at = Counter(cell.at.word for cell in cells if cell.at and cell.at.word != "TOO EARLY")
    counts_at = ", ".join(f"{words_at[word]} {word.lower()}" for word in get_args(StepWord) if words_at[word])
    sentence = (
        f"Of the {published_scores} published scores, {words.total()} have been run in full so far:\n{counts}.\n"
        f"Of the INCONCLUSIVE ones, {sum(UNDECIDABLE in cell.note for cell in cells)} are {UNDECIDABLE}.\n"
        f"Against published curves, at the step that their runs have reached, {words_at.total()} have a verdict: "
        f"{counts_at}.\nThe reproduced scores, with their 95 % interval:"
    )
    head = ["| suite | algorithm | task | published | measured | seeds |", "|---|---|---|---:|---:|---:|"]
    before, rest = text.split(BEGIN)
    return "\n".join([before + BEGIN, sentence, "", *head, *rows, END + rest.partition(END)[2]])


def _most_used(runs_by_cell: Mapping[CellKey, Runs]) -> str | None:
    """The processor of most finished runs, the first by name among equals; None without a run."""
    every = Counter(
        str(run.environment.get("cpu")) for runs in runs_by_cell.values() for run in (*runs.complete, *runs.short)
    )
    return min(every, key=lambda name: (-every[name], name)) if every else None


def _totals(cells: Mapping[str, Sequence[Cell]]) -> str:
    """The share of cells with a reference score that were run; optima of toys are no references."""
    documented = [cell for suite, part in cells.items() if suite != "toy" for cell in part if cell.documented]
    words = Counter(cell.verdict.word for cell in documented)
    run = len(documented) - words["NOT RUN"] - words["PARTIAL"]
    return (
        f"Of {len(documented)} documented cells {run} were run in full and {words['PARTIAL']} in part: "
        f"{words['REPRODUCED']} are reproduced, {words['CONSISTENT']} consistent, {words['ABOVE']} above, "
        f"{words['BELOW']} below, {words['INCONCLUSIVE']} undecided, {words['NOT COMPARABLE']} not comparable. "
        "[How to read the tables, and where we differ on purpose](tables/README.md)."
    )


def _counts(cells: Mapping[str, Sequence[Cell]]) -> str:
    """One row per suite, one column per verdict; cells of own data, without a reference, count too."""
    words: Sequence[Word] = get_args(Word)
    lines = [f"| suite | cells | {' | '.join(words)} |", f"|---|{'---:|' * (len(words) + 1)}"]
    for suite, part in cells.items():
        counts = Counter(cell.verdict.word for cell in part)
        lines.append(f"| {suite} | {len(part)} | {' | '.join(str(counts[word] or '') for word in words)} |")
    return "\n".join(lines)


def _cost(lacking: Mapping[str, Sequence[RemainingRuns]], cpu: str | None) -> str:
    """Runs and days that ten seeds of every cell still need, suite by suite."""
    head = ("for ten seeds a cell", "runs", "steps", "days, one run after another", "cells of unknown speed")
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * 4}"]
    for suite, rows in lacking.items():
        seeds, steps = sum(len(row.seeds) for row in rows), sum(row.steps for row in rows)
        unknown = sum(row.hours is None for row in rows)
        days = f"{sum(row.hours or 0.0 for row in rows) / 24:,.1f}"
        lines.append(f"| {suite} | {seeds:,} | {steps:,} | {days} | {unknown or ''} |")
    sentence = (
        f"What is missing, at the speed of the nearest records, made with {escape_markdown(cpu or 'no machine yet')}:"
    )
    blocked = sum(len(row.seeds) for rows in lacking.values() for row in rows if not row.runnable)
    left_out = (
        f"\n\n{blocked:,} of these runs cannot be made, for want of their data; they count no steps." if blocked else ""
    )
    return "\n".join([sentence, "", *lines]) + left_out


def _markdown_section(suite: str, cells: Iterable[Cell], results: Path) -> str:
    figures = [
        f"![{suite}: {kind}](plots/{suite}-{kind}.png)"
        for kind in KINDS
        if (results / "plots" / f"{suite}-{kind}.png").is_file()
    ]
    rows = list(cells)
    table = to_markdown(rows, pooled_rows(rows)).rstrip("\n")
    return "\n\n".join([f"## {suite.capitalize()}", *figures, table])
