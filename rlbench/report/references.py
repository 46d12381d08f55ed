"""What scores are measured against: the random policy, a human player, D4RL's experts. Sources: ``data/README.md``."""

from __future__ import annotations

import csv
from functools import cache
from typing import NamedTuple

from rlbench.report.reference_table import DATA, OWN, CellKey, ReferenceScore, base_of


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
