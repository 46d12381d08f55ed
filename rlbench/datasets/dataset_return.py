"""What a data set's behaviour was worth: the line that whoever learns from it should pass."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from rlbench.datasets import loader, recording_reader
from rlbench.datasets.episodes import episodes
from rlbench.datasets.summary import played
from rlbench.errors import RefusedFile

EXPERT = "policy_return"
"""Under which recorded play says what its policy was worth without the noise it was recorded with."""


class DatasetReturn(NamedTuple):
    """Mean raw returns; None where nobody knows."""

    behaviour: float | None  # of the data's whole episodes
    expert: float | None  # of the policy that made them, as it was evaluated


def dataset_return(path: Path, name: str | None = None) -> DatasetReturn:
    """What is in the data set at ``path``, which is said to be ``name``.

    Raises:
        RefusedFile: it cannot be read, or says of its returns what is no number.
    """
    told = loader.told(path)
    expert = _number(path, EXPERT, told[EXPERT]) if EXPERT in told else None
    if recording_reader.is_frames(path):
        returns = played(recording_reader.outline(path)).returns
        return DatasetReturn(None if returns is None else returns.mean, expert)
    if "return_mean" in told:  # own sets say it, and leave out what was cut where a lane was full
        return DatasetReturn(_number(path, "return_mean", told["return_mean"]), expert)
    found = episodes(loader.read(path, name))
    return DatasetReturn(float(found.returns[found.closed].mean()) if found.closed.any() else None, expert)


def _number(path: Path, key: str, said: str) -> float:
    try:
        number = float(said)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RefusedFile(f"{path}: {key}: {said!r} is no number; restore the file, or remove what it says of itself")
    return number
