"""The tables of continuous actions against their references, transcribed from their scripts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlbench import suites
from rlbench.algorithms.sac import SAC
from rlbench.assembly import actor_critic
from rlbench.assembly.environments import describe, environments
from rlbench.config.online import ActorCritic, Deterministic, Soft
from rlbench.config.overrides import apply_settings, parse
from rlbench.envs.base import Box
from rlbench.errors import UnknownName, UsageError

NINE = (
    "Ant", "HalfCheetah", "Hopper", "Walker2d", "Swimmer", "Humanoid", "Reacher", "InvertedPendulum",
    "InvertedDoublePendulum",
)  # fmt: skip


@pytest.mark.parametrize("body", NINE)
@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac", "redq"])
def test_every_documented_cell_has_the_settings_of_its_document(algorithm: str, body: str) -> None:
    """thu-ml/tianshou examples/mujoco at e605bdea: mujoco_{ddpg,td3,sac}.py; v0.4.9: mujoco_redq.py."""
    spec = suites.spec("mujoco", algorithm, f"{body}-v4")
    algo = spec.algo
    assert isinstance(algo, ActorCritic)
    assert (algo.widths, algo.gamma, algo.tau, algo.batch) == ((256, 256), 0.99, 0.005, 256)
    assert (algo.replay.capacity, algo.replay.n_step, algo.replay.priority) == (1_000_000, 1, None)
    assert algo.replay.hindsight is None
    assert algo.actor_lr == algo.critic_lr == (3e-4 if algorithm == "td3" else 1e-3)
    assert algo.learning_starts == (25_000 if algorithm in {"ddpg", "td3"} else 10_000)
    assert algo.critics == {"ddpg": 1, "td3": 2, "sac": 2, "redq": 10}[algorithm]
    assert algo.redq_subset == (2 if algorithm == "redq" else None)
    assert algo.updates_per_step == (20 if algorithm == "redq" else 1)
    assert algo.delay == {"ddpg": 1, "td3": 2, "sac": 1, "redq": 20}[algorithm]
    if algorithm in {"ddpg", "td3"}:
        assert algo.policy == Deterministic(noise=0.1, smoothing=0.2 if algorithm == "td3" else None, clip=0.5)
    else:
        assert algo.policy == Soft(alpha=0.2, alpha_lr=None, log_std_min=-20, log_std_max=2)
    other = body in {"Humanoid", "InvertedPendulum"} and algorithm != "redq"
    assert algo.action_units == ("environment" if other else "normalized")
    assert (spec.budget.steps, spec.budget.epoch) == (1_000_000, 5_000)
    assert (spec.protocol.episodes, spec.protocol.epsilon, spec.protocol.stop) == (10, 0.0, None)
    assert (spec.task.id, spec.task.envs) == (f"{body}-v4", 1)


@pytest.mark.parametrize("body", NINE)
@pytest.mark.parametrize("env", ["gymnasium", "envpool"])
def test_only_humanoid_and_inverted_pendulum_take_other_actions_than_those_of_plus_and_minus_one(
    body: str, env: str
) -> None:
    info = describe(apply_settings(suites.spec("mujoco", "sac", f"{body}-v4"), [parse(f"task.env={env}")]))
    bound = {"Humanoid": 0.4, "InvertedPendulum": 3.0}.get(body, 1.0)
    assert isinstance(info.actions, Box)
    assert set(info.actions.low.tolist()) == {np.float32(-bound).item()}
    assert set(info.actions.high.tolist()) == {np.float32(bound).item()}


@pytest.mark.parametrize(
    ("task", "changes", "nats"),
    [
        ("Humanoid-v4", [], -15.5769),  # 17 ln 0.4
        ("InvertedPendulum-v4", [], 1.0986),  # ln 3
        ("InvertedPendulum-v4", ["algo.action_units=normalized"], 0.0),
        ("Hopper-v4", ["algo.action_units=environment"], 0.0),
    ],
)
def test_soft_policies_are_built_with_the_units_of_their_environment(
    task: str, changes: list[str], nats: float
) -> None:
    spec = apply_settings(suites.spec("mujoco", "sac", task), [parse(change) for change in changes])
    assert isinstance(spec.algo, ActorCritic)
    learner = actor_critic.actor_critic_parts(spec, spec.algo, describe(spec), torch.device("cpu")).learner
    assert isinstance(learner, SAC)
    assert learner.actor.log_scale == pytest.approx(nats, abs=1e-4)
    for critics in (learner.critics, learner.target_critics):
        assert (critics.scale is None) == (spec.algo.action_units == "normalized")


def test_records_of_the_other_units_are_those_of_another_setting() -> None:
    """Literal: a committed record of SAC on InvertedPendulum was made with normalized actions."""
    changes = ["budget.steps=100_000", "protocol.stop=1000"]
    spec = apply_settings(suites.spec("mujoco", "sac", "InvertedPendulum-v4"), [parse(change) for change in changes])
    normalized = apply_settings(spec, [parse("algo.action_units=normalized")])
    assert normalized.id == "9c74e944a84d" != spec.id


@pytest.mark.parametrize("algorithm", ["ddpg", "ddpg+her"])
def test_goal_tasks_have_the_settings_of_their_reference(algorithm: str) -> None:
    """thu-ml/tianshou examples/mujoco/fetch_her_ddpg.py, #753: 10 epochs of 5,000 steps after 25,000 random ones."""
    spec = suites.spec("goals", algorithm, "FetchReach-v3")
    algo = spec.algo
    assert isinstance(algo, ActorCritic)
    assert (algo.widths, algo.gamma, algo.tau, algo.batch) == ((256, 256), 0.99, 0.005, 512)
    assert (algo.actor_lr, algo.critic_lr, algo.critics) == (1e-3, 3e-3, 1)
    assert algo.policy == Deterministic(noise=0.1)
    assert (algo.replay.capacity, algo.replay.n_step, algo.learning_starts) == (100_000, 1, 25_000)
    assert (algo.replay.hindsight.k if algo.replay.hindsight else None) == (8 if algorithm == "ddpg+her" else None)
    assert (spec.budget.steps, spec.budget.epoch, spec.protocol.episodes) == (25_000 + 10 * 5_000, 5_000, 10)


@pytest.mark.parametrize("version", ["v2", "v3", "v4"])
def test_documented_ids_are_names_of_the_row_that_is_stepped(version: str) -> None:
    assert (
        suites.spec("mujoco", "sac", f"halfcheetah-{version}").id == suites.spec("mujoco", "sac", "HalfCheetah-v4").id
    )
    assert suites.matching("mujoco", (f"Ant-{version}",)) == ["Ant-v4"]
    assert suites.spec("goals", "ddpg", f"FetchReach-{version}").task.id == "FetchReach-v4"


def test_a_glob_names_a_row_once() -> None:
    assert suites.matching("mujoco", ("H*",)) == ["HalfCheetah-v4", "Hopper-v4", "Humanoid-v4"]
    assert suites.matching("mujoco", ("*",)) == [f"{body}-v4" for body in NINE] == suites.tasks("mujoco")


def test_star_matches_the_tasks_that_the_algorithm_can_play() -> None:
    assert suites.matching("toy", ("*",), "ddpg") == ["Pendulum-v1"]
    assert suites.matching("toy", ("*",), "sac") == ["Catch", "CartPole-v1", "Pendulum-v1"]
    assert suites.matching("toy", ("*",), "dqn") == ["Catch", "CartPole-v1"]


@pytest.mark.parametrize(("algorithm", "task"), [("redq", "Catch"), ("td3", "CartPole-v1"), ("dqn", "Pendulum-v1")])
def test_actions_of_the_wrong_kind_are_refused_at_look_up(algorithm: str, task: str) -> None:
    with pytest.raises(UsageError, match=r"cannot play .*it plays (Pendulum|Catch)"):
        suites.spec("toy", algorithm, task)


def test_a_task_that_is_not_of_mujoco_is_refused_at_look_up() -> None:
    with pytest.raises(UnknownName, match="HalfCheetah"):
        suites.spec("mujoco", "sac", "HalfCheeta-v4")
    with pytest.raises(UnknownName):
        suites.spec("mujoco", "sac", "CartPole-v1")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("algo.redq_subset=3", "cannot be drawn from critics=2"),
        ("algo.policy.log_std_min=5", "must lie below log_std_max"),
        ("algo.policy.target_entropy=-3", "nothing aims at it"),
        ("protocol.epsilon=0.5", "only Q-learning is evaluated with it"),
        ("algo.replay.hindsight=hindsight", "has no goals"),
        ("algo.replay.capacity=100", "1 envs|warmup"),
    ],
)
def test_contradictory_settings_are_refused(change: str, complaint: str) -> None:
    changes = [parse(change)] if "capacity" not in change else [parse(change), parse("algo.replay.n_step=100")]
    with pytest.raises(UsageError, match=complaint):
        apply_settings(suites.spec("mujoco", "sac", "Ant-v4"), changes)


def test_only_sac_and_redq_have_ensembles_of_critics() -> None:
    with pytest.raises(UsageError, match="only policy=soft samples its critics"):
        apply_settings(suites.spec("mujoco", "td3", "Ant-v4"), [parse("algo.redq_subset=1")])


def test_the_documented_limit_of_the_goals_can_be_chosen_and_changes_what_a_run_is() -> None:
    plain = suites.spec("goals", "ddpg+her", "FetchReach-v4")
    documented = apply_settings(plain, [parse("task.limit_terminates=true")])
    assert plain.id == "d9c58c22ccd3"  # of the committed records
    assert documented.id != plain.id
    envs = environments(documented.task, seeds=(1,), training=True)
    envs.reset()
    for _ in range(50):
        envs.send(np.zeros((1, 4), np.float32))
        step = envs.recv()
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])
    envs.close()


def test_identity_includes_the_algorithm() -> None:
    ids = {suites.spec("mujoco", algorithm, "Ant-v4").id for algorithm in ("ddpg", "td3", "sac", "redq")}
    assert len(ids) == 4
