"""Fixed points and published learning curves: random policies, humans, D4RL's experts. Sources: ``data/README.md``."""

from __future__ import annotations

import csv
from functools import cache
from typing import NamedTuple

from rlbench.report.reference_table import DATA, OWN, CellKey, Curve, ReferenceScore, base_of, row_of


class Reference(NamedTuple):
    """Two fixed points of a task's scale, in raw points."""

    random: float  # of a policy that draws its actions
    goal: float | None  # a human's score on Atari, the expert's in D4RL; None where nobody has set one


@cache
def of_tasks() -> dict[str, Reference]:
    """Tasks by name without version."""
    with (DATA / "references.csv").open(encoding="utf-8", newline="") as file:
        return {r["task"]: Reference(float(r["random"]), _number(r["human"])) for r in csv.DictReader(file)}


@cache
def of_datasets() -> dict[str, Reference]:
    """D4RL's data sets by name."""
    with (DATA / "d4rl_refs.csv").open(encoding="utf-8", newline="") as file:
        return {r["dataset"]: Reference(float(r["random"]), float(r["expert"])) for r in csv.DictReader(file)}


def reference(key: CellKey) -> Reference | None:
    """The scale of a cell in raw points, if it is known."""
    if key.dataset and key.dataset in of_datasets():
        return of_datasets()[key.dataset]
    if key.dataset.startswith(OWN):  # the same world's random policy and expert
        return of_datasets().get(f"{base_of(key.task).lower()}-medium-v2")
    return of_tasks().get(base_of(key.task))


def normalized(raw: float, scale: Reference) -> float:
    """A score between the random policy's 0 and the goal's 1: human-normalised on Atari, D4RL's share on its data.

    Raises:
        ValueError: the task has no goal.
    """
    if scale.goal is None or scale.goal == scale.random:
        raise ValueError("this task has no goal to be normalised by")
    return (raw - scale.random) / (scale.goal - scale.random)


def in_points(document: ReferenceScore, scale: Reference | None) -> float:
    """A published score in raw points, which is what runs are drawn and compared in.

    Raises:
        ValueError: it is normalised, and by what nobody knows.
    """
    if not document.estimator.startswith("normalized"):
        return document.score
    if scale is None or scale.goal is None:
        raise ValueError("a normalised score needs the scale of its data set")
    return scale.random + document.score / 100 * (scale.goal - scale.random)


def _number(text: str) -> float | None:
    return float(text) if text else None


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
