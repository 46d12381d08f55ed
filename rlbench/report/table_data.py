"""Cells and pooled rows as scripts read them: under the names of the JSON, and flat for CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlbench.report.estimate import mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rlbench.records.looks import Looks
    from rlbench.report.cells import Cell, Measured
    from rlbench.report.equal_steps import AtStep
    from rlbench.report.pooled import Pooled
    from rlbench.report.reference_table import ReferenceScore


def cell_document(cell: Cell) -> dict[str, object]:
    """A cell as scripts read it."""
    return {
        "suite": cell.key.suite,
        "algorithm": cell.key.algorithm,
        "task": cell.key.task,
        "dataset": cell.key.dataset or None,
        "documented": _fields(cell.documented, _DOCUMENTED) if cell.documented else None,
        "measured": {**_score_document(cell.measured), "origin": _origin(cell)} if cell.measured else None,
        "rlbench": _score_document(cell.rlbench) if cell.rlbench else None,
        "behaviour": cell.experience.behaviour,
        "expert": cell.experience.expert,
        "verdict": str(cell.verdict),
        "shortfall_percent": cell.shortfall_percent,
        "looks": _looks(cell.looks) if cell.looks else None,
        "at": _at(cell.at) if cell.at else None,
        "note": cell.note,
    }


def _origin(cell: Cell) -> str:
    return "imported" if cell.measured and cell.measured.imported else cell.origin or "own"


def pooled_document(row: Pooled) -> dict[str, object]:
    """A pooled row as scripts read it; ``tau`` is in percent, as the difference is."""
    difference, low, high, tau = (100 * value for value in row.meta[:4])
    return {
        "suite": row.suite,
        "algorithm": row.algorithm,
        "kind": row.kind,
        "imported": row.of_imported,
        "cells": row.cells,
        "difference_percent": difference,
        "low": low,
        "high": high,
        "tau": tau,
        "q": row.meta.q,
        "df": row.meta.df,
        "word": row.word,
        "left_out": list(row.left_out),
    }


def _at(at: AtStep) -> dict[str, object]:
    level, (low, high) = at.level, at.interval or (None, None)
    return {
        "step": level.step,
        "reference_step": level.reference_step,
        "word": at.word,
        "documented": {"mean": level.mean, "std": level.std, "n": level.n},
        "measured": {"mean": mean(at.scores), "low": low, "high": high, "n": len(at.scores)},
        "margin": at.margin,
        "shortfall_percent": at.shortfall_percent,
    }


def _looks(looks: Looks) -> dict[str, object]:
    return {
        "taken": looks.count,
        "seeds": [look.seeds for look in looks.design],
        "levels": [look.level for look in looks.design],
    }


def _score_document(score: Measured) -> dict[str, object]:
    return {**_fields(score, _SCORE_FIELDS[:-1]), "seeds": list(score.roots)}


def _fields(score: ReferenceScore | Measured, names: Iterable[str]) -> dict[str, object]:
    return {name: getattr(score, name) for name in names}


_DOCUMENTED = ("score", "std", "n", "estimator", "source")
_SCORE_FIELDS = ("score", "low", "high", "n", "estimator", "env_steps", "env_id", "seeds")
EMPTY: dict[str, object] = {
    "suite": "",
    "algorithm": "",
    "task": "",
    "dataset": "",
    "documented": dict.fromkeys(_DOCUMENTED, ""),
    "measured": dict.fromkeys((*_SCORE_FIELDS, "origin"), ""),
    "rlbench": dict.fromkeys(_SCORE_FIELDS, ""),
    "behaviour": "",
    "expert": "",
    "verdict": "",
    "shortfall_percent": "",
    "looks": dict.fromkeys(("taken", "seeds", "levels"), ""),
    "at": {
        **dict.fromkeys(("step", "reference_step", "word"), ""),
        "documented": dict.fromkeys(("mean", "std", "n"), ""),
        "measured": dict.fromkeys(("mean", "low", "high", "n"), ""),
        **dict.fromkeys(("margin", "shortfall_percent"), ""),
    },
    "note": "",
}


def flat(prefix: str, content: dict[str, object]) -> list[tuple[str, object]]:
    """``documented.score`` as the column ``documented_score``."""
    columns: list[tuple[str, object]] = []
    for name, value in content.items():
        columns += flat(f"{prefix}{name}_", value) if isinstance(value, dict) else [(prefix + name, _field(value))]
    return columns


def _field(value: object) -> object:
    """A value as a field of CSV; a text that a spreadsheet would compute begins with an apostrophe."""
    items = value if isinstance(value, list) else ["" if value is None else value]
    text = " ".join(map(str, items))
    formula = text.startswith(("=", "+", "-", "@")) and any(isinstance(item, str) for item in items)
    return f"'{text}" if formula else text if isinstance(value, list) else items[0]
