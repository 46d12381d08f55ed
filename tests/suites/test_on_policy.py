"""The on-policy tables against their references, transcribed from their scripts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rlbench import suites
from rlbench.config.online import Mlp, Natural, PolicyGradient, Reinforce, Surrogate
from rlbench.config.overrides import apply_settings, parse
from rlbench.errors import UsageError

NINE = (
    "Ant", "HalfCheetah", "Hopper", "Walker2d", "Swimmer", "Humanoid", "Reacher", "InvertedPendulum",
    "InvertedDoublePendulum",
)  # fmt: skip
FIVE = ("reinforce", "a2c", "ppo", "npg", "trpo")
LR = {"reinforce": 1e-3, "a2c": 7e-4, "ppo": 3e-4, "npg": 1e-3, "trpo": 1e-3}
COLLECTED = {"reinforce": (64, 2048), "a2c": (16, 80), "ppo": (64, 2048), "npg": (16, 1024), "trpo": (16, 1024)}


def algo_of(algorithm: str, body: str = "Ant") -> PolicyGradient:
    algo = suites.spec("mujoco", algorithm, f"{body}-v4").algo
    assert isinstance(algo, PolicyGradient)
    return algo


@pytest.mark.parametrize("body", NINE)
@pytest.mark.parametrize("algorithm", FIVE)
def test_every_documented_cell_has_the_common_settings(algorithm: str, body: str) -> None:
    """thu-ml/tianshou examples/mujoco at 6426a397 (PPO), 1730a900 (A2C), e27b5a26, 5057b5c8 and 844d7703."""
    spec, algo = suites.spec("mujoco", algorithm, f"{body}-v4"), algo_of(algorithm, body)
    assert algo.torso == Mlp(widths=(64, 64), activation="tanh")
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


def test_each_method_has_the_settings_of_its_document() -> None:
    methods = {algorithm: algo_of(algorithm).method for algorithm in FIVE}
    assert methods["reinforce"] == Reinforce()
    a2c, ppo, npg, trpo = (methods[name] for name in ("a2c", "ppo", "npg", "trpo"))
    assert isinstance(a2c, Surrogate) and isinstance(ppo, Surrogate)
    assert (a2c.clip, a2c.dual_clip, a2c.value_clip, a2c.normalize, a2c.recompute) == (None, None, False, False, False)
    assert (a2c.epochs, a2c.minibatches, a2c.value, a2c.entropy, a2c.max_grad_norm) == (1, 1, 0.5, 0.01, 0.5)
    assert (ppo.clip, ppo.dual_clip, ppo.value_clip, ppo.normalize, ppo.recompute) == (0.2, None, False, False, True)
    assert (ppo.epochs, 2048 // ppo.minibatches, ppo.value, ppo.entropy, ppo.max_grad_norm) == (10, 64, 0.25, 0.0, 0.5)
    for method in (npg, trpo):
        assert isinstance(method, Natural)
        assert (method.iterations, method.damping, method.critic_steps) == (10, 0.1, 20)
    assert isinstance(npg, Natural) and isinstance(trpo, Natural)
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
    assert isinstance(spec.algo, PolicyGradient)
    assert spec.algo.greedy
    assert not spec.algo.normalize_obs
    assert spec.protocol.stop == (0.95 if task == "Catch" else 475)
    with pytest.raises(UsageError, match="cannot play Pendulum-v1"):
        suites.spec("toy", algorithm, "Pendulum-v1")


@pytest.mark.parametrize(
    ("cell", "change", "complaint"),
    [
        ("mujoco/ppo/Ant-v4", "task.env=envpool", "EnvPool cannot tell where it stands"),
        ("mujoco/ppo/Ant-v4", "algo.method.minibatches=4096", "a rollout has only 2048 steps"),
        ("toy/ppo/Catch", "algo.normalize_obs=true", "shows bytes"),
        ("mujoco/ppo/Ant-v4", "algo.torso=nature", "needs 84×84 frames"),
        ("mujoco/a2c/Ant-v4", "algo.method.value_clip=true", "value_clip=true: without clip"),
        ("mujoco/a2c/Ant-v4", "algo.method.dual_clip=3", "dual_clip=3.0: without clip"),
    ],
)
def test_contradictory_settings_are_refused(cell: str, change: str, complaint: str) -> None:
    with pytest.raises((UsageError, ValidationError), match=complaint):
        apply_settings(suites.spec(*cell.split("/")), [parse(change)])


def test_clipping_settings_apply_in_any_order() -> None:
    changes = [parse(text) for text in ("algo.method.value_clip=true", "algo.method.clip=0.2")]
    method = apply_settings(suites.spec("mujoco", "a2c", "Ant-v4"), changes).algo.method
    assert isinstance(method, Surrogate)
    assert (method.clip, method.value_clip) == (0.2, True)


def test_identity_includes_the_algorithm() -> None:
    assert len({suites.spec("mujoco", algorithm, "Ant-v4").id for algorithm in FIVE}) == 5
