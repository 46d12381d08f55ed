"""The Markdown report: cells by verdict, the cost of missing runs, and the tables.

Equal records give equal bytes on any machine: hours are those of the processor with most records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rlbench.report.equal_steps import StepWord
from rlbench.report.pooled import pooled_rows
from rlbench.report.reference_table import SUITES, CellKey, task_name
from rlbench.report.remaining_work import RemainingRuns, remaining_runs
from rlbench.report.run_index import Runs
from rlbench.report.tables import escape_markdown, measured_text, reference_text, to_markdown
from rlbench.report.verdict import UNDECIDABLE, Word

if TYPE_CHECKING:
    from rlbench.report.cells import Cell
    from rlbench.report.sources import Sources

BEGIN, END = "<!-- begin: what was reproduced -->", "<!-- end -->"
KINDS = ("interval", "curves")  # figures that the page shows if they are in ``plots``


def overview(suites: Sequence[str], evidence: Sources) -> str:
    """The report of some suites as Markdown; figures in ``plots`` are linked."""
    runs_by_cell = evidence.runs()
    cpu = _most_used(runs_by_cell)
    cells = {suite: evidence.cells([suite]) for suite in suites}
    lacking = {suite: remaining_runs(suite, evidence, cpu=cpu) for suite in suites}
    sections = [_section(suite, cells[suite], evidence.folders[-1]) for suite in suites]
    return "\n\n".join(["# Results", _totals(cells), _counts(cells), _cost(lacking, cpu), *sections]) + "\n"


def with_reproduced(text: str, evidence: Sources) -> str:
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
        f"Of the INCONCLUSIVE cells, {sum(UNDECIDABLE in cell.note for cell in cells)} are {UNDECIDABLE}.\n"
        f"Against published curves, at the step that their runs have reached, {words_at.total()} cells have a verdict: "
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


def _section(suite: str, cells: Iterable[Cell], results: Path) -> str:
    figures = [
        f"![{suite}: {kind}](plots/{suite}-{kind}.png)"
        for kind in KINDS
        if (results / "plots" / f"{suite}-{kind}.png").is_file()
    ]
    rows = list(cells)
    table = to_markdown(rows, pooled_rows(rows)).rstrip("\n")
    return "\n\n".join([f"## {suite.capitalize()}", *figures, table])
