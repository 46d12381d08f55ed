"""The offline table against its references, transcribed from their scripts."""

import pytest

from rlbench import suites
from rlbench.config.offline import BCConfig, BCQConfig, CQLConfig, CRRConfig, IQLConfig, OfflineConfig, TD3BCConfig
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.tasks import MujocoTask, OfflineTask
from rlbench.errors import UsageError
from rlbench.suites.offline import system

D4RL = [f"{body}-{kind}-v2" for body in ("halfcheetah", "hopper", "walker2d") for kind in ("medium", "expert")]
TIANSHOU = [(a, t) for a in suites.algorithms("offline") for t in D4RL if system(a, t) in {"Tianshou", ""}]
"""Cells that Tianshou documents, and cells that nobody does."""


def algo_of(algorithm: str, task: str = "halfcheetah-medium-v2") -> OfflineConfig:
    algo = suites.spec("offline", algorithm, task).algo
    assert isinstance(algo, OfflineConfig)
    return algo


@pytest.mark.parametrize(("algorithm", "task"), TIANSHOU)
def test_every_cell_has_a_million_steps_and_evaluations_every_five_thousand(algorithm: str, task: str) -> None:
    """examples/offline: 200 epochs of 5,000 gradient steps, batches of 256, ten test episodes."""
    spec = suites.spec("offline", algorithm, task)
    assert (spec.budget.steps, spec.budget.epoch) == (1_000_000, 5_000)
    assert (spec.protocol.episodes, spec.protocol.stop) == (10, None)
    assert (spec.algo.gamma, algo_of(algorithm, task).batch, algo_of(algorithm, task).widths) == (0.99, 256, (256, 256))
    assert isinstance(spec.task, OfflineTask)
    body = {"halfcheetah": "HalfCheetah", "hopper": "Hopper", "walker2d": "Walker2d"}[task.split("-", maxsplit=1)[0]]
    assert spec.task.world == MujocoTask(id=f"{body}-v4")
    assert spec.task.data == task


def test_the_settings_are_those_of_the_documented_scripts() -> None:
    """thu-ml/tianshou examples/offline/d4rl_{il,bcq,cql,td3_bc}.py at v0.4.9."""
    il, bcq, cql, td3bc = (algo_of(name) for name in ("il", "bcq", "cql", "td3bc"))
    assert (il.method, il.actor_lr) == (BCConfig(policy="deterministic"), 1e-4)
    assert (bcq.actor_lr, bcq.critic_lr, bcq.tau, bcq.normalize_obs) == (1e-3, 1e-3, 0.005, False)
    assert bcq.method == BCQConfig(
        vae_widths=(512, 512), vae_lr=1e-3, latent=2, vae_kl_weight=0.5, perturbation=0.05, n_action_samples=10,
        eval_action_samples=100,
        lmbda=0.75,
    )  # fmt: skip
    assert (cql.actor_lr, cql.critic_lr, cql.tau) == (1e-4, 3e-4, 0.005)
    assert isinstance(cql.method, CQLConfig)
    assert (cql.method.conservative_weight, cql.method.temperature, cql.method.n_action_samples) == (1.0, 1.0, 10)
    assert (cql.method.lagrange_threshold, cql.method.multiplier_lr, cql.method.max_multiplier) == (10.0, 3e-4, 1e6)
    assert (cql.method.alpha_lr, cql.method.max_grad_norm) == (1e-4, 1.0)
    assert (td3bc.actor_lr, td3bc.critic_lr, td3bc.tau, td3bc.n_step) == (3e-4, 3e-4, 0.005, 3)
    assert (td3bc.method, td3bc.normalize_obs) == (TD3BCConfig(alpha=2.5, delay=2, smoothing=0.2, clip=0.5), True)
    assert algo_of("td3bc-raw") == td3bc.model_copy(update={"normalize_obs": False})


def test_settings_without_a_reference_follow_the_paper() -> None:
    iql, crr = algo_of("iql", "mujoco/hopper/medium-v0"), algo_of("crr")
    assert iql.method == IQLConfig(expectile=0.7, temperature=3.0, max_weight=100.0, lr_decay_steps=1_000_000)
    assert (iql.actor_lr, iql.critic_lr, iql.tau, iql.return_span) == (3e-4, 3e-4, 0.005, 1000.0)
    assert isinstance(crr.method, CRRConfig)
    assert (crr.method.mode, crr.method.beta, crr.method.max_weight) == ("exp", 1.0, 20.0)


def test_generated_sets_have_their_own_budget_and_learning_rate_decay() -> None:
    spec = suites.spec("offline", "iql", "rlb-walker2d-medium-expert")
    assert spec.budget.steps == 100_000
    assert isinstance(spec.algo, OfflineConfig)
    assert spec.algo.method == IQLConfig(lr_decay_steps=100_000)
    assert isinstance(spec.task, OfflineTask)
    assert spec.task.world.id == "Walker2d-v4"


def test_cql_on_generated_sets_has_a_fixed_weight() -> None:
    """https://github.com/aviralkumar2907/CQL: min_q_weight 5, no Lagrange form, backups without entropy."""
    own, reference = (
        suites.spec("offline", "cql", name).algo for name in ("rlb-hopper-medium", "halfcheetah-medium-v2")
    )
    assert isinstance(own, OfflineConfig) and isinstance(reference, OfflineConfig)
    assert own.method == CQLConfig(conservative_weight=5.0, lagrange_threshold=None, soft_q_backup=False)
    assert reference.method == CQLConfig(conservative_weight=1.0, lagrange_threshold=10.0, soft_q_backup=True)
    assert own.model_copy(update={"method": reference.method}) == reference


def test_cell_name_contains_other_data() -> None:
    spec = suites.spec("offline", "il", "HalfCheetah-v4")
    assert spec.name == "offline/il/HalfCheetah-v4"
    other = apply_settings(spec, [parse("task.dataset=mine-01234567")])
    assert (other.name, other.task_folder) == (
        "offline/il/HalfCheetah-v4@mine-01234567",
        "HalfCheetah-v4@mine-01234567",
    )
    assert other.id != spec.id


def test_unfit_pairs_are_refused() -> None:
    with pytest.raises(UsageError, match="offline algorithms learn from data sets"):
        apply_settings(suites.spec("mujoco", "td3", "Hopper-v4"), [parse("algo=offline")])
