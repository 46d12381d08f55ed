"""Documented learning curves: mean and std over seeds at each evaluation, thinned to what a figure can show."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache

from rlbench.report.reference_table import DATA, CellKey, row_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One documented curve; the three tuples are equally long."""

    n: int  # seeds
    uncounted_steps: int  # random steps that the agent takes before the curve's clock starts
    source: str
    env_steps: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@cache
def documented_curves() -> dict[CellKey, Curve]:
    """Curves by cell; where two documents draw one, that of more seeds."""
    found: dict[CellKey, Curve] = {}
    with (DATA / "documented_curves.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = CellKey(row["suite"], row["algorithm"], *row_of(row["suite"], row["task"], ""))
            curve = Curve(
                n=int(row["n"]),
                uncounted_steps=int(row["uncounted_steps"]),
                source=row["source"],
                env_steps=tuple(map(int, row["env_steps"].split())),
                mean=tuple(map(float, row["mean"].split())),
                std=tuple(map(float, row["std"].split())),
            )
            if key not in found or curve.n > found[key].n:
                found[key] = curve
    return found
