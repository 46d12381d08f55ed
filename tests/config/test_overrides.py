"""Dotted overrides: typed, with suggestions, and never evaluated."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from rlbench import suites
from rlbench.config.canonical import fields
from rlbench.config.overrides import Setting, apply_settings, flatten, parse
from rlbench.config.run import Spec
from rlbench.errors import UsageError

PONG = suites.spec("atari", "dqn", "PongNoFrameskip-v4")
CATCH = suites.spec("toy", "dqn", "Catch")


def value(spec: Spec, path: str) -> object:
    return dict(fields(spec))[path]


def refusal(*texts: str, spec: Spec = PONG) -> str:
    with pytest.raises(UsageError) as caught:
        apply_settings(spec, [parse(text) for text in texts])
    return str(caught.value)


def test_no_setting_gives_an_equal_spec() -> None:
    assert apply_settings(PONG, []) == PONG


@pytest.mark.parametrize(
    ("algorithm", "changes", "revision", "identity"),
    [
        ("dqn", [], 1, "3c138bcd9e9f"),
        ("dqn", ["algo.replay.priority=priority"], 2, "4058aacc3165"),
        ("dqn", ["algo.replay.priority=priority", "algo.head=quantiles"], 1, "f6747ef78fbe"),
        ("rainbow", [], 1, "d56c79bb39ed"),
        ("rainbow", ["algo.head=expected"], 2, "d0ef1c32880c"),
    ],
)
def test_only_an_expected_value_with_priorities_has_another_revision(
    algorithm: str, changes: list[str], revision: int, identity: str
) -> None:
    """Literal: ids of revision 1 are those of committed records; the loss was DQN's priority there."""
    spec = apply_settings(suites.spec("atari", algorithm, "PongNoFrameskip-v4"), map(parse, changes))
    assert (value(spec, "algo.revision"), spec.id) == (revision, identity)


def test_the_record_of_an_earlier_revision_is_read_as_what_it_is() -> None:
    new = apply_settings(PONG, [parse("algo.replay.priority=priority")])
    old = json.loads(new.model_dump_json())
    old["algo"]["revision"] = 1
    assert Spec.model_validate(old, strict=False).id == "3af4083b20c1"


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("algo.lr=1e-3", "algo.lr", 1e-3),
        ("algo.lr=1", "algo.lr", 1.0),
        ("budget.steps=1e6", "budget.steps", 1_000_000),
        ("budget.steps=1_000_000", "budget.steps", 1_000_000),
        ("algo.double=no", "algo.double", False),
        ("algo.double=true", "algo.double", True),
        ("algo.max_grad_norm=0.5", "algo.max_grad_norm", 0.5),
        ("algo.max_grad_norm=none", "algo.max_grad_norm", None),
        ("protocol.stop=none", "protocol.stop", None),
        ("task.env=gymnasium", "task.env", "gymnasium"),
        ("algo.epsilon.steps=7", "algo.epsilon.steps", 7),
        (" algo.batch = 8 ", "algo.batch", 8),
        ("protocol.name=1e3", "protocol.name", "1e3"),
        ("protocol.name=a=b", "protocol.name", "a=b"),
    ],
)
def test_a_value_is_parsed_by_the_type_of_its_field(text: str, path: str, expected: object) -> None:
    result = value(apply_settings(PONG, [parse(text)]), path)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize("text", ["8,9", "[8,9]", "[8, 9]", "8, 9"])
def test_a_list_may_leave_out_its_brackets(text: str) -> None:
    assert value(apply_settings(CATCH, [parse(f"algo.torso.widths={text}")]), "algo.torso.widths") == (8, 9)


def test_a_list_of_one_is_a_list() -> None:
    assert value(apply_settings(CATCH, [parse("algo.torso.widths=8")]), "algo.torso.widths") == (8,)


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_every_number_comes_back_to_the_last_digit(number: float) -> None:
    assert value(apply_settings(PONG, [parse(f"algo.lr={number!r}")]), "algo.lr") == number


@given(st.integers(1, 10**15))
def test_every_whole_number_comes_back(number: int) -> None:
    assert value(apply_settings(PONG, [parse(f"budget.steps={number}")]), "budget.steps") == number


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_the_later_setting_wins(first: int, second: int) -> None:
    result = apply_settings(PONG, [parse(f"budget.epoch={first}"), parse(f"budget.epoch={second}")])
    assert result.budget.epoch == second


def test_settings_change_nothing_else() -> None:
    result = apply_settings(PONG, [parse("algo.lr=0.5")])
    assert [path for path, v in fields(result) if v != value(PONG, path)] == ["algo.lr"]
    assert value(PONG, "algo.lr") == 1e-4


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("algo.lrr=1", "QLearning: unknown field 'lrr'; did you mean 'lr'?"),
        ("algo.replay.n_stp=1", "Replay: unknown field 'n_stp'; did you mean 'n_step'?"),
        ("alog.lr=1", "unknown field 'alog.lr'; did you mean 'algo.lr'?"),
        ("algo.torso=natur", "unknown choice 'natur'; did you mean 'nature'?"),
        ("algo.torso.kind=mlp", "unknown field 'kind'"),
        ("algo.lr.x=1", "lr is 0.0001 and has no fields"),
        ("algo.lr=fast", "expected a number"),
        ("algo.lr=true", "expected a number"),
        ("algo.lr=", "expected a number"),
        ("algo.batch=1.5", "expected a whole number"),
        ("budget.steps=100.000", "expected a whole number; 100.000 may also be 100000; write it without a dot"),
        ("budget.steps=+100.000", "expected a whole number"),
        ("algo.double=2", "expected true or false"),
        ("task.env=gym", "unknown choice 'gym'; did you mean 'gymnasium'?"),
        ("algo.gamma=1.5", "less than or equal to 1"),
        ("algo.lr=-1", "greater than 0"),
        ("algo.lr", "expected FIELD=VALUE"),
        ("=1", "expected FIELD=VALUE"),
        ("algo.lr=__import__('os')", "expected a number"),
    ],
)
def test_invalid_setting_is_refused_with_a_suggestion(text: str, why: str) -> None:
    message = refusal(text)
    assert why in message and message.startswith("--set")
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "NaN", "Infinity", "1e999", "9" * 400])
@pytest.mark.parametrize("path", ["algo.lr", "algo.gamma", "algo.epsilon.end", "algo.hidden", "protocol.stop"])
def test_nan_and_infinity_are_refused(path: str, number: str) -> None:
    assert path in refusal(f"{path}={number}")


def test_fields_that_contradict_each_other_are_refused_naming_what_was_set() -> None:
    message = refusal("algo.replay.capacity=100", "task.envs=50")
    assert "--set algo.replay.capacity" in message and "at least 8" in message


def test_fields_that_contradict_each_other_only_on_the_way_are_not_refused() -> None:
    assert apply_settings(PONG, [parse("protocol.envs=20"), parse("protocol.episodes=20")]).protocol.envs == 20


def test_choosing_a_part_starts_from_its_defaults_and_choosing_it_again_keeps_it() -> None:
    spec = apply_settings(CATCH, [parse("algo.torso.widths=8,9"), parse("algo.torso=mlp")])
    assert value(spec, "algo.torso.widths") == (8, 9)
    with pytest.raises(UsageError, match="needs 84×84 frames"):
        apply_settings(CATCH, [parse("algo.torso=nature")])


def test_a_tree_becomes_its_leaves_in_order() -> None:
    tree = {"algo": {"lr": 1e-3, "torso": {"widths": [8, 9]}}, "seed": 3}
    assert flatten(tree, "a.toml") == [
        Setting("algo.lr", 1e-3, "a.toml"),
        Setting("algo.torso.widths", [8, 9], "a.toml"),
        Setting("seed", 3, "a.toml"),
    ]


@given(st.dictionaries(st.sampled_from(["lr", "gamma", "adam_epsilon"]), st.floats(1e-6, 1), min_size=1, max_size=3))
def test_a_tree_and_its_settings_on_the_command_line_mean_the_same(tree: dict[str, float]) -> None:
    from_tree = apply_settings(PONG, flatten({"algo": tree}, "a.toml"))
    assert from_tree == apply_settings(PONG, [parse(f"algo.{name}={number!r}") for name, number in tree.items()])


def test_the_identity_follows_every_field_but_the_seed() -> None:
    assert apply_settings(PONG, [parse("seed=5")]).id == PONG.id
    for text in ("algo.lr=0.5", "task.sticky=0.25", "protocol.episodes=20", "budget.steps=5", "smoke=true"):
        assert apply_settings(PONG, [parse(text)]).id != PONG.id, text


def test_a_spec_is_the_same_after_json_and_back() -> None:
    for spec in (PONG, CATCH):
        assert Spec.model_validate_json(spec.model_dump_json()) == spec


def test_no_field_accepts_nan() -> None:
    def floats(model: BaseModel) -> list[float]:
        return [v for _, v in fields(model) if isinstance(v, float)]

    assert all(math.isfinite(v) for v in floats(PONG) + floats(CATCH))
