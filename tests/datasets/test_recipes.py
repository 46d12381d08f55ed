"""Recipes: their shares and names, and the packaged recipes."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from rlbench.datasets.policies import read_policy_file
from rlbench.datasets.recipes import POLICIES, RECIPES, Recipe, RecipePart, check_own_name, load_recipe, user_recipe
from rlbench.errors import UsageError

ZEROS = "0" * 64
FIRST, SECOND, THIRD = (
    RecipePart(policy=name, sha256=ZEROS, share=share) for name, share in (("a", 0.2), ("b", 0.3), ("c", 0.5))
)
EXPECTED = {
    f"rlb-{body}-{level}"
    for body in ("halfcheetah", "hopper", "walker2d")
    for level in ("medium", "expert", "medium-expert")
}


def small(*parts: RecipePart, steps: int = 100, num_envs: int = 2) -> Recipe:
    """A recipe of those parts."""
    with user_recipe("rlb-small"):
        return Recipe(name="rlb-small", task="Hopper-v4", parts=parts, steps=steps, seed=0, lanes=num_envs)


@pytest.mark.parametrize(("steps", "portions"), [(100, (20, 30, 50)), (101, (20, 30, 51)), (13, (3, 3, 7))])
def test_portions_follow_the_shares_and_sum_to_the_steps(steps: int, portions: tuple[int, ...]) -> None:
    assert small(FIRST, SECOND, THIRD, steps=steps).portions() == portions
    assert sum(portions) == steps


def test_shares_that_nearly_sum_to_one_lose_no_step() -> None:
    thirds = [RecipePart(policy=name, sha256=ZEROS, share=0.3333333) for name in "abc"]
    assert sum(small(*thirds, steps=100_000_000).portions()) == 100_000_000


@pytest.mark.parametrize(
    ("parts", "steps", "why"),
    [
        ((FIRST, SECOND), 100, "shares must sum to 1"),
        ((THIRD, THIRD), 100, "two parts have the same policy"),
        ((THIRD, THIRD.model_copy(update={"policy": "d"})), 3, "fewer steps than the 2 environments"),
        ((), 100, "parts"),
    ],
)
def test_inconsistent_recipe_is_refused(parts: tuple[RecipePart, ...], steps: int, why: str) -> None:
    with pytest.raises(UsageError, match=f"rlb-small: .*{why}"):
        small(*parts, steps=steps)


def test_two_parts_can_have_one_policy_with_different_noise() -> None:
    assert len(small(THIRD, THIRD.model_copy(update={"noise": 0.1})).parts) == 2


@pytest.mark.parametrize("change", [{"sha256": "abc"}, {"share": 0.0}, {"noise": -1.0}, {"uniform": 2.0}, {"extra": 1}])
def test_a_part_out_of_range_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RecipePart.model_validate({"policy": "a", "sha256": ZEROS, **change})


def test_recipe_round_trips() -> None:
    for packaged in (*RECIPES.values(), small(FIRST, SECOND, THIRD)):
        assert Recipe.model_validate_json(packaged.to_json()) == packaged


@pytest.mark.parametrize("name", ["rlb-mine", "rlb-half-cheetah.v2", "rlb-a+b_c"])
def test_names_of_generated_sets_are_free(name: str) -> None:
    check_own_name(name)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("halfcheetah-medium-v2", "rlb-halfcheetah-medium-own"),
        ("halfcheetah-random-v2", "rlb-halfcheetah-random"),
        ("mujoco/hopper/expert-v0", "rlb-mujoco-hopper-expert"),
        ("My Set", "rlb-my-set"),
        ("rlb-", "rlb-mine"),
        ("rlb-../../etc/passwd", "rlb-etc-passwd"),
        ("RLB-x", "rlb-x"),
        ("", "rlb-mine"),
    ],
)
def test_reserved_names_are_refused_with_a_free_one(name: str, instead: str) -> None:
    with pytest.raises(UsageError, match=rf"call it {instead}$"):
        check_own_name(name)
    check_own_name(instead)


def test_packaged_recipes_have_their_names_sizes_and_policies() -> None:
    assert set(RECIPES) == EXPECTED
    for name, packaged in RECIPES.items():
        assert packaged.name == name and load_recipe(name) is packaged
        assert packaged.steps == (400_000 if name.endswith("medium-expert") else 200_000)
        for part in packaged.parts:
            policy = read_policy_file(POLICIES / f"{part.policy}.safetensors")
            assert (policy.sha256, policy.metadata.env_evaluated) == (part.sha256, packaged.task) and part.sampled


def test_every_packaged_policy_is_used_and_licensed() -> None:
    packaged = {path.stem for path in POLICIES.glob("*.safetensors")}
    assert {part.policy for recipe in RECIPES.values() for part in recipe.parts} == packaged
    text = (POLICIES / "README.md").read_text(encoding="utf-8")
    for licence in ("rl-trained-agents.MIT.txt", "openai-imitation.MIT.txt"):
        assert licence in text and "Permission is hereby granted" in (POLICIES / licence).read_text(encoding="utf-8")
    assert sum(path.stat().st_size for path in Path(POLICIES).iterdir()) < 1_000_000
