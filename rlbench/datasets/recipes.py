"""Recipes of own data sets: everything that their bytes depend on, as data.

Own sets are named ``rlb-…``, never as D4RL's or Minari's, whose policies, simulators and sizes differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from rlbench.config.canonical import Frozen
from rlbench.config.overrides import one_line
from rlbench.errors import UnknownName, UsageError

PREFIX: Final = "rlb-"
OWN_NAME: Final = re.compile(r"rlb-[a-z0-9][a-z0-9._+-]{0,80}")
POLICIES: Final = Path(__file__).parent / "data" / "policies"  # actors of the recipes below, with their licences


class RecipePart(Frozen):
    """Behavior policy of a share of the steps, and the noise on its actions."""

    policy: str  # name of a file or a run
    sha256: str = Field(pattern="^[0-9a-f]{64}$")  # of its file
    share: float = Field(default=1.0, gt=0, le=1)  # of the steps
    sampled: bool = True  # actions are sampled from the policy, else deterministic
    noise: float = Field(default=0.0, ge=0, le=10)  # std of Gaussian noise on an action, which is clipped to ±1


class Recipe(Frozen):
    """Recipe of a data set; equal recipes give equal files on one kind of processor with the locked versions."""

    name: str
    task: str  # id of the environment, e.g. "HalfCheetah-v4"
    parts: tuple[RecipePart, ...] = Field(min_length=1)  # one after another
    steps: int = Field(ge=1, le=100_000_000)
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    lanes: int = Field(default=10, ge=1, le=1_000)  # environments, each with an equal share of the steps

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if abs(sum(part.share for part in self.parts) - 1) > 1e-6:
            raise ValueError("shares must sum to 1")
        players = [part.model_copy(update={"share": 1.0}) for part in self.parts]
        if any(player in players[:i] for i, player in enumerate(players)):
            raise ValueError("two parts have the same policy and noise; join them, with the sum of their shares")
        if min(self.portions()) < self.lanes:
            raise ValueError(
                f"a part has fewer steps than the {self.lanes} environments; give more steps or fewer environments"
            )
        return self

    def portions(self) -> tuple[int, ...]:
        """Steps of each part; they sum to ``steps``."""
        ends, total = [0], 0.0
        for part in self.parts:
            total += part.share
            ends.append(round(self.steps * total))
        ends[-1] = self.steps
        return tuple(end - start for start, end in pairwise(ends))

    def to_json(self) -> str:
        """JSON of all fields that differ from their defaults, for ``model_validate_json``."""
        return self.model_dump_json(exclude_defaults=True)


class RecordingRecipe(Frozen):
    """Recipe of recorded games of one policy with discrete actions, in single frames and raw points."""

    name: str
    task: str
    policy: str  # run of the policy
    sha256: str = Field(pattern="^[0-9a-f]{64}$")  # of its weights
    steps: int = Field(ge=1, le=100_000_000)
    epsilon: float = Field(default=0.0, ge=0, le=1)  # probability of a uniform action instead
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    lanes: int = Field(default=10, ge=1, le=1_000)  # environments, each with an equal share of the steps

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.steps < self.lanes:
            raise ValueError(f"fewer steps than the {self.lanes} environments; give more steps or fewer environments")
        return self


@contextmanager
def user_recipe(name: str) -> Iterator[None]:
    """Check the name of a user's recipe, whose invalid numbers in the body become one line.

    Raises:
        UsageError: the name is taken, or a number is out of its range.
    """
    check_own_name(name)
    if name in RECIPES:
        raise UsageError(f"{name}: is made by a recipe that comes with rlbench; choose another name")
    try:
        yield
    except ValidationError as error:
        raise UsageError(f"{name}: {one_line(error)}") from None


def check_own_name(name: str) -> None:
    """Raise UsageError for a name that is not of the form ``rlb-…``."""
    if OWN_NAME.fullmatch(name):
        return
    slug = re.sub(r"[^a-z0-9._+-]+", "-", name.lower().removeprefix(PREFIX)).strip("-._+")
    free = PREFIX + (re.sub(r"-v\d+$", "", slug) or "mine")
    why = "own sets are named rlb-…, never as those of D4RL or Minari"
    raise UsageError(f"{name}: {why}; call it {free}-own" if free in RECIPES else f"{name}: {why}; call it {free}")


def load_recipe(name: str) -> Recipe:
    """Return rlbench's recipe of a name.

    Raises:
        UnknownName: there is none.
    """
    if name not in RECIPES:
        raise UnknownName("recipe", name, RECIPES)
    return RECIPES[name]


RECIPES: Final = {
    recipe.name: recipe
    for recipe in TypeAdapter(tuple[Recipe, ...]).validate_json((POLICIES.parent / "recipes.json").read_bytes())
}
"""Actions are sampled, as D4RL's; returns of medium and expert are near D4RL's, HalfCheetah's medium is lower."""
