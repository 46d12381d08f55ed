"""Curves in JSON: the tables of Dopamine's baselines, and JSON lines with one evaluation of one seed a line.

Dopamine's ``baselines/atari/data/GAME.json`` has training returns of 250,000 decisions an iteration
(https://github.com/google/dopamine at 5873f54, baselines/atari/README.md); the runs of an agent follow one another. The
runners in ``benchmarks/peers`` write JSON lines, which also name the library, its settings and its packages.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from rlbench.config.names import printable
from rlbench.config.overrides import one_line
from rlbench.curves.points import UNSTATED, Label, Points, listing
from rlbench.errors import RefusedFile
from rlbench.records.imported import MAX_STEP
from rlbench.records.types import MAX_RETURN

DECISIONS: Final = 250_000  # of an iteration


class DopamineRow(BaseModel):
    """One iteration of one run."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    Agent: str
    Iteration: int = Field(ge=0, lt=MAX_STEP)
    Value: float


_ROWS: Final = TypeAdapter(Annotated[list[DopamineRow], FailFast()])


def dopamine_curves(text: str, path: Path, *, algorithm: str, tag: str | None) -> list[Points]:
    """The runs of one agent, named by ``tag`` or by the algorithm.

    Raises:
        RefusedFile: the file is no such table, or has no such agent, or several.
    """
    try:
        rows = _ROWS.validate_python(json.loads(text))
    except (ValueError, RecursionError, ValidationError):
        raise RefusedFile(
            f"{path}: no rows of Agent, Iteration and Value; expected a file of Dopamine's baselines"
        ) from None
    agents = list(dict.fromkeys(row.Agent for row in rows))
    agent = select_name(agents, f"{path}: holds the agents", algorithm=algorithm, tag=tag)
    runs: list[list[DopamineRow]] = []
    for row in rows:
        if row.Agent == agent:
            if not runs or row.Iteration <= runs[-1][-1].Iteration:
                runs.append([])
            runs[-1].append(row)
    return [
        Points(
            label=Label(task=path.stem.partition("_")[0], seed=seed),
            kind="training",
            steps=np.array([(row.Iteration + 1.0) * DECISIONS for row in run]),
            returns=np.array([row.Value for row in run]),
            unknown=("seeds",),
        )
        for seed, run in enumerate(runs)
    ]


def select_name(names: Sequence[str], where: str, *, algorithm: str, tag: str | None) -> str:
    """The name that is ``tag``, or the algorithm but for capitals, or else but for signs and a remark in brackets.

    Raises:
        RefusedFile: none is, or several are.
    """
    for spelling in (str,) if tag is not None else (str.lower, plain_name):
        matches = [name for name in names if spelling(name) == spelling(algorithm if tag is None else tag)]
        if len(matches) == 1:
            return matches[0]
    raise RefusedFile(f"{where} {listing(names)}; name one with --as or --tag")


def plain_name(name: str) -> str:
    """A name in small letters and digits: ``td3bc`` of ``TD3+BC (JAX)``."""
    return re.sub(r"[^a-z0-9]", "", name.lower().partition("(")[0])


PROTOCOL_PARTS: Final = ("environment version", "episodes per evaluation")
"""Parts of the protocol that every line states."""

POINT: Final = {"steps", "returns", "lengths"}  # fields in which lines of one run may differ


class Evaluation(BaseModel):
    """One evaluation; ``returns`` and ``lengths`` have one entry per episode."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, populate_by_name=True)

    peer: str  # the library and its version
    suite: str = ""
    algorithm: str
    task: str
    dataset: str = ""
    seed: int
    steps: Annotated[int, Field(ge=0, lt=MAX_STEP)]
    returns: Annotated[list[Annotated[float, Field(ge=-MAX_RETURN, le=MAX_RETURN)]], Field(min_length=1)]
    lengths: Annotated[list[Annotated[float, Field(ge=0, lt=MAX_STEP)]], Field(min_length=1)] | None = None
    data: str = ""  # SHA-256 of the file that an offline algorithm learned from
    settings: str = ""  # identity of the Spec whose settings ran
    differences: list[str] = []  # settings of that Spec that the library cannot have
    gymnasium: str = ""
    mujoco: str = ""
    ale_py: str = Field(default="", alias="ale-py")

    @property
    def packages(self) -> tuple[str, ...]:
        """Versions of the environment."""
        versions = {"gymnasium": self.gymnasium, "mujoco": self.mujoco, "ale-py": self.ale_py}
        return tuple(f"{name} {version}" for name, version in versions.items() if version)


def json_lines_curves(text: str, path: Path) -> list[Points]:
    """The curves of a file, one per cell and seed.

    Raises:
        RefusedFile: a line is no such object, or not of its seed's run; the message names its number.
    """
    groups: dict[Label, list[Evaluation]] = {}
    for number, content in enumerate(io.StringIO(text), start=1):
        try:
            line = Evaluation.model_validate_json(content)
        except ValidationError as error:
            raise RefusedFile(f"{path}: line {number} is no evaluation ({one_line(error)}); correct the line") from None
        label = Label(line.suite, line.algorithm, line.task, line.dataset, line.seed)
        group = groups.setdefault(label, [])
        if group and line.model_dump(exclude=POINT) != group[0].model_dump(exclude=POINT):
            raise RefusedFile(f"{path}: line {number} is of another library, settings, data or versions; remove it")
        group.append(line)
    return [_mean_curve(label, lines) for label, lines in groups.items()]


def _mean_curve(label: Label, lines: list[Evaluation]) -> Points:
    first = lines[0]
    lengths = [fmean(line.lengths) for line in lines if line.lengths is not None]
    return Points(
        label=label,
        kind="evaluation",
        steps=np.array([float(line.steps) for line in lines]),
        returns=np.array([fmean(line.returns) for line in lines]),
        lengths=np.array(lengths) if len(lengths) == len(lines) else None,
        origin=replace(
            UNSTATED,
            library=printable(first.peer),
            data=printable(first.data),
            packages=tuple(map(printable, first.packages)),
            settings=printable(first.settings),
            differences=tuple(map(printable, first.differences)),
        ),
        protocol_parts=(*PROTOCOL_PARTS, "settings") if first.settings else PROTOCOL_PARTS,
    )
