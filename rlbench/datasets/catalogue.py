"""Catalogue of D4RL's data sets: files, sizes, environments and reference scores (Fu et al. 2020)."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rlbench.errors import UnknownName, UsageError

TABLE = Path(__file__).parent / "data" / "d4rl.csv"
SOURCE = "http://rail.eecs.berkeley.edu/datasets/offline_rl"
MIRROR = "RLBENCH_D4RL_MIRROR"  # environment variable with the address of a mirror of SOURCE

ENVIRONMENTS: Mapping[str, str] = {
    "halfcheetah": "HalfCheetah-v4",
    "hopper": "Hopper-v4",
    "walker2d": "Walker2d-v4",
    "ant": "Ant-v4",  # 27 of the data's 111 numbers; the others are zeros
}
"""Environment that evaluates a policy, by family: scores are comparable in Gymnasium's version 4."""

STEPS: Mapping[str, int] = {"random": 10**6, "medium": 10**6, "expert": 10**6, "full-replay": 10**6}
REPLAYED: Mapping[str, int] = {"halfcheetah": 202_000, "hopper": 402_000, "walker2d": 302_000}

STANDINS: Mapping[str, str] = {
    **{f"{b}-{k}": f"rlb-{b}-{k}" for b in ("halfcheetah", "hopper", "walker2d") for k in ("expert", "medium-expert")},
    "halfcheetah": "rlb-halfcheetah-medium",
    "hopper": "rlb-hopper-medium",
    "walker2d": "rlb-walker2d-medium",
}
"""Generated data sets that stand in for D4RL's, by family and kind or by family alone."""


class D4RLDataset(NamedTuple):
    """Entry of one D4RL data set."""

    name: str
    family: str
    version: str
    features: int | None  # numbers in an observation
    actions: int | None  # numbers of an action; None where D4RL does not publish it
    low: float | None  # a random policy's score
    high: float | None  # an expert's
    path: str  # below ``SOURCE``
    file: str
    limit: int | None  # steps after which an episode is cut
    note: str

    @property
    def url(self) -> str:
        """Address of the file, on the server or its mirror."""
        return f"{(os.environ.get(MIRROR) or SOURCE).rstrip('/')}/{self.path}"

    @property
    def kind(self) -> str:
        """Kind of data, as ``medium-replay`` of ``hopper-medium-replay-v2``."""
        return self.name.removeprefix(f"{self.family}-").removesuffix(f"-{self.version}")

    @property
    def steps(self) -> int | None:
        """Nominal number of steps of version 2's locomotion sets; None for others."""
        if self.version != "v2" or self.family not in ENVIRONMENTS:
            return None
        if self.kind == "medium-replay":
            return REPLAYED.get(self.family)
        return 2 * 10**6 if self.kind == "medium-expert" else STEPS.get(self.kind)

    @property
    def env_id(self) -> str | None:
        """Environment that evaluates a policy trained on it; None where scores are not comparable."""
        return ENVIRONMENTS.get(self.family)

    @property
    def standin(self) -> str | None:
        """Command that generates a data set of the same task."""
        own = STANDINS.get(f"{self.family}-{self.kind}") or STANDINS.get(self.family)
        if own:
            return f"rlbench data generate {own}"
        return f"rlbench data generate {self.env_id} --policy RUN --steps N --name rlb-NAME" if self.env_id else None


@cache
def d4rl() -> dict[str, D4RLDataset]:
    """Every data set of D4RL by name."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {
            row["dataset"]: D4RLDataset(
                name=row["dataset"],
                family=row["family"],
                version=row["version"],
                features=_whole(row["obs_dim"]),
                actions=_whole(row["act_dim"]),
                low=_number(row["ref_min"]),
                high=_number(row["ref_max"]),
                path=row["dataset_url"].removeprefix(SOURCE).lstrip("/"),
                file=row["hdf5_file"],
                limit=_whole(row["max_episode_steps"]),
                note=row["note"],
            )
            for row in csv.DictReader(file)
        }


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
    if entry.low is None or entry.high is None:  # see ``scaled``
        raise UsageError(f"{name}: D4RL has no reference score for it; report the raw score")
    return 100 * (score - entry.low) / (entry.high - entry.low)


def has_normalized_score(name: str) -> bool:
    """True if D4RL has reference scores for a data set."""
    return name in d4rl() and None not in {d4rl_dataset(name).low, d4rl_dataset(name).high}


def _whole(text: str) -> int | None:
    return int(text) if text else None


def _number(text: str) -> float | None:
    return float(text) if text else None
