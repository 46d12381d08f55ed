"""Mean returns of a data set and of its behavior policy, the baselines of offline learning."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from rlbench.datasets import loader, recording_reader
from rlbench.datasets.episodes import episodes
from rlbench.datasets.summary import recording_summary
from rlbench.errors import RefusedFile

EXPERT = "policy_return"
"""Metadata key of recorded play: return of its policy without the noise of the recording."""


class DatasetReturn(NamedTuple):
    """Mean raw returns; None where they are unknown."""

    behaviour: float | None  # of the data's whole episodes
    expert: float | None  # of the behavior policy, as it was evaluated


def dataset_return(path: Path, name: str | None = None) -> DatasetReturn:
    """Return the mean returns of the data set at ``path``, the one of ``name`` if it is D4RL's.

    Raises:
        RefusedFile: it cannot be read, or its metadata hold a return that is no number.
    """
    metadata = loader.metadata(path)
    expert = _number(path, EXPERT, metadata[EXPERT]) if EXPERT in metadata else None
    if recording_reader.is_frames(path):
        returns = recording_summary(recording_reader.outline(path)).returns
        return DatasetReturn(None if returns is None else returns.mean, expert)
    if "return_mean" in metadata:  # own sets store it, without the episodes that were cut by the number of steps
        return DatasetReturn(_number(path, "return_mean", metadata["return_mean"]), expert)
    split = episodes(loader.read(path, name))
    return DatasetReturn(float(split.returns[split.closed].mean()) if split.closed.any() else None, expert)


def _number(path: Path, key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RefusedFile(f"{path}: {key}: {text!r} is no number; restore the file, or remove this attribute")
    return number
