"""Curves of Dopamine's ``baselines/atari/data/GAME.json``: training returns of 250,000 decisions an iteration.

https://github.com/google/dopamine at 5873f54, baselines/atari/README.md: the runs of an agent follow one another.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from rlbench.curves.points import Label, Points, listing
from rlbench.errors import RefusedFile
from rlbench.records.imported import LARGEST_STEP

DECISIONS: Final = 250_000  # of an iteration


class Row(BaseModel):
    """One iteration of one run."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    Agent: str
    Iteration: int = Field(ge=0, lt=LARGEST_STEP)
    Value: float


_ROWS: Final = TypeAdapter(Annotated[list[Row], FailFast()])


def curves(text: str, path: Path, *, algorithm: str, tag: str | None) -> list[Points]:
    """The runs of one agent, named by ``tag`` or by the algorithm.

    Raises:
        RefusedFile: the file is no such table, or has no such agent.
    """
    try:
        rows = _ROWS.validate_python(json.loads(text))
    except (ValueError, RecursionError, ValidationError):
        raise RefusedFile(
            f"{path}: no rows of Agent, Iteration and Value; expected a file of Dopamine's baselines"
        ) from None
    agents = list(dict.fromkeys(row.Agent for row in rows))
    matches = [name for name in agents if name == tag or (tag is None and _plain(name) == _plain(algorithm))]
    if not matches:
        raise RefusedFile(f"{path}: holds the agents {listing(agents)}; name one with --tag")
    runs: list[list[Row]] = []
    for row in rows:
        if row.Agent == matches[0]:
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


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower().partition("(")[0])
