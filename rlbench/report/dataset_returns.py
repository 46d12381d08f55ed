"""What recorded experience was worth: the lines between which a score on it is read.

Who learns from a data set should pass its behaviour, and can hope for the policy that made it, played without noise.
Where runs were made on the data, their records say it; for the documented recordings their document does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rlbench.report.reference_table import CellKey, lines, parsed
from rlbench.report.runs import Run

BEHAVIOUR, EXPERT = "behaviour", "qrdqn-expert"
"""Rows of the documents that describe a data set."""


class DatasetReturns(NamedTuple):
    """Mean raw returns; None where nobody says."""

    behaviour: float | None = None  # of who made the data
    expert: float | None = None


UNKNOWN = DatasetReturns()


def noted(runs: Iterable[Run]) -> dict[str, DatasetReturns]:
    """What the records say of each data set, by its SHA-256."""
    found: dict[str, DatasetReturns] = {}
    for run in runs:
        data = run.environment.get("data")
        if isinstance(data, Mapping) and "behaviour" in data:
            found[str(data.get("sha256"))] = DatasetReturns(_number(data["behaviour"]), _number(data.get("expert")))
    return found


def dataset_returns(key: CellKey, runs: Iterable[Run], known: Mapping[str, DatasetReturns]) -> DatasetReturns:
    """What a cell's data were worth: as its own records or others on the same file say, else as was documented."""
    for run in runs:
        data = run.environment.get("data")
        told = known.get(str(data.get("sha256"))) if isinstance(data, Mapping) else None
        if told is not None:
            return told
    if key.suite != "offline":
        return UNKNOWN
    return DatasetReturns(
        _documented(key._replace(algorithm=BEHAVIOUR)),
        _documented(key._replace(algorithm=EXPERT, dataset="")) if key.dataset.startswith("qrdqn-") else None,
    )


def _documented(key: CellKey) -> float | None:
    rows = [row for row in lines(key.suite).get(key, []) if row["score"]]
    return parsed(rows[0]).score if rows else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
