"""Capabilities of each family of algorithms, against literal tables."""

import pytest
from pydantic import BaseModel

from rlbench import suites
from rlbench.config import offline, online, run, tasks
from rlbench.config.canonical import SELECTORS, Frozen, fields, meanings
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Spec
from rlbench.errors import UsageError

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
    assert (algo.learns_from, algo.vectors_only, algo.epsilon_greedy, algo.gains_from_threads) == FAMILIES[cell]
    assert set(algo.smoke_limits) <= dict(fields(algo)).keys()
    assert (algo.updates_per_step > 0) == (algo.learns_from == "replay")


@pytest.mark.parametrize(("widths", "wide"), [("127,128", True), ("127,127", False), ("", False)])
def test_second_thread_pays_from_a_width_of_layers(widths: str, wide: bool) -> None:
    spec = apply_settings(
        suites.spec("mujoco", "sac", "Hopper-v4"), [parse(f"algo.widths=[{widths}]"), parse("algo.batch=256")]
    )
    assert spec.algo.gains_from_threads == wide


def test_algorithms_of_similar_speed_share_a_group() -> None:
    assert suites.spec("offline", "iql", "Hopper-v4").algo.speed_group == "offline implicitq"
    assert suites.spec("toy", "dqn", "Catch").algo.speed_group == suites.spec("toy", "c51", "Catch").algo.speed_group


MODELS = {
    model
    for module in (online, offline, tasks, run)
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


PONG = suites.spec("atari", "dqn", "PongNoFrameskip-v4")
CHEETAH = suites.spec("mujoco", "sac", "HalfCheetah-v4")


def with_settings(spec: Spec, *texts: str) -> Spec:
    return apply_settings(spec, [parse(text) for text in texts])


def test_async_batch_of_all_envs_keeps_the_identity() -> None:
    assert PONG.id == "3c138bcd9e9f"
    assert PONG.async_batch is None
    assert with_settings(PONG, "task.async_batch=none").id == PONG.id


def test_smaller_async_batch_changes_the_identity() -> None:
    ids = {with_settings(PONG, *texts).id for texts in ([], ["task.async_batch=5"], ["task.async_batch=10"])}
    assert len(ids) == 3


@pytest.mark.parametrize(("spec", "num_envs"), [(PONG, 10), (CHEETAH, 4)])
def test_async_batch_ranges_from_one_to_all_envs(spec: Spec, num_envs: int) -> None:
    spec = with_settings(spec, f"task.envs={num_envs}")
    for answers in (1, num_envs):
        assert with_settings(spec, f"task.async_batch={answers}").async_batch == answers
    with pytest.raises(UsageError, match=r"task\.async_batch"):
        with_settings(spec, "task.async_batch=0")
    with pytest.raises(UsageError, match=rf"task\.async_batch={num_envs + 1}: there are {num_envs} envs"):
        with_settings(spec, f"task.async_batch={num_envs + 1}")


@pytest.mark.parametrize("algorithm", ["ppo", "trpo", "reinforce"])
def test_rollout_algorithms_refuse_async_batch(algorithm: str) -> None:
    with pytest.raises(UsageError, match=r"task\.async_batch: a rollout needs rows of every env"):
        with_settings(suites.spec("mujoco", algorithm, "HalfCheetah-v4"), "task.async_batch=1")


def test_rollout_algorithms_on_frames_refuse_async_batch() -> None:
    with pytest.raises(UsageError, match=r"task\.async_batch: a rollout needs rows of every env"):
        with_settings(suites.spec("atari", "ppo", "PongNoFrameskip-v4"), "task.async_batch=1")


def test_a_task_that_is_stepped_together_has_no_such_field() -> None:
    with pytest.raises(UsageError, match="unknown field 'async_batch'"):
        with_settings(suites.spec("toy", "dqn", "Catch"), "task.async_batch=1")
