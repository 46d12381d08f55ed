"""The published scores in the package's data files: one row per score, each with its source."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pydantic import TypeAdapter

from rlbench.config.names import steps_text
from rlbench.config.tasks import GYM
from rlbench.errors import RlbenchError, UsageError
from rlbench.records.types import Estimator

if TYPE_CHECKING:
    from rlbench.config.run import Spec
    from rlbench.suites.plugins import Package

DATA = Path(__file__).parent / "data"
OPTIMUM = "known optimum"  # the source of a score that is known by arithmetic

FILES = ("documented_scores.csv", "d4rl_scores.csv", "atari_offline_scores.csv")
"""Tianshou's and what it cites; then what others published on recorded data, all of it offline."""

ROBOTS = {"halfcheetah": "HalfCheetah-v2", "hopper": "Hopper-v2", "walker2d": "Walker2d-v2", "ant": "Ant-v2"}
"""MuJoCo tasks by what D4RL's data sets begin with."""

UNNORMALIZED = "w/o norm-obs"  # the mark of a reference row for ``…-raw``: observations without normalization
OWN = "rlb-"  # prefix of the names of our own data sets
VERSIONED = ("mujoco", "goals")  # suites whose references have older versions of the tasks, which run as v4 here


class CellKey(NamedTuple):
    """The key of a cell: suite, algorithm, task and data set."""

    suite: str
    algorithm: str
    task: str
    dataset: str  # empty where the task is all there is

    def document(self) -> dict[str, str | None]:
        """The key as scripts read it."""
        return {**self._asdict(), "dataset": self.dataset or None}


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceScore:
    """One published number."""

    score: float
    std: float | None = None  # over seeds, as printed
    low: float | None = None  # of a printed interval
    high: float | None = None
    n: int | None = None  # seeds; None where the reference does not say
    estimator: Estimator
    steps: str = ""  # as printed
    metric: str = ""  # the estimator in the reference's own terms
    variant: str = ""  # what was set differently from the script's defaults
    system: str
    source: str  # file and commit
    note: str = ""
    task: str = ""  # the environment's id in the reference
    dataset: str = ""  # in the reference's words
    protocol: str = ""  # as an outside reference states it
    kind: Literal["evaluation", "training"] = "evaluation"  # as an outside reference states it
    resolution: float = 0.0  # of the last printed digit of the score

    @property
    def stops(self) -> bool:
        """True if the run ended once an evaluation reached a threshold."""
        return "stop" in self.steps

    @property
    def steps_to_threshold(self) -> int | None:
        """The agent steps after which the run stopped; None where the reference names a bound or nothing."""
        match = re.match(r"~([0-9.]+)M ", self.steps) if self.stops else None
        return round(float(match[1]) * 1e6) if match else None

    @property
    def limit(self) -> int | None:
        """The agent steps within which the score was reached; None where ``steps`` is no plain number."""
        match = re.fullmatch(r"([0-9.]+)([kM])( \(max at \d+\))?", self.steps)
        return round(float(match[1]) * {"k": 1e3, "M": 1e6}[match[2]]) if match else None


_SCORES: Final = TypeAdapter(ReferenceScore)


def base_of(task: str) -> str:
    """A task's name without its version: ``Ant`` of ``Ant-v3``."""
    return re.sub(r"-v\d+$", "", task)


def row_of(suite: str, task: str, dataset: str) -> tuple[str, str]:
    """Task and data set of the row that a task belongs to, whatever version of it a reference or a run names."""
    if suite in VERSIONED and not task.startswith(GYM):
        return base_of(task) + "-v4", dataset
    if suite == "offline" and (dataset or task):
        name = (dataset or task).lower()
        body = ROBOTS.get(name.removeprefix(OWN).split("-")[0])
        if body is not None and (name.startswith(OWN) or dataset or task.lower() != base_of(task).lower() + "-v4"):
            return base_of(body) + "-v4" if name.startswith(OWN) else body, name
        buffer = re.search(r"buffer (\d+) transitions", dataset)
        if buffer is not None:
            return task, f"qrdqn-{steps_text(int(buffer[1]))}"
    return task, dataset


def cell_of(spec: Spec) -> CellKey:
    """The cell that a run of these settings belongs to."""
    return CellKey(spec.suite, spec.algorithm, *row_of(spec.suite, spec.task.id, getattr(spec.task, "dataset", "")))


@cache
def documented_spec(
    suite: str, algorithm: str, task: str, dataset: str = "", package: Package | None = None
) -> Spec | None:
    """The documented settings of a cell, or None where this version has none; of other data, those they begin with.

    Data that are a row of the table are meant to be learned from as that row.
    """
    from rlbench import suites

    try:
        row = bool(dataset) and dataset in suites.tasks(suite)
        return suites.spec(suite, algorithm, dataset if row else task, dataset="" if row else dataset, package=package)
    except UsageError:  # an unknown name is one
        return None


Line = dict[str, str]  # a row of a file, by its header
SOURCE = re.compile(r"([\w.-]+/[\w.-]+:|rlbench:)?[^\s:@]+@[0-9a-f]{7,40}")
"""A file at a commit: of thu-ml/tianshou, or of the repository named before the colon (``rlbench`` is this one)."""


@cache
def data_rows(name: str) -> tuple[Line, ...]:
    """The rows of a CSV file of the package."""
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


@cache
def sourced(name: str) -> tuple[Line, ...]:
    """The rows of a file of claims about others' code, each with the blank-separated files and commits that show it.

    Raises:
        RlbenchError: a row names no file and commit.
    """
    rows = data_rows(name)
    for number, row in enumerate(rows, start=2):
        sources = (row.get("source") or "").split()
        if not sources or not all(SOURCE.fullmatch(source) for source in sources):
            raise RlbenchError(
                f"{DATA / name}: row {number} names no file and commit; write PATH@COMMIT in its column source"
            )
    return rows


class SourcedText(NamedTuple):
    """A sentence about published numbers: an evaluation procedure, or a caveat about comparing with them."""

    text: str
    source: str  # the files and commits that show it, blank-separated


def protocol_of(key: CellKey, number: ReferenceScore) -> SourcedText:
    """The evaluation procedure behind a published number of a cell; empty where nothing is known of it."""
    if number.protocol:
        return SourcedText(number.protocol, number.source)
    for row in sourced("protocols.csv"):
        alike = (
            any(fnmatchcase(key.algorithm, glob) for glob in row["algorithms"].split())
            and fnmatchcase(number.system, row["systems"])
            and fnmatchcase(number.source, row["documents"])
        )
        if row["suite"] == key.suite and alike:
            return SourcedText(row["protocol"], row["source"])
    return SourcedText("", "")


@cache
def published_scores(suite: str) -> dict[CellKey, list[ReferenceScore]]:
    """Every published number of a suite by cell, in the order of the data."""
    scores: dict[CellKey, list[ReferenceScore]] = {}
    for name in FILES if suite == "offline" else FILES[:1]:
        for line in data_rows(name):
            if line["score"] and line.get("suite", suite) == suite:
                algorithm = line["algorithm"] + ("-raw" if line.get("variant") == UNNORMALIZED else "")
                key = CellKey(suite, algorithm, *row_of(suite, line.get("task", ""), line["dataset"]))
                scores.setdefault(key, []).append(parse_score(line))
    return scores


def parse_score(line: Line) -> ReferenceScore:
    """A row as a reference."""
    fields = {name: text for name, text in line.items() if text}
    return _SCORES.validate_python(fields | {"resolution": last_digit(line["score"])})


def last_digit(text: str) -> float:
    """The unit of a number's last printed digit: 0.1 of ``20.2``, 1 of ``316``.

    Raises:
        RlbenchError: the number is not finite.
    """
    exponent = Decimal(text).as_tuple().exponent
    if not isinstance(exponent, int):
        raise RlbenchError(f"{DATA}: {text!r} is no score; write a finite number")
    return float(Decimal(1).scaleb(exponent))


def task_name(key: CellKey) -> str:
    """A task as a table shows it; D4RL's data sets are named after theirs."""
    if not key.dataset or key.dataset in dataset_scales():
        return key.dataset or key.task
    return f"{key.task} on {key.dataset}"


def cell_name(key: CellKey) -> str:
    """``toy/dqn/Catch``."""
    return f"{key.suite}/{key.algorithm}/{task_name(key)}"


def estimator_of(key: CellKey, reference: ReferenceScore | None) -> Estimator:
    """The estimator of a cell's scores; one without a reference has the estimator of its suite."""
    return reference.estimator if reference else "final" if key.suite == "offline" else "best-of-run"


def on_scale(scale: Scale | None, estimator: str) -> float | None:
    """The random policy's score on the estimator's scale."""
    if scale is None:
        return None
    return 100 * scale.normalized(scale.random) if estimator.startswith("normalized") else scale.random


class Scale(NamedTuple):
    """Two fixed points of a task's scale, in raw points."""

    random: float  # of a policy that draws its actions
    goal: float | None  # a human's score on Atari, the expert's in D4RL; None where nobody has set one

    def normalized(self, raw: float) -> float:
        """A score between the random policy's 0 and the goal's 1: human-normalised on Atari, D4RL's share on its data.

        Raises:
            ValueError: the task has no goal.
        """
        if self.goal is None or self.goal == self.random:
            raise ValueError("this task has no goal to be normalised by")
        return (raw - self.random) / (self.goal - self.random)


@cache
def task_scales() -> dict[str, Scale]:
    """Tasks by name without version."""
    return {
        row["task"]: Scale(float(row["random"]), float(row["human"]) if row["human"] else None)
        for row in data_rows("references.csv")
    }


@cache
def dataset_scales() -> dict[str, Scale]:
    """D4RL's data sets by name."""
    return {row["dataset"]: Scale(float(row["random"]), float(row["expert"])) for row in data_rows("d4rl_refs.csv")}


def scale_of(key: CellKey) -> Scale | None:
    """The scale of a cell in raw points, if it is known."""
    if key.dataset and key.dataset in dataset_scales():
        return dataset_scales()[key.dataset]
    if key.dataset.startswith(OWN):  # the same world's random policy and expert
        return dataset_scales().get(f"{base_of(key.task).lower()}-medium-v2")
    return task_scales().get(base_of(key.task))


def in_points(reference: ReferenceScore, scale: Scale | None) -> float:
    """A published score in raw points, which is what runs are drawn and compared in.

    Raises:
        ValueError: it is normalised, and by what nobody knows.
    """
    if not reference.estimator.startswith("normalized"):
        return reference.score
    if scale is None or scale.goal is None:
        raise ValueError("a normalised score needs the scale of its data set")
    return scale.random + reference.score / 100 * (scale.goal - scale.random)


SUITES = ("atari", "mujoco", "offline", "goals", "toy")  # every suite that has a table
