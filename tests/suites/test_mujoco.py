"""The MuJoCo tables against their references, transcribed from their scripts."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rlbench import suites
from rlbench.algorithms.sac import SAC
from rlbench.assembly.continuous import actor_critic_parts
from rlbench.assembly.environments import describe, environments
from rlbench.config.online import (
    ActorCriticConfig,
    MLPConfig,
    PolicyGradientConfig,
    PPOConfig,
    ReinforceConfig,
    SACPolicyConfig,
    TD3PolicyConfig,
    TRPOConfig,
)
from rlbench.config.overrides import apply_settings, parse
from rlbench.envs.base import Box
from rlbench.errors import UsageError

NINE = (
    "Ant", "HalfCheetah", "Hopper", "Walker2d", "Swimmer", "Humanoid", "Reacher", "InvertedPendulum",
    "InvertedDoublePendulum",
)  # fmt: skip


@pytest.mark.parametrize("body", NINE)
@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac", "redq"])
def test_every_documented_cell_has_the_settings_of_its_reference(algorithm: str, body: str) -> None:
    """thu-ml/tianshou examples/mujoco at e605bdea: mujoco_{ddpg,td3,sac}.py; v0.4.9: mujoco_redq.py."""
    spec = suites.spec("mujoco", algorithm, f"{body}-v4")
    algo = spec.algo
    assert isinstance(algo, ActorCriticConfig)
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
        assert algo.policy == TD3PolicyConfig(noise=0.1, smoothing=0.2 if algorithm == "td3" else None, clip=0.5)
    else:
        assert algo.policy == SACPolicyConfig(alpha=0.2, alpha_lr=None, log_std_min=-20, log_std_max=2)
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
    assert isinstance(spec.algo, ActorCriticConfig)
    learner = actor_critic_parts(spec, spec.algo, describe(spec), torch.device("cpu")).learner
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
    assert isinstance(algo, ActorCriticConfig)
    assert (algo.widths, algo.gamma, algo.tau, algo.batch) == ((256, 256), 0.99, 0.005, 512)
    assert (algo.actor_lr, algo.critic_lr, algo.critics) == (1e-3, 3e-3, 1)
    assert algo.policy == TD3PolicyConfig(noise=0.1)
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


@pytest.mark.parametrize(
    ("cell", "changes", "complaint"),
    [
        ("mujoco/sac/Ant-v4", "algo.redq_subset=3", "cannot be drawn from critics=2"),
        ("mujoco/sac/Ant-v4", "algo.policy.log_std_min=5", "must lie below log_std_max"),
        ("mujoco/sac/Ant-v4", "algo.policy.target_entropy=-3", "nothing aims at it"),
        ("mujoco/sac/Ant-v4", "protocol.epsilon=0.5", "only Q-learning is evaluated with it"),
        ("mujoco/sac/Ant-v4", "algo.replay.hindsight=hindsight", "has no goals"),
        ("mujoco/sac/Ant-v4", "algo.replay.capacity=100 algo.replay.n_step=100", "1 envs|warmup"),
        ("mujoco/td3/Ant-v4", "algo.redq_subset=1", "only policy=soft samples its critics"),
        ("mujoco/ppo/Ant-v4", "task.env=envpool", "EnvPool cannot tell where it stands"),
        ("mujoco/ppo/Ant-v4", "algo.method.minibatches=4096", "a rollout has only 2048 steps"),
        ("toy/ppo/Catch", "algo.normalize_obs=true", "shows bytes"),
        ("mujoco/ppo/Ant-v4", "algo.torso=nature", "needs 84×84 frames"),
        ("mujoco/a2c/Ant-v4", "algo.method.value_clip=true", "value_clip=true: without clip"),
        ("mujoco/a2c/Ant-v4", "algo.method.dual_clip=3", "dual_clip=3.0: without clip"),
        ("offline/crr/Catch", "algo.head=quantiles", "must be head=expected"),
        ("offline/bcq/Catch", "algo.method.threshold=1.5", "threshold"),
        ("offline/bcq/Catch", "algo.torso=nature", "needs 84×84 frames"),
    ],
)
def test_contradictory_settings_are_refused(cell: str, changes: str, complaint: str) -> None:
    with pytest.raises((UsageError, ValidationError), match=complaint):
        apply_settings(suites.spec(*cell.split("/")), [parse(change) for change in changes.split()])


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
    algorithms = ("ddpg", "td3", "sac", "redq", *FIVE)
    assert len({suites.spec("mujoco", algorithm, "Ant-v4").id for algorithm in algorithms}) == len(algorithms)


FIVE = ("reinforce", "a2c", "ppo", "npg", "trpo")
LR = {"reinforce": 1e-3, "a2c": 7e-4, "ppo": 3e-4, "npg": 1e-3, "trpo": 1e-3}
COLLECTED = {"reinforce": (64, 2048), "a2c": (16, 80), "ppo": (64, 2048), "npg": (16, 1024), "trpo": (16, 1024)}


def algo_of(algorithm: str, body: str = "Ant") -> PolicyGradientConfig:
    algo = suites.spec("mujoco", algorithm, f"{body}-v4").algo
    assert isinstance(algo, PolicyGradientConfig)
    return algo


@pytest.mark.parametrize("body", NINE)
@pytest.mark.parametrize("algorithm", FIVE)
def test_every_documented_cell_has_the_common_settings(algorithm: str, body: str) -> None:
    """thu-ml/tianshou examples/mujoco at 6426a397 (PPO), 1730a900 (A2C), e27b5a26, 5057b5c8 and 844d7703."""
    spec, algo = suites.spec("mujoco", algorithm, f"{body}-v4"), algo_of(algorithm, body)
    assert algo.torso == MLPConfig(widths=(64, 64), activation="tanh")
    assert (algo.log_std, algo.gamma, algo.greedy) == (-0.5, 0.99, False)
    assert algo.normalize_obs and algo.scale_returns
    assert algo.lr == LR[algorithm]
    assert algo.bound == ("tanh" if algorithm == "reinforce" else "clip")
    assert algo.gae_lambda == 0.95 or algorithm == "reinforce"
    envs, steps = COLLECTED[algorithm]
    assert (spec.task.id, spec.task.envs, algo.rollout_length * spec.task.envs) == (f"{body}-v4", envs, steps)
    assert (spec.protocol.episodes, spec.protocol.stop) == (10, None)
    epoch = -(-30_000 // steps) * steps  # whole rollouts
    assert spec.budget.epoch == epoch
    assert (
        algo.lr_decay_steps == (334 if algorithm == "reinforce" else 100) * epoch
    )  # the epochs of the documented runs
    assert (spec.budget.steps, spec.budget.segment) == (1_000_000, 1_000_000)


def test_each_method_has_the_settings_of_its_reference() -> None:
    methods = {algorithm: algo_of(algorithm).method for algorithm in FIVE}
    assert methods["reinforce"] == ReinforceConfig()
    a2c, ppo, npg, trpo = (methods[name] for name in ("a2c", "ppo", "npg", "trpo"))
    assert isinstance(a2c, PPOConfig) and isinstance(ppo, PPOConfig)
    assert (a2c.clip, a2c.dual_clip, a2c.value_clip, a2c.normalize, a2c.recompute) == (None, None, False, False, False)
    assert (a2c.epochs, a2c.minibatches, a2c.value, a2c.entropy, a2c.max_grad_norm) == (1, 1, 0.5, 0.01, 0.5)
    assert (ppo.clip, ppo.dual_clip, ppo.value_clip, ppo.normalize, ppo.recompute) == (0.2, None, False, False, True)
    assert (ppo.epochs, 2048 // ppo.minibatches, ppo.value, ppo.entropy, ppo.max_grad_norm) == (10, 64, 0.25, 0.0, 0.5)
    for method in (npg, trpo):
        assert isinstance(method, TRPOConfig)
        assert (method.iterations, method.damping, method.critic_steps) == (10, 0.1, 20)
    assert isinstance(npg, TRPOConfig) and isinstance(trpo, TRPOConfig)
    assert (npg.max_kl, npg.step) == (None, 0.1)
    assert (trpo.max_kl, trpo.backtrack_coef, trpo.max_backtracks) == (0.01, 0.8, 10)


def test_only_a2c_uses_rmsprop() -> None:
    for algorithm in FIVE:
        algo = algo_of(algorithm)
        assert (algo.optimizer, algo.epsilon) == (("rmsprop", 1e-5) if algorithm == "a2c" else ("adam", 1e-8))


@pytest.mark.parametrize("task", ["CartPole-v1", "Catch"])
@pytest.mark.parametrize("algorithm", FIVE)
def test_toy_suite_on_policy_has_discrete_actions_and_greedy_evaluation(algorithm: str, task: str) -> None:
    spec = suites.spec("toy", algorithm, task)
    assert isinstance(spec.algo, PolicyGradientConfig)
    assert spec.algo.greedy
    assert not spec.algo.normalize_obs
    assert spec.protocol.stop == (0.95 if task == "Catch" else 475)
    with pytest.raises(UsageError, match="cannot play Pendulum-v1"):
        suites.spec("toy", algorithm, "Pendulum-v1")


def test_clipping_settings_apply_in_any_order() -> None:
    changes = [parse(text) for text in ("algo.method.value_clip=true", "algo.method.clip=0.2")]
    method = apply_settings(suites.spec("mujoco", "a2c", "Ant-v4"), changes).algo.method
    assert isinstance(method, PPOConfig)
    assert (method.clip, method.value_clip) == (0.2, True)
