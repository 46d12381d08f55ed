"""Format cells for a terminal, or as Markdown, CSV, JSON, LaTeX or an HTML page. Equal cells give equal bytes.

``csv`` and ``json`` have every number in full; the others round.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from rlbench.config.names import number_text
from rlbench.report.columns import GAP, aligned, fits, fitted
from rlbench.report.reference_table import DATA, task_name
from rlbench.report.table_data import HEADER, cell_document, flat, pooled_document

if TYPE_CHECKING:
    from rlbench.report.cells import Cell, Measured
    from rlbench.report.pooled import Pooled
    from rlbench.report.reference_table import ReferenceScore

SCHEMA_VERSION = 1  # of the document that ``table --json`` prints; ``data/schema/table.json`` describes it
Style = Literal["green", "cyan", "red", "yellow", "dim"]
STYLES: dict[str, Style] = {
    "REPRODUCED": "green",
    "CONSISTENT": "green",
    "ABOVE": "cyan",
    "BELOW": "red",
    "INCONCLUSIVE": "yellow",
    "PARTIAL": "yellow",
    "NOT COMPARABLE": "dim",
    "NOT RUN": "dim",
}
SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")

REQUIRED = {"Algorithm", "Task", "Documented", "Measured", "Verdict"}
"""Columns that a terminal shows even when they are empty."""

FOLD_WIDTHS = {
    "Task": 14,
    "Documented": 10,
    "Measured": 9,
    "rlbench": 9,
    "Yours": 9,
    "Verdict": 12,
    "At equal steps": 12,
    "Note": 24,
}
"""Columns that a narrow terminal may fold between words, and their least widths."""

COLUMNS: dict[str, Callable[[Cell], str]] = {
    "Suite": lambda cell: cell.key.suite,
    "Algorithm": lambda cell: cell.key.algorithm + " (imported)" * bool(cell.measured and cell.measured.imported),
    "Task": lambda cell: task_name(cell.key),
    "Dataset return": lambda cell: _return_text(cell.dataset_returns.dataset),
    "Behavior policy": lambda cell: _return_text(cell.dataset_returns.behavior_policy),
    "Documented": lambda cell: reference_text(cell.documented) if cell.documented else "",
    "Measured": lambda cell: measured_text(cell.measured) if cell.measured else "",
    "rlbench": lambda cell: measured_text(cell.rlbench) if cell.rlbench else "",
    "Yours": lambda cell: measured_text(cell.measured) if cell.measured and cell.origin == "own" else "",
    "Seeds": lambda cell: str(cell.measured.n) if cell.measured else "",
    "Steps": lambda cell: f"{cell.measured.env_steps:,}" if cell.measured else "",
    "Verdict": lambda cell: str(cell.verdict),
    "Shortfall": lambda cell: shortfall_text(cell.shortfall_percent),
    "At equal steps": lambda cell: str(cell.at) if cell.at else "",
    "Note": lambda cell: cell.note,
}
"""The text of a cell in each column."""

SPARSE = {"Dataset return", "Behavior policy", "Shortfall", "At equal steps"}
"""Columns that a table has only where a cell has a text in them."""

OPTIONAL = ("Note", "Steps", "Shortfall", "Seeds", "Behavior policy", "Dataset return", "At equal steps")
"""Columns that a narrow terminal omits, in this order; the notes then stand below the table."""

SCORES = ("Documented", "Measured", "rlbench", "Yours")  # they fold only after all of ``OPTIONAL`` are omitted
NUMBERS = {"Dataset return", "Behavior policy", *SCORES, "Seeds", "Steps", "Shortfall"}
LATEX: Final = str.maketrans(
    {sign: "\\" + sign for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "±": r"$\pm$", "≤": r"$\leq$", "≈": r"$\approx$", "−": "$-$"}
)
"""Characters that LaTeX reads as commands or cannot print."""


def to_markdown(cells: Sequence[Cell], pooled_rows: Sequence[Pooled] = ()) -> str:
    """A table for a README, and below it the pooled rows and the legend."""
    header = columns(cells)
    rule = ["---:" if name in NUMBERS else "---" for name in header]
    lines = [markdown_row(header), markdown_row(rule), *(markdown_row(_row(cell, header)) for cell in cells)]
    texts = (f"- {line.replace('<', '&lt;').replace('](', ']&#40;')}" for line in legend(cells, pooled_rows))
    return "\n".join([*lines, "", *texts]) + "\n"


def to_csv(cells: Sequence[Cell], pooled_rows: Sequence[Pooled] = ()) -> str:
    """One line per cell, one column per field; a missing number is empty. Pooled rows are left out."""
    del pooled_rows
    file = io.StringIO()
    writer = csv.DictWriter(file, HEADER, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat(cell_document(cell)) for cell in cells)
    return file.getvalue()


def to_latex(cells: Sequence[Cell], pooled_rows: Sequence[Pooled] = ()) -> str:
    """A table for a paper, by the package ``booktabs``; without notes, and the legend above it as comments."""
    header, rows = _nonempty_columns(cells)
    columns = [index for index, name in enumerate(header) if name != "Note"]
    sides = "".join("r" if header[index] in NUMBERS else "l" for index in columns)
    titles, *lines = (" & ".join(row[i].translate(LATEX) for i in columns) + r" \\" for row in (header, *rows))
    comments = [f"% {line}" for line in (r"\usepackage{booktabs}", *legend(cells, pooled_rows))]
    table = [
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        titles,
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([*comments, *table]) + "\n"


def to_json(cells: Sequence[Cell], pooled_rows: Sequence[Pooled] = ()) -> str:
    """The document that scripts read."""
    return json_text([cell_document(cell) for cell in cells], [pooled_document(row) for row in pooled_rows])


def json_text(cells: Sequence[object], pooled_cells: Sequence[object]) -> str:
    """A document of cells and pooled rows."""
    content = {"schema_version": SCHEMA_VERSION, "cells": cells, "pooled": pooled_cells}
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def to_html(cells: Sequence[Cell], pooled_rows: Sequence[Pooled] = ()) -> str:
    """One self-contained page."""
    template = (DATA / "table.html").read_text(encoding="utf-8")
    return template.replace("{{table}}", html_table(cells)).replace("{{legend}}", html_legend(cells, pooled_rows))


def html_legend(cells: Sequence[Cell], pooled_rows: Sequence[Pooled]) -> str:
    """The legend as items of an HTML list."""
    return "\n".join(f"<li>{html.escape(line)}</li>" for line in legend(cells, pooled_rows))


def html_grid(head: Sequence[str], rows: Iterable[Iterable[str]], numbers: Collection[str]) -> str:
    """A table of fields in HTML; the columns of ``numbers`` are right-aligned."""
    sides = [' class="number"' if name in numbers else "" for name in head]
    titles = "".join(f"<th{side}>{name}</th>" for side, name in zip(sides, head, strict=True))
    lines = (zip(sides, row, strict=True) for row in rows)
    body = "\n".join(f"<tr>{''.join(f'<td{side}>{field}</td>' for side, field in line)}</tr>" for line in lines)
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def html_table(cells: Sequence[Cell]) -> str:
    """The table alone; a note stands below its row, as wide as the table."""
    header = [name for name in _nonempty_columns(cells)[0] if name not in {"Note", "Verdict"}]
    header.insert(header.index("Task") + 1, "Verdict")
    head = "".join(f"<th{_classes(name)}>{name}</th>" for name in header)
    body = "\n".join(_html_row(cell, header) for cell in cells)
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<div class="scroll">\n{table}\n</div>'


def to_plain(cells: Sequence[Cell], pooled_rows: Sequence[Pooled] = ()) -> str:
    """A table for people, as wide as it needs, in plain text."""
    header, rows = _nonempty_columns(cells)
    numbers = [index for index, name in enumerate(header) if name in NUMBERS]
    return "\n".join([*aligned([header, *rows], numbers=numbers), "", *legend(cells, pooled_rows)]) + "\n"


def to_rich(cells: Sequence[Cell], pooled_rows: Sequence[Pooled] = (), *, width: int) -> str:
    """A table for a terminal of ``width`` columns: coloured, folded between words, the notes below where need be."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    header, rows = _nonempty_columns(cells)
    if "Suite" in header and _min_width(header, rows) > width:
        parts = {cell.key.suite: [c for c in cells if c.key.suite == cell.key.suite] for cell in cells}
        rows_of = {suite: [row for row in pooled_rows if row.suite == suite] for suite in parts}
        return "\n".join(f"{suite}\n\n{to_rich(part, rows_of[suite], width=width)}" for suite, part in parts.items())
    hidden = []
    for name in OPTIONAL:
        if name in header and _min_width(header, rows, whole=SCORES) > width:
            index = header.index(name)
            hidden += [name] if name != "Note" else []
            header, *rows = ([*row[:index], *row[index + 1 :]] for row in (header, *rows))
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    columns_of_text = list(zip(header, *rows, strict=True))
    longest = [max(map(len, texts)) for texts in columns_of_text]
    widths = longest if fits(longest, width) else fitted(columns_of_text, _min_widths(header, rows), width)
    for name, wide in zip(header, widths, strict=True):
        table.add_column(name, justify=SIDES[name in NUMBERS], no_wrap=name not in FOLD_WIDTHS, width=wide)
    for cell, row in zip(cells, rows, strict=True):
        texts = [Text(text) for text in row]
        texts[header.index("Verdict")].stylize(STYLES[cell.verdict.word])
        table.add_row(*texts)
    below = [] if "Note" in header else _grouped_notes(cells)
    below += [line for line in legend(cells, pooled_rows) if line.partition(":")[0] not in hidden]
    if hidden:
        below.append(f"Left out for want of width: {', '.join(hidden)}; a wider terminal or --format csv has them.")
    # both sizes: without a height rich takes every dumb terminal to be 80 columns wide
    console = Console(file=io.StringIO(), width=max(width, _min_width(header, rows)), height=1, force_terminal=True)
    with console.capture() as captured:
        console.print(table, *(Text(line) for line in ("", *below)), sep="\n", crop=False)
    return "\n".join(line.rstrip() for line in captured.get().strip("\n").split("\n")) + "\n"


def _min_width(header: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Collection[str] = ()) -> int:
    """The least width of a table in a terminal, folded except for its columns ``whole``."""
    return sum(_min_widths(header, rows, whole=whole)) + GAP * (len(header) - 1)


def _min_widths(header: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Collection[str] = ()) -> list[int]:
    """The least width of each column."""
    widths = []
    for name, *texts in zip(header, *rows, strict=True):
        longest = max(map(len, (name, *texts)))
        narrow = longest if name in whole else FOLD_WIDTHS.get(name, longest)
        longest_word = max((len(word) for text in (name, *texts) for word in text.split()), default=1)
        widths.append(max(longest_word, min(longest, narrow)))
    return widths


def _grouped_notes(cells: Sequence[Cell]) -> list[str]:
    """Every distinct note with its cells."""
    cells_by_note: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        for note in filter(None, cell.note.split("; ")):
            cells_by_note.setdefault(note, {}).setdefault(cell.key.algorithm, []).append(task_name(cell.key))
    lines = []
    for note, tasks_by_algorithm in cells_by_note.items():
        algorithms_by_tasks: dict[tuple[str, ...], list[str]] = {}
        for algorithm, tasks in tasks_by_algorithm.items():
            algorithms_by_tasks.setdefault(tuple(tasks), []).append(algorithm)
        places = (f"{', '.join(names)} on {', '.join(tasks)}" for tasks, names in algorithms_by_tasks.items())
        lines.append(f"{'; '.join(places)}: {note}.")
    return [*lines, ""] if lines else []


def _nonempty_columns(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    everything = columns(cells)
    rows = [_row(cell, everything) for cell in cells]
    indices = [index for index, name in enumerate(everything) if name in REQUIRED or any(row[index] for row in rows)]
    return [everything[index] for index in indices], [[row[index] for index in indices] for row in rows]


TEXTS: dict[str, Callable[[Sequence[Cell], Sequence[Pooled]], str]] = {
    "rich": to_plain,
    "md": to_markdown,
    "csv": to_csv,
    "json": to_json,
    "html": to_html,
    "latex": to_latex,
}
"""Every format by the name it has on the command line."""


def columns(cells: Sequence[Cell]) -> list[str]:
    """The columns that a table of these cells needs."""
    two_sources = any(cell.origin for cell in cells)
    conditions = {name: any(map(COLUMNS[name], cells)) for name in SPARSE}
    conditions |= {"Measured": not two_sources, "rlbench": two_sources, "Yours": two_sources}
    conditions["Suite"] = len({cell.key.suite for cell in cells}) > 1
    return [name for name in COLUMNS if conditions.get(name, True)]


def legend(cells: Sequence[Cell], pooled_rows: Sequence[Pooled] = ()) -> list[str]:
    """The pooled rows, and the meaning of the columns: one line a kind of reference."""
    kinds = dict.fromkeys(_kind(cell.documented) for cell in cells if cell.documented)
    several = len({row.suite for row in pooled_rows}) > 1
    lines = [f"Pooled: {f'{row.suite} ' if several else ''}{row}." for row in pooled_rows]
    lines += [f"Documented: {kind}." for kind in kinds]
    if any(cell.documented and _unit(cell.documented.estimator) for cell in cells):
        lines.append("%: on D4RL's scale, where a random policy has 0 and the expert 100.")
    if any(cell.dataset_returns.dataset is not None for cell in cells):
        lines.append(
            "Dataset return: mean return of the data's whole episodes; Behavior policy: of the policy without its "
            "noise."
        )
    if any(cell.measured for cell in cells):
        score = "mean over seeds by the reference's estimator, with the 95 % t-interval of that mean."
        lines.append(f"{'rlbench' if cells[0].origin else 'Measured'}: {score}")
    if any(cell.origin == "own" for cell in cells):
        lines.append("Yours: the same of your runs in runs/; where there are any, seeds, steps and verdict are theirs.")
    if any(cell.shortfall_percent is not None for cell in cells):
        level = "95 %, or one minus the level of a look" if any(cell.looks for cell in cells) else "95 %"
        lines.append(
            f"Shortfall: the largest that the data allow (one-sided, {level}), of the way from the random policy to "
            "the documented score; negative is above it."
        )
    if any(cell.at for cell in cells):
        lines.append("At equal steps: against the documented curve at that step; it says nothing about the end.")
    return lines


def _kind(score: ReferenceScore) -> str:
    seeds = "" if score.n is None else ", one run" if score.n == 1 else f", {score.n} seeds"
    system = "" if score.system == score.source else f"{score.system}, "
    return f"{system}{score.source} ({score.estimator}{seeds})"


def _row(cell: Cell, header: Sequence[str]) -> list[str]:
    return [COLUMNS[name](cell) for name in header]


def reference_text(score: ReferenceScore) -> str:
    """A published number with as many digits as were printed."""
    spread = "" if score.std is None else f" ± {score.std:,.10g}"
    return f"{score.score:,.10g}{spread}{_unit(score.estimator)}"


def measured_text(score: Measured) -> str:
    """A measured score with its interval."""
    unit = _unit(score.estimator)
    if score.low is None or score.high is None:
        return score_text(score.score) + unit
    return f"{score_text(score.score)} [{score_text(score.low)}, {score_text(score.high)}]{unit}"


def _unit(estimator: str) -> str:
    return " %" if estimator.startswith("normalized") else ""


def shortfall_text(percent: float | None) -> str:
    """The largest shortfall that the data allow; empty where none is known."""
    return "" if percent is None else f"≤ {number_text(percent, 'z.0f')} %"


def _return_text(value: float | None) -> str:
    return "" if value is None else number_text(value, ",.1f")


def score_text(value: float) -> str:
    """A number rounded for people."""
    text = number_text(value, ",.1f" if abs(value) >= 100 else ".2f")
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def markdown_row(texts: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(escape_markdown(text).replace("|", "\\|") for text in texts) + " |"


def escape_markdown(text: str) -> str:
    """A text of a record as Markdown that shows it: without HTML, links, images and mentions."""
    active = r"(?<=:)/(?=/)|(?i:(?<=\bwww))\.|(?<=\])\(|(?<![^\W_])@(?=[A-Za-z])"
    return re.sub(active, lambda match: f"&#{ord(match[0])};", text.replace("<", "&lt;"))


def _html_row(cell: Cell, header: Sequence[str]) -> str:
    texts = [html.escape(text) for text in _row(cell, header)]
    index = header.index("Verdict")
    texts[index] = f'<span class="word {STYLES[cell.verdict.word]}">{texts[index]}</span>'
    fields = "".join(f"<td{_classes(name)}>{text}</td>" for name, text in zip(header, texts, strict=True))
    if not cell.note:
        return f"<tr>{fields}</tr>"
    below = f'<tr class="note"><td colspan="{len(header)}">{html.escape(cell.note)}</td></tr>'
    return f'<tr class="noted">{fields}</tr>\n{below}'


def _classes(name: str) -> str:
    """The classes of a column's fields: numbers are right-aligned, and a narrow screen does without ``spare``."""
    classes = [*(["number"] if name in NUMBERS else []), *(["spare"] if name in OPTIONAL else [])]
    return f' class="{" ".join(classes)}"' if classes else ""
