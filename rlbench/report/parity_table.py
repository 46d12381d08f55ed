"""Parity as text: for a terminal, Markdown, CSV, JSON or HTML, and as the note of a cell."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Final

from rlbench.config.names import number_text
from rlbench.report.columns import aligned
from rlbench.report.parity import Parity, mean_text, pooled_parity
from rlbench.report.pooled import Meta
from rlbench.report.reference_table import task_name
from rlbench.report.table_data import flat
from rlbench.report.tables import barred, csv_text, html_grid, html_page, inert, json_text, rounded

COLUMNS: Final = (
    "Algorithm", "Task", "Step", "rlbench", "Peer", "Reference", "rlbench - peer", "Bound", "Parity",
    "Peer - reference",
)  # fmt: skip
NUMBERS: Final = {*COLUMNS} - {"Algorithm", "Task", "Parity"}

LEGEND: Final = (
    "rlbench, Peer, Reference: mean over seeds (how many) of the last three evaluations up to the step.",
    "rlbench - peer: both in this environment, with Welch's 95 % interval; a difference here is due to rlbench.",
    "Peer - reference: a difference here is due to the environment, or to a later version of the reference's code.",
    "Bound: the largest shortfall against the peer that the data allow (one-sided, 95 %), in % of the way.",
    "%: of the way from the random policy to the reference at that step; pooled rows are means over cells.",
    "ON PAR, WORSE, BETTER: within a tenth of the way of the peer, below, above, after Holm's correction; else OPEN.",
)


def parity_markdown(rows: Sequence[Parity]) -> str:
    """A table, a row a cell and a pooled row an algorithm, and below it the legend."""
    lines = [barred(COLUMNS), barred(["---:" if name in NUMBERS else "---" for name in COLUMNS])]
    legend = (f"- {inert(line)}" for line in _legend(rows))
    return "\n".join([*lines, *map(barred, _body(rows)), "", *legend]) + "\n"


def parity_plain(rows: Sequence[Parity]) -> str:
    """A table for a terminal."""
    return "\n".join([*aligned([COLUMNS, *_body(rows)]), "", *_legend(rows)]) + "\n"


def parity_html(rows: Sequence[Parity]) -> str:
    """A self-contained page."""
    body = [map(html.escape, row) for row in _body(rows)]
    return html_page(html_grid(COLUMNS, body, NUMBERS), _legend(rows))


def parity_csv(rows: Sequence[Parity]) -> str:
    """One line a cell, one column a field."""
    lines = [flat(parity_document(row)) for row in rows]
    return csv_text(lines, list(lines[0]) if lines else [])


def parity_json(rows: Sequence[Parity]) -> str:
    """The document that scripts read."""
    documents = [
        {
            "suite": row.suite,
            "algorithm": row.algorithm,
            "cells": row.cells,
            "difference_percent": _percents(row.ours),
            "peer_difference_percent": _percents(row.peer),
            "word": row.word,
        }
        for row in pooled_parity(rows)
    ]
    return json_text([parity_document(row) for row in rows], documents)


TEXTS: Final[dict[str, Callable[[Sequence[Parity]], str]]] = {
    "rich": parity_plain, "md": parity_markdown, "csv": parity_csv, "json": parity_json, "html": parity_html,
}  # fmt: skip


def parity_document(row: Parity) -> dict[str, object]:
    """A row as scripts read it; every row has the same fields."""
    low, high = row.interval
    level = row.reference
    return {
        "suite": row.key.suite,
        "algorithm": row.key.algorithm,
        "task": row.key.task,
        "dataset": row.key.dataset or None,
        "library": row.library,
        "packages": list(row.packages),
        "differences": list(row.differences),
        "step": row.step,
        "ours": list(row.ours),
        "peer": list(row.peer),
        "documented": {name: getattr(level, name, None) for name in ("reference_step", "mean", "std", "n")},
        "difference": row.difference,
        "low": low,
        "high": high,
        "bound_percent": row.bound_percent,
        "word": row.word or None,
        "peer_difference": row.peer_difference,
        "peer_percent": row.peer_percent,
    }


def _body(rows: Sequence[Parity]) -> list[list[str]]:
    """The rows of each algorithm, its pooled row last."""
    pooled_cells = {(row.suite, row.algorithm): row for row in pooled_parity(rows)}
    lines = []
    for place, row in enumerate(rows):
        lines.append(_line(row))
        last = place + 1 == len(rows) or rows[place + 1].key[:2] != row.key[:2]
        if last and (whole := pooled_cells.get(row.key[:2])) is not None:
            peer = _share(whole.peer) if whole.peer is not None else ""
            name = f"pooled, {whole.cells} cells"
            lines.append([row.key.algorithm, name, "", "", "", "", _share(whole.ours), "", whole.word, peer])
    return lines


def _line(row: Parity) -> list[str]:
    low, high = row.interval
    level, percent = row.reference, row.peer_percent
    behind = "" if row.peer_difference is None else _signed(row.peer_difference)
    return [
        row.key.algorithm,
        task_name(row.key),
        f"{row.step:,}",
        mean_text(row.ours),
        mean_text(row.peer),
        "" if level is None else f"{rounded(level.mean)} ({level.n})",
        f"{_signed(row.difference)} [{_signed(low)}, {_signed(high)}]",
        "" if row.bound_percent is None else f"≤ {number_text(row.bound_percent, '.0f')} %",
        row.word,
        behind + ("" if percent is None else f" ({number_text(percent, '+.0f')} %)"),
    ]


def _legend(rows: Sequence[Parity]) -> list[str]:
    lines = list(LEGEND)
    lines += [f"Peer: {row}." for row in dict.fromkeys(_peer(row) for row in rows)]
    apart = dict.fromkeys((row.key.algorithm, text) for row in rows for text in row.differences)
    return lines + [f"Not equal in {algorithm}: {text}." for algorithm, text in apart]


def _peer(row: Parity) -> str:
    return " with ".join(filter(None, (row.library, ", ".join(row.packages))))


def _signed(value: float) -> str:
    text = rounded(value)
    return text if text.startswith("-") else f"+{text}"


def _share(meta: Meta) -> str:
    middle, low, high = (number_text(100 * value, "+.1f") for value in meta[:3])
    return f"{middle} % [{low}, {high}]"


def _percents(meta: Meta | None) -> dict[str, float] | None:
    return None if meta is None else {name: 100 * getattr(meta, name) for name in ("mean", "low", "high")}
