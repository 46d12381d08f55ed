"""Catalogue of D4RL's data sets: files, sizes, environments and reference scores (Fu et al. 2020)."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rlbench.errors import UnknownName, UsageError

TABLE = Path(__file__).parent / "data" / "d4rl.csv"
SOURCE = "http://rail.eecs.berkeley.edu/datasets/offline_rl"
MIRROR = "RLBENCH_D4RL_MIRROR"  # environment variable with the address of a mirror of SOURCE


class D4RLDataset(NamedTuple):
    """Entry of one D4RL data set; None where D4RL does not publish a number."""

    name: str
    features: int | None  # numbers in an observation
    actions: int | None  # numbers of an action
    low: float | None  # a random policy's score
    high: float | None  # an expert's
    path: str  # below ``SOURCE``
    file: str
    limit: int | None  # steps after which an episode is cut
    steps: int | None  # nominal number, of version 2's locomotion sets
    env_id: str | None  # Gymnasium's environment of comparable scores; Ant's shows 27 of the data's 111 numbers, not 0
    recipe: str  # name of the generated set that stands in for it
    note: str

    @property
    def url(self) -> str:
        """Address of the file, on the server or its mirror."""
        return f"{(os.environ.get(MIRROR) or SOURCE).rstrip('/')}/{self.path}"

    @property
    def standin(self) -> str | None:
        """Command that generates a data set of the same task."""
        if self.recipe:
            return f"rlbench data generate {self.recipe}"
        return f"rlbench data generate {self.env_id} --policy RUN --steps N --name rlb-NAME" if self.env_id else None


@cache
def d4rl() -> dict[str, D4RLDataset]:
    """Every data set of D4RL by name."""
    kinds: dict[str, Callable[[str], object]] = {"low": float, "high": float, "env_id": str}
    kinds |= dict.fromkeys(("features", "actions", "limit", "steps"), int)
    with TABLE.open(encoding="utf-8", newline="") as file:
        entries = [
            D4RLDataset._make(
                (kinds[key](text) if text else None) if key in kinds else text for key, text in row.items()
            )
            for row in csv.DictReader(file)
        ]
    return {entry.name: entry for entry in entries}


def d4rl_dataset(name: str) -> D4RLDataset:
    """Return D4RL's data set of a name.

    Raises:
        UnknownName: D4RL has none of this name; the message suggests one.
    """
    if name not in d4rl():
        raise UnknownName("data set", name, d4rl())
    return d4rl()[name]


def normalize(score: float, name: str) -> float:
    """D4RL's normalized score: 0 for a random policy, 100 for an expert.

    Raises:
        UsageError: D4RL has no reference scores for this data set.
    """
    entry = d4rl_dataset(name)
    if entry.low is None or entry.high is None:
        raise UsageError(f"{name}: D4RL has no reference score for it; report the raw score")
    return 100 * (score - entry.low) / (entry.high - entry.low)


def has_normalized_score(name: str) -> bool:
    """True if D4RL has reference scores for a data set."""
    return name in d4rl() and None not in {d4rl_dataset(name).low, d4rl_dataset(name).high}
