"""Cells and pooled rows as scripts read them: under the names of the JSON, and flat for CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rlbench.config.overrides import flatten
from rlbench.report.estimate import mean

if TYPE_CHECKING:
    from rlbench.report.cells import Cell, Measured
    from rlbench.report.equal_steps import EqualSteps
    from rlbench.report.pooled import Pooled


def cell_document(cell: Cell) -> dict[str, object]:
    """A cell as scripts read it."""
    origin = "imported" if cell.measured and cell.measured.imported else cell.origin or "own"
    return {
        **cell.key.document(),
        "documented": cell.documented and fields(cell.documented, "score std n estimator source"),
        "measured": {**_score_document(cell.measured), "origin": origin} if cell.measured else None,
        "rlbench": cell.rlbench and _score_document(cell.rlbench),
        "behaviour": cell.dataset_returns.dataset,
        "expert": cell.dataset_returns.behavior_policy,
        "verdict": str(cell.verdict),
        "shortfall_percent": cell.shortfall_percent,
        "looks": {
            "taken": cell.looks.count,
            "seeds": [look.seeds for look in cell.looks.design],
            "levels": [look.level for look in cell.looks.design],
        }
        if cell.looks
        else None,
        "at": cell.at and _at(cell.at),
        "note": cell.note,
    }


def pooled_document(row: Pooled) -> dict[str, object]:
    """A pooled row as scripts read it; ``tau`` is in percent, as the difference is."""
    difference, low, high, tau = (100 * value for value in row.meta[:4])
    return {
        **fields(row, "suite algorithm kind"),
        "imported": row.of_imported,
        "cells": len(row.keys),
        "difference_percent": difference,
        "low": low,
        "high": high,
        "tau": tau,
        **fields(row.meta, "q df"),
        **fields(row, "word left_out"),
    }


def _at(at: EqualSteps) -> dict[str, object]:
    point, (low, high) = at.reference, at.interval or (None, None)
    return {
        **fields(point, "step reference_step"),
        "word": at.word,
        "documented": fields(point, "mean std n"),
        "measured": {"mean": mean(at.scores), "low": low, "high": high, "n": len(at.scores)},
        **fields(at, "margin shortfall_percent"),
    }


def _score_document(score: Measured) -> dict[str, object]:
    return {**fields(score, "score low high n estimator env_steps env_id"), "seeds": list(score.seeds)}


def fields(row: object, names: str) -> dict[str, object]:
    """The fields of a row by name; ``names`` are blank-separated."""
    return {name: getattr(row, name) for name in names.split()}


HEADER: Final = (
    "suite", "algorithm", "task", "dataset", "documented_score", "documented_std", "documented_n",
    "documented_estimator", "documented_source", "measured_score", "measured_low", "measured_high", "measured_n",
    "measured_estimator", "measured_env_steps", "measured_env_id", "measured_seeds", "measured_origin",
    "rlbench_score", "rlbench_low", "rlbench_high", "rlbench_n", "rlbench_estimator", "rlbench_env_steps",
    "rlbench_env_id", "rlbench_seeds", "behaviour", "expert", "verdict", "shortfall_percent", "looks_taken",
    "looks_seeds", "looks_levels", "at_step", "at_reference_step", "at_word", "at_documented_mean",
    "at_documented_std", "at_documented_n", "at_measured_mean", "at_measured_low", "at_measured_high",
    "at_measured_n", "at_margin", "at_shortfall_percent", "note",
)  # fmt: skip
"""The columns of the CSV."""


def flat(content: Mapping[str, object]) -> dict[str, object]:
    """``documented.score`` as the column ``documented_score``."""
    return {setting.path.replace(".", "_"): _field(setting.value) for setting in flatten(content, "")}


def _field(value: object) -> object:
    """A value as a field of CSV; a text that a spreadsheet would compute begins with an apostrophe."""
    items = value if isinstance(value, list) else ["" if value is None else value]
    text = " ".join(map(str, items))
    formula = text.startswith(("=", "+", "-", "@")) and any(isinstance(item, str) for item in items)
    return f"'{text}" if formula else text if isinstance(value, list) else items[0]
