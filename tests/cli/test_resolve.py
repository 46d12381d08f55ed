"""Resolution of options into a Spec, and the source of each value."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench import suites
from rlbench.cli.resolve import IDENTITY, resolve
from rlbench.config.offline import DiscreteOfflineConfig, OfflineConfig
from rlbench.config.online import PolicyGradientConfig
from rlbench.config.overrides import apply_settings, parse, written
from rlbench.errors import UsageError

PONG = ("atari", "dqn", "PongNoFrameskip-v4")
CATCH = ("toy", "dqn", "Catch")
CELLS = [
    (suite, algo, task)
    for suite in suites.names()
    for algo in suites.algorithms(suite)
    for task in suites.tasks(suite, with_reference=True)
    if suites.has_cell(suite, algo, task)
]


def toml(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_settings_the_suites_table_applies() -> None:
    assert resolve(*PONG).spec == suites.spec(*PONG)


@pytest.mark.parametrize("given_by", range(5))
def test_precedence_is_option_set_environment_file_table(tmp_path: Path, given_by: int) -> None:
    match = resolve(
        *PONG,
        config=toml(tmp_path, "[budget]\nsteps = 1000001") if given_by >= 1 else None,
        environ={"RLBENCH_BUDGET__STEPS": "1000002"} if given_by >= 2 else {},
        sets=["budget.steps=1000003"] if given_by >= 3 else [],
        steps=1_000_004 if given_by >= 4 else None,
    )
    expected = [
        (10_000_000, "suite table"),
        (1_000_001, "mine.toml"),
        (1_000_002, "RLBENCH_BUDGET__STEPS"),
        (1_000_003, "--set"),
        (1_000_004, "--steps"),
    ][given_by]
    assert (match.spec.budget.steps, match.sources["budget.steps"]) == expected


def test_rlbench_steps_has_lower_precedence_than_set() -> None:
    match = resolve(*PONG, environ={"RLBENCH_STEPS": "5"}, sets=["budget.steps=6"])
    assert match.spec.budget.steps == 6
    assert resolve(*PONG, environ={"RLBENCH_STEPS": "5"}).sources["budget.steps"] == "RLBENCH_STEPS"


def test_unset_field_has_source_default_or_suite_table() -> None:
    sources = resolve(*PONG).sources
    assert sources["algo.lr"] == "default"
    assert sources["algo.epsilon.end"] == "default"
    assert sources["algo.replay.n_step"] == "suite table"
    assert sources["task.id"] == "argument"
    assert sources["seed"] == "default"
    assert resolve(*PONG, seed=0).sources["seed"] == "--seed"


@pytest.mark.parametrize("suite", suites.names())
def test_every_field_has_a_source_and_can_be_written_back(suite: str) -> None:
    for cell in (cell for cell in CELLS if cell[0] == suite):
        match = resolve(*cell)
        rows = [(path, value) for path, value, *_ in match.rows() if path not in IDENTITY]
        assert len(rows) > 20, cell
        assert resolve(*cell, sets=[f"{path}={written(value)}" for path, value in rows]).spec == match.spec, cell


def test_unrelated_environment_variables_set_no_field() -> None:
    others = {"RLBENCH_RESULTS": "x", "RLBENCH_DEVICE": "cpu", "RLBENCH_SEEDS": "0-3", "ALGO__LR": "1", "PATH": "/bin"}
    others |= {"RLBENCH_D4RL_MIRROR": "http://localhost", "RLBENCH_FAULT": "append.torn"}
    assert resolve(*PONG, environ=others).spec == suites.spec(*PONG)


def test_a_part_is_chosen_by_name_before_its_fields_whatever_their_order_in_the_file(tmp_path: Path) -> None:
    config = toml(tmp_path, '[algo.torso]\nwidths = [8, 9]\nkind = "mlp"\n')
    match = resolve("toy", "dqn", "Catch", config=config)
    assert written({p: v for p, v, *_ in match.rows()}["algo.torso.widths"]) == "8,9"
    assert match.sources["algo.torso"] == "mine.toml"


@pytest.mark.parametrize("source", ["--set", "RLBENCH_", "file"])
@pytest.mark.parametrize("path", ["task.id", "task.game", "task.kind", "algo.family"])
def test_identity_fields_have_their_own_options(tmp_path: Path, source: str, path: str) -> None:
    group, name = path.split(".")
    given_by = {
        "--set": {"sets": [f"{path}=x"]},
        "RLBENCH_": {"environ": {f"RLBENCH_{group}__{name}".upper(): "x"}},
        "file": {"config": toml(tmp_path, f'[{group}]\n{name} = "x"')},
    }[source]
    with pytest.raises(UsageError, match=r"identifies the run; (use --task|the algorithm is the second argument)"):
        resolve(*PONG, **given_by)


@pytest.mark.parametrize("text", ["seed=3", "smoke=true", "suite=toy", "algorithm=c51", "task=toy", "algo=ppo"])
def test_the_identity_of_a_run_cannot_be_set(text: str) -> None:
    with pytest.raises(UsageError, match="identifies the run"):
        resolve(*PONG, sets=[text])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("algo = [", "not TOML"),
        ("[algo]\nlrr = 1", "did you mean 'lr'"),
        ("[algo]\nlr = 'fast'", "expected a number"),
        ("[algo]\nlr = nan", "algo.lr"),
        ("[algo]\nlr = 2026-01-01", "expected a number"),
        ("[algo]\nbatch = 1.5", "expected a whole number"),
        ("[[algo]]\nlr = 1", "second argument"),
        ("[algorithm]\nname = 'x'", "algorithm"),
    ],
)
def test_invalid_config_file_is_refused_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(*PONG, config=toml(tmp_path, text))
    assert why in str(caught.value)
    assert "mine.toml" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.toml: cannot be read"):
        resolve(*PONG, config=tmp_path / "nowhere.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"bytes\.toml: not UTF-8"):
        resolve(*PONG, config=tmp_path / "bytes.toml")


@pytest.mark.parametrize("suite", suites.names())
def test_smoke_run_covers_an_epoch_a_segment_and_updates(suite: str) -> None:
    for cell in (cell for cell in CELLS if cell[0] == suite):
        tiny = resolve(*cell, smoke=True).spec
        assert tiny.smoke
        assert tiny.budget.steps >= 2 * tiny.budget.epoch
        assert tiny.budget.steps >= 2 * tiny.budget.segment
        assert tiny.budget.steps <= 2_000
        assert tiny.protocol.episodes == tiny.protocol.envs == 2
        if isinstance(tiny.algo, PolicyGradientConfig):
            assert 2 * tiny.algo.rollout_length * tiny.task.envs < tiny.budget.epoch
        elif isinstance(tiny.algo, OfflineConfig | DiscreteOfflineConfig):
            assert tiny.budget.steps <= 200  # each of them is a gradient step
            assert tiny.algo.batch <= 64
        else:
            assert tiny.algo.learning_starts < tiny.budget.epoch
            assert tiny.algo.replay.capacity <= 5_000
            assert tiny.algo.updates_per_step <= 1


def test_smoke_run_keeps_smaller_settings_and_explicit_options() -> None:
    match = resolve(*PONG, sets=["algo.replay.capacity=2000", "budget.epoch=400000"], steps=3_000, smoke=True)
    assert (match.spec.algo.replay.capacity, match.sources["algo.replay.capacity"]) == (2_000, "--set")
    assert (match.spec.budget.epoch, match.sources["budget.epoch"]) == (1_000, "--smoke")
    assert (match.spec.budget.steps, match.sources["budget.steps"]) == (3_000, "--steps")


def test_a_smoke_run_has_no_more_batches_than_steps_in_its_rollouts() -> None:
    match = resolve("mujoco", "ppo", "Hopper-v4", sets=["task.envs=1"], smoke=True).spec.algo
    assert (match.rollout_length, match.method.minibatches) == (4, 4)


def test_smoke_run_has_another_identity_than_a_short_run() -> None:
    tiny = resolve(*CATCH, smoke=True).spec
    assert tiny.id != apply_settings(tiny.model_copy(update={"smoke": False}), []).id


@settings(max_examples=200)
@given(st.text(max_size=12), st.text(max_size=12))
def test_any_setting_is_accepted_or_refused(path: str, value: str) -> None:
    for name in (path, f"algo.{path}"):
        try:
            resolve(*CATCH, sets=[f"{name}={value}"])
        except UsageError as error:
            assert str(error).startswith("--set")  # noqa: PT017 - either outcome is right


@settings(max_examples=200)
@given(st.sampled_from([p for p, *_ in resolve(*PONG).rows() if p not in IDENTITY]), st.text(max_size=6))
def test_any_text_for_a_known_field_is_accepted_or_refused(path: str, value: str) -> None:
    try:
        assert parse(f"{path}={value}").path == path
        resolve(*PONG, sets=[f"{path}={value}"])
    except UsageError as error:
        assert path.partition(".")[0] in str(error)  # noqa: PT017 - either outcome is right
