"""The data sets of D4RL by name: where they are, what they hold, and the two scores that make their scale."""

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
MIRROR = "RLBENCH_D4RL_MIRROR"
"""An environment variable: what stands in the place of ``SOURCE``, for mirrors of the same tree."""

ENVIRONMENTS: Mapping[str, str] = {
    "halfcheetah": "HalfCheetah-v4",
    "hopper": "Hopper-v4",
    "walker2d": "Walker2d-v4",
    "ant": "Ant-v4",  # 27 of the data's 111 numbers; the others are zeros
}
"""What a policy is judged on, by family: Gymnasium's version 4 is the one whose scores can be compared."""

STEPS: Mapping[str, int] = {"random": 10**6, "medium": 10**6, "expert": 10**6, "full-replay": 10**6}
REPLAYED: Mapping[str, int] = {"halfcheetah": 202_000, "hopper": 402_000, "walker2d": 302_000}

STANDINS: Mapping[str, str] = {
    **{f"{b}-{k}": f"rlb-{b}-{k}" for b in ("halfcheetah", "hopper", "walker2d") for k in ("expert", "medium-expert")},
    "halfcheetah": "rlb-halfcheetah-medium",
    "hopper": "rlb-hopper-medium",
    "walker2d": "rlb-walker2d-medium",
}
"""Own sets that can be generated where the real one is out of reach, by family and kind or by family alone."""


class Known(NamedTuple):
    """What D4RL says of one of its data sets."""

    name: str
    family: str
    version: str
    features: int | None  # numbers in an observation
    actions: int | None  # numbers of an action; None where nobody says
    low: float | None  # a random policy's score
    high: float | None  # an expert's
    path: str  # below ``SOURCE``
    file: str
    limit: int | None  # steps after which an episode is cut
    note: str

    @property
    def url(self) -> str:
        """Where it can be downloaded."""
        return f"{(os.environ.get(MIRROR) or SOURCE).rstrip('/')}/{self.path}"

    @property
    def kind(self) -> str:
        """The middle of the name: ``medium-replay`` of ``hopper-medium-replay-v2``."""
        return self.name.removeprefix(f"{self.family}-").removesuffix(f"-{self.version}")

    @property
    def steps(self) -> int | None:
        """Nominal number of steps of version 2's locomotion sets; for others none is known."""
        if self.version != "v2" or self.family not in ENVIRONMENTS:
            return None
        if self.kind == "medium-replay":
            return REPLAYED.get(self.family)
        return 2 * 10**6 if self.kind == "medium-expert" else STEPS.get(self.kind)

    @property
    def env_id(self) -> str | None:
        """The environment in which a policy learned from it is judged, where its scores can be compared."""
        return ENVIRONMENTS.get(self.family)

    @property
    def standin(self) -> str | None:
        """The command that generates a data set of the same task."""
        own = STANDINS.get(f"{self.family}-{self.kind}") or STANDINS.get(self.family)
        if own:
            return f"rlbench data generate {own}"
        return f"rlbench data generate {self.env_id} --policy RUN --steps N --name rlb-NAME" if self.env_id else None


@cache
def d4rl() -> dict[str, Known]:
    """Every data set of D4RL by name."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {
            row["dataset"]: Known(
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


def known(name: str) -> Known:
    """One of D4RL's data sets.

    Raises:
        UnknownName: it is none; says which name was meant.
    """
    if name not in d4rl():
        raise UnknownName("data set", name, d4rl())
    return d4rl()[name]


def normalized(score: float, name: str) -> float:
    """D4RL's scale: 0 for a random policy's score, 100 for the expert's.

    Raises:
        UsageError: it has none for this set.
    """
    of = known(name)
    if of.low is None or of.high is None:  # as ``scaled`` says
        raise UsageError(f"{name}: D4RL has no reference score for it; report the raw score")
    return 100 * (score - of.low) / (of.high - of.low)


def scaled(name: str) -> bool:
    """Whether D4RL has reference scores for a data set."""
    return name in d4rl() and None not in {known(name).low, known(name).high}


def _whole(text: str) -> int | None:
    return int(text) if text else None


def _number(text: str) -> float | None:
    return float(text) if text else None
