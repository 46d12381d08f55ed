"""How an own data set is made: all that its bytes depend on, as data, and the recipes that have a name.

Own sets are called ``rlb-…`` and never as D4RL's or Minari's, whose policies, simulators and sizes they do not share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

from pydantic import Field, ValidationError, model_validator

from rlbench.config.canonical import Frozen
from rlbench.config.overrides import one_line
from rlbench.errors import UnknownName, UsageError

PREFIX: Final = "rlb-"
OWN_NAME: Final = re.compile(r"rlb-[a-z0-9][a-z0-9._+-]{0,80}")
POLICIES: Final = Path(__file__).parent / "data" / "policies"
"""Actors that come with rlbench, so that the recipes below need nothing else; their licences lie beside them."""


class Part(Frozen):
    """Who plays how much of a set, and what is done beside its actions."""

    policy: str  # by name: of a file, or of a run
    sha256: str = Field(pattern="^[0-9a-f]{64}$")  # of its file
    share: float = Field(default=1.0, gt=0, le=1)  # of the steps
    sampled: bool = True  # actions are drawn from the policy, else its preferred ones are taken
    noise: float = Field(default=0.0, ge=0, le=10)  # deviation of what is added to an action, which is cut at ±1 again
    uniform: float = Field(default=0.0, ge=0, le=1)  # how often an action is drawn from [−1, 1] instead


class Recipe(Frozen):
    """Equal recipes give equal files, to the byte: with the locked versions, on processors of one kind."""

    name: str
    task: str  # the id of what is stepped, e.g. "HalfCheetah-v4"
    parts: tuple[Part, ...] = Field(min_length=1)  # one after another
    steps: int = Field(ge=1, le=100_000_000)
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    lanes: int = Field(default=10, ge=1, le=1_000)  # environments side by side, each giving its share of the steps

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if abs(sum(part.share for part in self.parts) - 1) > 1e-6:
            raise ValueError("shares must sum to 1")
        players = [part.model_copy(update={"share": 1.0}) for part in self.parts]
        if any(player in players[:i] for i, player in enumerate(players)):
            raise ValueError("two parts are played alike; make one of them, with the sum of their shares")
        if min(self.portions()) < self.lanes:
            raise ValueError(f"a part has fewer steps than the {self.lanes} lanes; give more steps or fewer lanes")
        return self

    def portions(self) -> tuple[int, ...]:
        """Steps of each part; they sum to ``steps``."""
        ends, total = [0], 0.0
        for part in self.parts:
            total += part.share
            ends.append(round(self.steps * total))
        ends[-1] = self.steps
        return tuple(end - start for start, end in pairwise(ends))

    def written(self) -> str:
        """JSON of all that is not a default, which ``model_validate_json`` takes back."""
        return self.model_dump_json(exclude_defaults=True)


class Games(Frozen):
    """A set of single frames from one policy that chooses among discrete actions: whole games for raw points."""

    name: str
    task: str
    policy: str  # the run it is of
    sha256: str = Field(pattern="^[0-9a-f]{64}$")  # of its weights
    steps: int = Field(ge=1, le=100_000_000)
    epsilon: float = Field(default=0.0, ge=0, le=1)  # how often an action is drawn from all of them instead
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    lanes: int = Field(default=10, ge=1, le=1_000)  # games side by side, each lane giving its share of the steps

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.steps < self.lanes:
            raise ValueError(f"fewer steps than the {self.lanes} lanes; give more steps or fewer lanes")
        return self


def games(
    *, name: str, task: str, policy: str, sha256: str, steps: int, epsilon: float, seed: int, lanes: int
) -> Games:
    """A recipe for games, checked.

    Raises:
        UsageError: the name is not free, or a number is out of its range.
    """
    own(name)
    try:
        return Games(
            name=name, task=task, policy=policy, sha256=sha256, steps=steps, epsilon=epsilon, seed=seed, lanes=lanes
        )
    except ValidationError as error:
        raise UsageError(f"{name}: {one_line(error)}") from None


def recipe(*, name: str, task: str, parts: Iterable[Part], steps: int, seed: int, lanes: int) -> Recipe:
    """A recipe of the user's own, checked.

    Raises:
        UsageError: the name is not free, or a number is out of its range.
    """
    own(name)
    if name in RECIPES:
        raise UsageError(f"{name}: is made by a recipe that comes with rlbench; choose another name")
    try:
        return Recipe(name=name, task=task, parts=tuple(parts), steps=steps, seed=seed, lanes=lanes)
    except ValidationError as error:
        raise UsageError(f"{name}: {one_line(error)}") from None


def own(name: str) -> None:
    """Refuse a name that does not say that the set is one's own.

    Raises:
        UsageError: it does not.
    """
    if OWN_NAME.fullmatch(name):
        return
    slug = re.sub(r"[^a-z0-9._+-]+", "-", name.lower().removeprefix(PREFIX)).strip("-._+")
    free = PREFIX + (re.sub(r"-v\d+$", "", slug) or "mine")
    why = "own sets are named rlb-…, never as those of D4RL or Minari"
    raise UsageError(f"{name}: {why}; call it {free}-own" if free in RECIPES else f"{name}: {why}; call it {free}")


def named(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        UnknownName: there is none.
    """
    if name not in RECIPES:
        raise UnknownName("recipe", name, RECIPES)
    return RECIPES[name]


def _part(policy: str, *, noise: float = 0.0) -> Part:
    return Part(policy=policy, sha256=SHA256[policy], noise=noise)


def _table(body: str, medium: Part, expert: Part) -> Iterable[Recipe]:
    """Medium, expert, and the one after the other, of the same steps."""
    task, halves = f"{body}-v4", tuple(part.model_copy(update={"share": 0.5}) for part in (medium, expert))
    made = {"medium": ((medium,), STEPS), "expert": ((expert,), STEPS), "medium-expert": (halves, 2 * STEPS)}
    for level, (parts, steps) in made.items():
        yield Recipe(name=f"{PREFIX}{body.lower()}-{level}", task=task, parts=parts, steps=steps)


STEPS: Final = 200_000
SHA256: Final = {
    "halfcheetah-openai_imitation-trpo_iter500": "bbb3c0997cc909db4b550bbe5538f91f7663ef33df0baec700e356e9c65c1dec",
    "halfcheetah-sb3zoo-tqc": "19ed96471a32b6259584389f61faaf190fabc835527e3b8364aabde940759ccf",
    "hopper-openai_imitation-trpo_iter200": "d68de042909e1681f3d99ae9d16717a4a94b134ae1a3a615f41a5582c8db7d75",
    "hopper-openai_imitation-trpo_iter500": "7504aa97c0eccdcf3d41d6ecba050221ea69e16039b24bfcb2edcd72eec30a8c",
    "walker2d-openai_imitation-trpo_iter100": "8f26e54684d68cdab469588631baaf4f02b520eb936e17c58047f88fdfedc7fe",
    "walker2d-openai_imitation-trpo_iter500": "5df6af495feca9bdc117314587f6d0d7ddef33454ded848bf3f5ac3970aca784",
}
RECIPES: Final = {
    recipe.name: recipe
    for table in (
        _table("HalfCheetah", _part("halfcheetah-openai_imitation-trpo_iter500"), _part("halfcheetah-sb3zoo-tqc")),
        _table(
            "Hopper",
            _part("hopper-openai_imitation-trpo_iter200", noise=0.15),
            _part("hopper-openai_imitation-trpo_iter500"),
        ),
        _table(
            "Walker2d",
            _part("walker2d-openai_imitation-trpo_iter100", noise=0.15),
            _part("walker2d-openai_imitation-trpo_iter500"),
        ),
    )
    for recipe in table
}
"""Sampled actions, as D4RL's were; medium and expert about as good as D4RL's are, HalfCheetah's medium less so."""
