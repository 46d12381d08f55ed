"""The published numbers of a cell, each with its source, protocol and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rlbench import suites
from rlbench.errors import UnknownName
from rlbench.report.reference_files import selected_name
from rlbench.report.reference_scores import (
    ReferenceCell,
    comparable,
    curve_of,
    margin,
    margin_reaches_random,
    matching,
    reference_cells,
    resolution,
    sourced_notes,
    threshold,
)
from rlbench.report.reference_table import OPTIMUM, CellKey, ReferenceScore, protocol_of, scale_of, task_name
from rlbench.report.tables import reference_text
from rlbench.report.verdict import MIN_SEEDS_RULE


def cells_of(suite: str, algorithm: str, task: str) -> tuple[ReferenceCell, ...]:
    """The documented cells of a suite, algorithm and task; several if the task has several data sets.

    Raises:
        UnknownName: nothing is documented under one of the names; the nearest are in the message.
    """
    if suite not in suites.names():
        raise UnknownName("suite", suite, suites.names())
    cells = {cell.key: cell for cell in reference_cells(suite)}
    where = f"reference scores of {suite} {algorithm}"
    return tuple(cells[key] for key in matching(list(cells), where, tasks=[task], algorithms=[algorithm]))


def provenance_text(cells: Sequence[ReferenceCell]) -> str:
    """One paragraph a reference, the primary one first."""
    return "\n\n".join("\n".join(_lines(cell)) for cell in cells)


def provenance_document(cells: Sequence[ReferenceCell]) -> dict[str, object]:
    """The same for scripts."""
    return {
        "cells": [
            {
                **cell.key._asdict(),
                "margin": _margin(cell),
                "notes": [note.text for note in sourced_notes(cell.key)],
                "note_sources": [note.source for note in sourced_notes(cell.key)],
                "primary": _fields(cell.key, cell.primary),
                "others": [_fields(cell.key, other) for other in cell.others],
            }
            for cell in cells
        ]
    }


def _lines(cell: ReferenceCell) -> list[str]:
    key, scale, curve = cell.key, scale_of(cell.key), curve_of(cell.key)
    lines = [f"{key.suite} {key.algorithm} {task_name(key)}"]
    for note in sourced_notes(key):
        lines += [f"  note       {note.text}", *(f"             {source}" for source in note.source.split())]
    if scale is not None:
        goal = "" if scale.goal is None else f", goal {scale.goal:,.6g}"
        lines.append(f"  scale      random policy {scale.random:,.6g}{goal}")
    lines += _test(cell)
    if curve is not None:
        steps = f"{curve.env_steps[-1]:,} steps"
        lines.append(f"  curve      {len(curve.mean)} points to {steps}, {curve.n} seeds, {curve.source}")
    lines += [
        "",
        f"  {'chosen' if cell.primary.system == selected_name() else 'primary'}",
        *_paragraph(key, cell.primary),
    ]
    for other in cell.others:
        lines += ["", "  also", *_paragraph(key, other)]
    return lines


def _paragraph(key: CellKey, score: ReferenceScore) -> list[str]:
    seeds = "not stated" if score.n is None else str(score.n)
    interval = "" if score.low is None or score.high is None else f"  [{score.low:,.10g}, {score.high:,.10g}]"
    protocol = protocol_of(key, score)
    rows = {
        "score": reference_text(score) + interval,
        "estimator": f"{score.estimator}: {score.metric}" if score.metric else score.estimator,
        "seeds": seeds if score.source != OPTIMUM else "none: by arithmetic",
        "kind": "training returns" if score.kind == "training" else "",
        "steps": score.steps,
        "on": " with ".join(filter(None, (score.task, score.dataset))),
        "protocol": "\n               ".join([protocol.text, *protocol.source.split()]),
        "settings": score.variant,
        "system": score.system,
        "source": score.source,
        "remark": score.note,
    }
    return [f"    {name:<9}  {text}" for name, text in rows.items() if text]


def _fields(key: CellKey, score: ReferenceScore) -> dict[str, object]:
    fields = {name: value for name, value in asdict(score).items() if name != "resolution"}  # the score says it
    protocol = protocol_of(key, score)
    return {**fields, "protocol": protocol.text, "protocol_source": protocol.source}


def _margin(cell: ReferenceCell) -> float | None:
    """The margin that the verdict uses; None where a cell is compared with nothing."""
    return margin(cell.key, cell.primary) if comparable(cell.key, cell.primary) else None


def _test(cell: ReferenceCell) -> list[str]:
    key, reference, tolerance = cell.key, cell.primary, _margin(cell)
    if tolerance is None:
        return []
    several = reference.source == OPTIMUM or (reference.n or 1) > 1
    if margin_reaches_random(key, reference, tolerance):
        use = "reaches the random policy, so nothing is called reproduced"
    elif several:
        use = "below the reference score still counts as reproduced"
    else:
        use = "from the reference score, of a single run, is neither BELOW nor ABOVE"
    lines = [f"  margin     {tolerance:,.6g} {use}"]
    if not several:
        lines.append(
            f"  resolution {resolution(key, reference):,.6g}: seeds are taken to lie apart by as much at least"
        )
    if (stop := threshold(key, reference)) is not None:
        lines.append(f"  threshold  {stop:,.6g}, where both sides stop: the verdict is about reaching it, and how soon")
    return [*lines, f"  seeds      {MIN_SEEDS_RULE}"]
