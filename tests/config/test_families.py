"""Capabilities of each family of algorithms, against literal tables."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from rlbench import suites
from rlbench.config import offline, offline_discrete, online, run, tasks
from rlbench.config.canonical import SELECTORS, Frozen, fields, meanings
from rlbench.config.overrides import apply_settings, parse

FAMILIES = {
    ("atari", "dqn", "PongNoFrameskip-v4"): ("replay", False, True, True),
    ("mujoco", "sac", "Hopper-v4"): ("replay", True, False, True),
    ("toy", "sac", "CartPole-v1"): ("replay", False, False, False),
    ("mujoco", "ppo", "Hopper-v4"): ("rollouts", False, False, False),
    ("offline", "td3bc", "Hopper-v4"): ("data", True, False, True),
    ("offline", "bcq", "PongNoFrameskip-v4"): ("data", False, True, True),
}
"""A cell of each: what it learns from, whether vectors only, whether evaluated epsilon-greedily, whether it is wide."""


@pytest.mark.parametrize("cell", FAMILIES, ids="/".join)
def test_families_declare_their_requirements_and_abilities(cell: tuple[str, str, str]) -> None:
    algo = suites.spec(*cell).algo
    assert (algo.learns_from, algo.vectors_only, algo.epsilon_greedy, algo.wide) == FAMILIES[cell]
    assert set(algo.smoke_limits) <= dict(fields(algo)).keys()
    assert (algo.updates_per_step > 0) == (algo.learns_from == "replay")


@pytest.mark.parametrize(("widths", "wide"), [("127,128", True), ("127,127", False), ("", False)])
def test_second_thread_pays_from_a_width_of_layers(widths: str, wide: bool) -> None:
    spec = apply_settings(
        suites.spec("mujoco", "sac", "Hopper-v4"), [parse(f"algo.widths=[{widths}]"), parse("algo.batch=256")]
    )
    assert spec.algo.wide == wide


def test_algorithms_of_similar_speed_share_a_group() -> None:
    assert suites.spec("offline", "iql", "Hopper-v4").algo.speed_group == "offline implicitq"
    assert suites.spec("toy", "dqn", "Catch").algo.speed_group == suites.spec("toy", "c51", "Catch").algo.speed_group


MODELS = {
    model
    for module in (online, offline, offline_discrete, tasks, run)
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, Frozen) and model is not run.Runtime
}


@pytest.mark.parametrize("model", sorted(MODELS, key=lambda model: model.__name__), ids=lambda model: model.__name__)
def test_every_setting_has_a_meaning_in_words_of_its_own(model: type[Frozen]) -> None:
    for name, field in model.model_fields.items():
        part = isinstance(field.default, BaseModel) or field.discriminator or name in {"task", "algo"}
        if name not in SELECTORS and not part and field.annotation not in MODELS:
            words = field.description
            assert words, f"{model.__name__}.{name}"
            assert not words.startswith(("of ", "at ", "by ", "…")), f"{model.__name__}.{name}: {words}"
            assert "None" not in words, f"{model.__name__}.{name}: --set takes none"


def test_meanings_have_ranges_choices_and_the_meaning_of_their_part() -> None:
    spec = suites.spec("toy", "ppo", "Catch")
    texts = dict(meanings(spec))
    assert texts["algo.gamma"] == "discount per agent step (≥ 0, ≤ 1)"
    assert texts["algo.optimizer"] == "optimizer (adam or rmsprop)"
    assert texts["algo.greedy"] == "evaluate the policy's mode instead of its samples"
    assert texts["algo.method.kind"] == "A2C, and with clip and epochs PPO"
    epsilon = dict(meanings(suites.spec("toy", "dqn", "Catch")))["algo.epsilon.start"]
    assert epsilon == "exploration probability: value at step 0"
    prioritized = apply_settings(suites.spec("toy", "dqn", "Catch"), [parse("algo.replay.priority=priority")])
    alpha = dict(meanings(prioritized))["algo.replay.priority.alpha"]
    assert alpha == "prioritized replay: exponent of priorities; 0 would be uniform (> 0, ≤ 1)"
    assert [path for path, _ in fields(spec)] == list(texts)
