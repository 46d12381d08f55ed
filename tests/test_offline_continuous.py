"""From an offline Spec to its parts: the settings of the documented table and of the papers, schedules and records."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rlbench import suites
from rlbench.algorithms.bcq import BCQ
from rlbench.algorithms.behavior_cloning import BehaviorCloning
from rlbench.algorithms.cql import CQL, SACWithCloning
from rlbench.algorithms.crr import CRR
from rlbench.algorithms.iql import IQL
from rlbench.algorithms.sac import SAC
from rlbench.algorithms.td3 import TD3BC
from rlbench.assembly.components import AlgorithmParts
from rlbench.assembly.continuous import continuous_offline_parts
from rlbench.config.offline import BCConfig, BCQConfig, CQLConfig, CRRConfig, IQLConfig, OfflineConfig, TD3BCConfig
from rlbench.envs.base import Box, Discrete, EnvInfo
from rlbench.errors import UsageError
from rlbench.nets.actors import BoundedGaussianActor, DeterministicActor, StateDependentStdActor

CPU = torch.device("cpu")
BOX = Box(low=-np.ones(6, np.float32), high=np.ones(6, np.float32))
INFO = EnvInfo(num_envs=1, obs_shape=(17,), obs_dtype=np.dtype("float32"), actions=BOX, versions=())


def test_discrete_actions_and_frames_are_refused_in_one_line() -> None:
    for info, word in (
        (INFO._replace(actions=Discrete(4)), "discrete ones"),
        (INFO._replace(obs_shape=(84, 84)), r"\(84, 84\)"),
    ):
        with pytest.raises(UsageError, match=rf"^offline/td3bc/x: [^\n]*{word}[^\n]*$"):
            continuous_offline_parts("offline/td3bc/x", OfflineConfig(), info, CPU)


def test_the_defaults_of_every_method_are_its_documented_settings() -> None:
    bcq = continuous_offline_parts("x", OfflineConfig(method=BCQConfig()), INFO, CPU).learner
    assert isinstance(bcq, BCQ)
    assert bcq.config == BCQConfig()
    assert bcq.net.proposer.latent == 12
    assert [p.shape[0] for p in bcq.net.proposer.decoder.parameters()] == [512] * 4
    assert bcq.net.perturbation.perturbation == 0.05
    cql = continuous_offline_parts("x", OfflineConfig(method=CQLConfig()), INFO, CPU).learner
    assert isinstance(cql, CQL)
    assert cql.config == CQLConfig()
    assert (cql.multiplier.lagrange_threshold, cql.multiplier.max_multiplier) == (10.0, 1e6)
    assert cql.multiplier.optimizer.param_groups[0]["lr"] == 3e-4
    assert cql.sac.temperature.target == -6
    assert cql.sac.temperature.optimizer.param_groups[0]["lr"] == 1e-4
    td3bc = continuous_offline_parts("x", OfflineConfig(), INFO, CPU).learner
    assert isinstance(td3bc, TD3BC)
    assert (td3bc.config, td3bc.cycle_length) == (TD3BCConfig(), 2)
    crr = continuous_offline_parts("x", OfflineConfig(method=CRRConfig()), INFO, CPU).learner
    assert isinstance(crr, CRR)
    assert crr.config == CRRConfig()
    iql = continuous_offline_parts("x", OfflineConfig(method=IQLConfig()), INFO, CPU).learner
    assert isinstance(iql, IQL)
    assert iql.config == IQLConfig()


def referenced(algorithm: str, task: str) -> AlgorithmParts:
    """The parts of a cell with its reference's settings, of 17 numbers and 6 actions whatever its world is."""
    torch.manual_seed(0)
    algo = suites.spec("offline", algorithm, task).algo
    assert isinstance(algo, OfflineConfig)
    return continuous_offline_parts("x", algo, INFO, CPU)


def test_the_settings_of_corl_and_robomimic_reach_their_parts() -> None:
    bcq = referenced("bcq", "walker2d-expert-v2").learner
    assert isinstance(bcq, BCQ)
    assert (bcq.net.proposer.latent, bcq.net.proposer.clip, bcq.config.vae_kl_weight) == (14, None, 7.0)
    assert [p.shape[0] for p in bcq.net.proposer.decoder.parameters()] == [300, 300, 400, 400]
    corl = referenced("cql", "hopper-medium-v2")
    assert isinstance(corl.learner, CQL)
    method = corl.learner.config
    assert (method.conservative_weight, method.soft_q_backup, method.max_grad_norm) == (10.0, False, None)
    assert method.actor_first
    assert (type(corl.learner.sac), corl.schedules) == (SAC, [])
    actor, critics = corl.learner.sac.actor, corl.learner.sac.critics
    assert [p.shape[0] for p in actor.torso.parameters()] == [256] * 6
    assert actor.affine.tolist() == [1.0, -1.0]
    assert actor.mean.weight.abs().max() <= 0.01 * math.sqrt(6 / (256 + 12)) >= actor.log_std.weight.abs().max()
    assert not actor.mean.bias.any() and not critics.layers[0].bias.any()
    robomimic = referenced("cql", "walker2d-expert-v2")
    assert isinstance(robomimic.learner, CQL) and isinstance(robomimic.learner.sac, SACWithCloning)
    actor, critics = robomimic.learner.sac.actor, robomimic.learner.sac.critics
    assert (actor.affine, actor.mean_bound) == (None, 9.0)
    assert actor.mean.weight.abs().max() <= 1e-3 >= actor.log_std.bias.abs().max()
    assert critics.layers[0].bias.any()
    ((cloning, _),) = robomimic.schedules
    assert [cloning(updates) for updates in (0, 39_999, 40_000)] == [1.0, 1.0, 0.0]
    deterministic, conditional = referenced("iql", "hopper-medium-v2"), referenced("iql", "walker2d-expert-v2")
    assert isinstance(deterministic.learner, IQL) and isinstance(conditional.learner, IQL)
    assert isinstance(deterministic.learner.actor, DeterministicActor)
    assert isinstance(conditional.learner.actor, StateDependentStdActor)
    assert (len(deterministic.schedules), conditional.schedules) == (1, [])  # the rate falls along a cosine, or not


def iql_optimizers(iql: IQL) -> tuple[torch.optim.Optimizer, ...]:
    return iql.actor_optimizer, iql.critics_optimizer, iql.value_optimizer


def test_each_learning_rate_reaches_its_own_network() -> None:
    algo = {"actor_lr": 0.1, "critic_lr": 0.2}
    bcq = continuous_offline_parts("x", OfflineConfig(method=BCQConfig(vae_lr=0.3), **algo), INFO, CPU).learner
    assert isinstance(bcq, BCQ)
    pairs = zip(
        (bcq.proposer_optimizer, bcq.critics_optimizer, bcq.perturbation_optimizer),
        ((bcq.net.proposer, 0.3), (bcq.net.critics, 0.2), (bcq.net.perturbation, 0.1)),
        strict=True,
    )
    iql = continuous_offline_parts("x", OfflineConfig(method=IQLConfig(), **algo), INFO, CPU).learner
    assert isinstance(iql, IQL)
    more = zip(iql_optimizers(iql), ((iql.actor, 0.1), (iql.critics, 0.2), (iql.value, 0.2)), strict=True)
    cql = continuous_offline_parts("x", OfflineConfig(method=CQLConfig(), **algo), INFO, CPU).learner
    assert isinstance(cql, CQL)
    last = ((cql.sac.actor_optimizer, (cql.sac.actor, 0.1)), (cql.sac.critic_optimizer, (cql.sac.critics, 0.2)))
    for optimizer, (net, lr) in (*pairs, *more, *last):
        (group,) = optimizer.param_groups
        assert group["lr"] == lr
        assert [id(p) for p in group["params"]] == [id(p) for p in net.parameters()]


def test_papers_settings_can_be_expressed() -> None:
    bcq = OfflineConfig(
        method=BCQConfig(vae_widths=(750, 750)), widths=(400, 300), actor_lr=1e-3, critic_lr=1e-3, batch=100
    )
    cql = OfflineConfig(
        method=CQLConfig(
            conservative_weight=5.0, lagrange_threshold=None, soft_q_backup=False, alpha_lr=1e-4, max_grad_norm=None
        ),
        widths=(256, 256, 256),
        actor_lr=1e-4,
    )
    crr = OfflineConfig(method=CRRConfig(mode="binary", advantage_type="max", critics=1, target_update_interval=100))
    iql = OfflineConfig(method=IQLConfig(lr_decay_steps=1_000_000), return_span=1000.0)
    il = OfflineConfig(method=BCConfig(policy="gaussian"))
    kinds = {BCQ: bcq, CQL: cql, CRR: crr, IQL: iql, BehaviorCloning: il}
    for kind, algo in kinds.items():
        assert isinstance(continuous_offline_parts("x", algo, INFO, CPU).learner, kind)
    gaussian = continuous_offline_parts("x", il, INFO, CPU).learner
    assert isinstance(gaussian, BehaviorCloning)
    assert isinstance(gaussian.actor, BoundedGaussianActor)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "implicitq", "expectile": 1.0},
        {"kind": "implicitq", "log_std_min": 3.0},
        {"kind": "batchconstrained", "lmbda": 1.5},
        {"kind": "conservative", "target_entropy": -1.0, "alpha_lr": None},
        {"kind": "criticregularized", "n_action_samples": 0},
        {"kind": "td3bc", "alpha": 0.0},
        {"kind": "td3bc", "expectile": 0.5},
        {"kind": "nothing"},
    ],
)
def test_contradictory_settings_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        OfflineConfig.model_validate({"method": fields})


def test_learning_rate_of_iqls_actor_follows_half_a_cosine() -> None:
    parts = continuous_offline_parts("x", OfflineConfig(method=IQLConfig(lr_decay_steps=1000), actor_lr=0.4), INFO, CPU)
    ((at, put),) = parts.schedules
    assert [at(n) for n in (0, 250, 500, 1000, 2000)] == pytest.approx(
        [0.4, 0.2 * (1 + math.sqrt(0.5)), 0.2, 0.0, 0.0], abs=1e-15
    )
    put(at(500))
    assert isinstance(parts.learner, IQL)
    rates = [optimizer.param_groups[0]["lr"] for optimizer in iql_optimizers(parts.learner)]
    assert rates == pytest.approx([0.2, 3e-4, 3e-4])
    assert continuous_offline_parts("x", OfflineConfig(method=IQLConfig()), INFO, CPU).schedules == []
    assert continuous_offline_parts("x", OfflineConfig(), INFO, CPU).schedules == []
