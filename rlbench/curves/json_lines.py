"""Curves as JSON lines: one evaluation of one seed a line, with the return of every episode.

The runners in ``benchmarks/peers`` write them. A line also names the library, its settings and its packages.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlbench.config.overrides import one_line
from rlbench.curves.points import Label, Points
from rlbench.errors import RefusedFile
from rlbench.records.imported import LARGEST_STEP
from rlbench.records.types import LARGEST_RETURN

PROTOCOL_PARTS: Final = ("environment version", "episodes per evaluation")
"""Parts of the protocol that every line states."""

POINT: Final = {"steps", "returns", "lengths"}  # fields in which lines of one run may differ


class Line(BaseModel):
    """One evaluation; ``returns`` and ``lengths`` have one entry an episode."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, populate_by_name=True)

    peer: str  # the library and its version
    suite: str = ""
    algorithm: str
    task: str
    dataset: str = ""
    seed: int
    steps: Annotated[int, Field(ge=0, lt=LARGEST_STEP)]
    returns: Annotated[list[Annotated[float, Field(ge=-LARGEST_RETURN, le=LARGEST_RETURN)]], Field(min_length=1)]
    lengths: Annotated[list[Annotated[float, Field(ge=0, lt=LARGEST_STEP)]], Field(min_length=1)] | None = None
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


def curves(text: str, path: Path) -> list[Points]:
    """The curves of a file, one a cell and seed.

    Raises:
        RefusedFile: a line is no such object, or not of its seed's run; the message names its number.
    """
    groups: dict[Label, list[Line]] = {}
    for number, content in enumerate(text.splitlines(), start=1):
        try:
            line = Line.model_validate_json(content)
        except ValidationError as error:
            raise RefusedFile(f"{path}: line {number} is no evaluation ({one_line(error)}); mend the line") from None
        label = Label(line.suite, line.algorithm, line.task, line.dataset, line.seed)
        group = groups.setdefault(label, [])
        if group and line.model_dump(exclude=POINT) != group[0].model_dump(exclude=POINT):
            raise RefusedFile(f"{path}: line {number} is of another library, settings, data or versions; mend the line")
        group.append(line)
    return [_curve(label, lines) for label, lines in groups.items()]


def _curve(label: Label, lines: list[Line]) -> Points:
    first = lines[0]
    lengths = [fmean(line.lengths) for line in lines if line.lengths is not None]
    return Points(
        label=label,
        kind="evaluation",
        steps=np.array([float(line.steps) for line in lines]),
        returns=np.array([fmean(line.returns) for line in lines]),
        lengths=np.array(lengths) if len(lengths) == len(lines) else None,
        library=first.peer,
        data=first.data,
        packages=first.packages,
        differences=tuple(first.differences),
        protocol_parts=(*PROTOCOL_PARTS, "settings") if first.settings else PROTOCOL_PARTS,
    )
