"""Properties of every learner of transitions, online and offline; new learners are added to the lists."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlbench import suites
from rlbench.algorithms.base import OffPolicyLearner
from rlbench.algorithms.bcq import BCQ
from rlbench.algorithms.behavior_cloning import BehaviorCloning
from rlbench.algorithms.cql import CQL
from rlbench.algorithms.crr import CRR
from rlbench.algorithms.discrete_sac import DiscreteSAC
from rlbench.algorithms.dqn import QLearner
from rlbench.algorithms.iql import IQL
from rlbench.algorithms.sac import SAC
from rlbench.algorithms.td3 import TD3
from rlbench.assembly.assemble import build
from rlbench.assembly.continuous import continuous_offline_parts
from rlbench.assembly.discrete import discrete_offline_parts
from rlbench.assembly.environments import describe
from rlbench.config import offline
from rlbench.config.offline import DiscreteOfflineConfig, OfflineConfig
from rlbench.config.online import (
    C51HeadConfig,
    DQNHeadConfig,
    FQFHeadConfig,
    HeadConfig,
    IQNHeadConfig,
    QRDQNHeadConfig,
)
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime
from rlbench.envs.base import Box, Discrete, EnvInfo
from rlbench.ops.types import Transition
from tests.algorithms.contract import check_actions, compiles_whole, cycled, drawn_from_their_seed, goes_on, leaves
from tests.slow import slow_but

ONLINE = (
    "toy/dqn/CartPole-v1",
    "atari/dqn/PongNoFrameskip-v4",
    "atari/sac/PongNoFrameskip-v4",
    "toy/sac/Catch",
    *(f"toy/{algorithm}/Catch" for algorithm in ("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow")),
    *(f"toy/{algorithm}/Pendulum-v1" for algorithm in ("ddpg", "td3", "sac", "redq")),
    *(f"mujoco/{algorithm}/Hopper-v4" for algorithm in ("ddpg", "td3", "sac", "redq")),
)
CONTINUOUS: dict[str, offline.Method] = {
    "il": offline.BCConfig(),
    "il gaussian": offline.BCConfig(policy="gaussian"),
    "bcq": offline.BCQConfig(vae_widths=(10, 9), eval_action_samples=5),
    "cql": offline.CQLConfig(n_action_samples=3),
    "cql fixed": offline.CQLConfig(
        n_action_samples=2, lagrange_threshold=None, alpha_lr=None, max_grad_norm=None, soft_q_backup=False
    ),
    "crr": offline.CRRConfig(),
    "crr binary": offline.CRRConfig(mode="binary", advantage_type="max", critics=1, target_update_interval=100),
    "td3bc": offline.TD3BCConfig(),
    "iql": offline.IQLConfig(),
    "bcq unclipped": offline.BCQConfig(vae_widths=(10, 9), eval_action_samples=5, latent_dim=14, latent_clip=None),
    "cql cloning": offline.CQLConfig(
        n_action_samples=2, lagrange_threshold=None, bc_steps=10, mean_bound=9.0, final_init="uniform", actor_first=True
    ),
    "cql orthogonal": offline.CQLConfig(
        n_action_samples=2, lagrange_threshold=None, log_std_offset=-1.0, orthogonal_init=True, final_init="xavier"
    ),
    "iql deterministic": offline.IQLConfig(policy="deterministic"),
    "iql conditional": offline.IQLConfig(policy="conditional"),
}
DISCRETE: dict[str, tuple[offline.DiscreteMethod, HeadConfig]] = {
    "discrete il": (offline.DiscreteBCConfig(), DQNHeadConfig()),
    "discrete bcq": (offline.DiscreteBCQConfig(), DQNHeadConfig(huber=1.0)),
    "discrete bcq of fractions": (offline.DiscreteBCQConfig(), IQNHeadConfig()),
    "discrete cql": (offline.DiscreteCQLConfig(), QRDQNHeadConfig(n_quantiles=9)),
    "discrete cql of atoms": (offline.DiscreteCQLConfig(), C51HeadConfig()),
    "discrete cql of fqf": (offline.DiscreteCQLConfig(), FQFHeadConfig(n_quantiles=5, lr=1e-3)),
    "discrete crr": (offline.DiscreteCRRConfig(mode="all"), DQNHeadConfig()),
    "discrete crr with cql": (offline.DiscreteCRRConfig(conservative_weight=2.0), DQNHeadConfig()),
}
NAMES = (*ONLINE, *CONTINUOUS, *DISCRETE)
BATCH, CPU = 6, torch.device("cpu")
BOX = Box(low=-np.ones(2, np.float32), high=np.ones(2, np.float32))
VECTORS = EnvInfo(num_envs=1, obs_shape=(3,), obs_dtype=np.dtype("float32"), actions=BOX, versions=())


def learner_of(name: str, seed: int = 0) -> tuple[OffPolicyLearner[Transition], Transition, EnvInfo]:
    """A learner, a batch whose last row has weight 0, and the environment of both."""
    torch.manual_seed(seed)
    if name in CONTINUOUS:
        algo = OfflineConfig(method=CONTINUOUS[name], widths=(8, 7), actor_lr=1e-3)
        return continuous_offline_parts(name, algo, VECTORS, CPU).learner, transitions(VECTORS), VECTORS
    spec = suites.spec("offline", "bcq", "Catch") if name in DISCRETE else suites.spec(*name.split("/"))
    info = describe(spec)
    if isinstance(spec.algo, DiscreteOfflineConfig):
        method, head = DISCRETE[name]
        algo_of = spec.algo.model_copy(update={"method": method, "head": head, "hidden": 9})
        learner = discrete_offline_parts(spec, algo_of, info, CPU).learner
    else:
        changes = [parse("algo.replay.capacity=400"), parse(f"algo.batch={BATCH}")]
        spec = apply_settings(spec, changes).model_copy(update={"seed": seed})
        learner = build(spec, Runtime(device="cpu", threads=1), info).learner
    assert isinstance(learner, QLearner | TD3 | SAC | DiscreteSAC | BehaviorCloning)
    return learner, transitions(info, spec.task.stack), info


def transitions(info: EnvInfo, stack: int = 1) -> Transition:
    shape = (BATCH, *((stack,) if stack > 1 else ()), *info.obs_shape)
    generator = torch.Generator().manual_seed(1)

    def observations() -> Tensor:
        if info.obs_dtype == "uint8":
            return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return torch.randn(shape, generator=generator)

    if isinstance(info.actions, Discrete):
        action = torch.randint(0, info.actions.n, (BATCH,), generator=generator)
    else:
        action = torch.rand((BATCH, *info.actions.low.shape), generator=generator) * 2 - 1
    return Transition(
        obs=observations(),
        action=action,
        reward=torch.randn(BATCH, generator=generator),
        discount=torch.full((BATCH,), 0.97),
        next_obs=observations(),
        weight=torch.tensor([1.0, 1, 1, 1, 1, 0]),
        slot=torch.arange(BATCH),
    )


class Taught(NamedTuple):
    """A network, and its loss as a function of the batch alone."""

    net: nn.Module
    loss: Callable[[Transition], Tensor]


def taught(learner: OffPolicyLearner[Transition]) -> tuple[Taught, ...]:
    """All that learns; targets follow and are not among them."""

    def first(loss: Callable[..., Tensor | tuple[Tensor, ...]], *columns: str) -> Callable[[Transition], Tensor]:
        """The loss alone, of the batch and further columns of it."""

        def alone(batch: Transition) -> Tensor:
            value = loss(batch, *(getattr(batch, column) for column in columns))
            return value if isinstance(value, Tensor) else value[0]

        return alone

    match learner:
        case QLearner() | BehaviorCloning():
            net = learner.online if isinstance(learner, QLearner) else learner.actor
            return (Taught(net, first(learner.loss)),)
        case DiscreteSAC():
            return (Taught(learner.net, lambda b: _all_losses(learner, b)),)
        case TD3() | SAC():
            actor = Taught(learner.actor, first(learner.policy_loss))
            return Taught(learner.critics, first(learner.critic_loss)), actor
        case CQL():
            actor = Taught(learner.sac.actor, first(learner.sac.policy_loss))
            return Taught(learner.sac.critics, first(learner.critic_loss)), actor
        case CRR() | IQL():
            value = (Taught(learner.value, first(learner.value_loss)),) if isinstance(learner, IQL) else ()
            actor = Taught(learner.actor, first(learner.policy_loss, "reward"))
            return Taught(learner.critics, first(learner.critic_loss)), actor, *value
        case BCQ():
            return (
                Taught(learner.net.proposer, first(learner.model_loss)),
                Taught(learner.net.critics, lambda b: learner.critic_loss(b, learner.proposals(b)[1])[0]),
                Taught(learner.net.perturbation, first(learner.policy_loss, "action")),
            )
        case _:
            raise TypeError(type(learner).__name__)


def _all_losses(learner: DiscreteSAC, batch: Transition) -> Tensor:
    target = learner.td_target(batch)
    critics = [learner.critic_loss(batch, target, member)[0] for member in range(2)]
    return learner.policy_loss(batch)[0] + torch.stack(critics).sum()


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_cycle_of_updates_changes_every_parameter_that_learns(name: str) -> None:
    learner, batch, _ = learner_of(name)
    before = [[p.detach().clone() for p in net.parameters()] for net, _ in taught(learner)]
    if isinstance(learner, CRR):  # weights of 0 would be right, and teach nothing
        batch = batch._replace(reward=batch.reward + 100)
        for _ in range(50):
            learner.update(batch, 0)
    for phase in range(learner.cycle_length):
        learner.update(batch, phase)
    for (net, _), old in zip(taught(learner), before, strict=True):
        assert not [k for (k, v), o in zip(net.named_parameters(), old, strict=True) if torch.equal(v, o)]


@pytest.mark.parametrize("name", [name for name in NAMES if name.split()[-1] not in {"il", "gaussian"}])
def test_targets_follow_their_networks_by_polyak_averaging_and_only_when_due(name: str) -> None:
    learner, batch, _ = learner_of(name)
    before = leaves(learner.state_dict())
    for phase in range(learner.cycle_length):
        learner.update(batch, phase)
    for parameter in (parameter for net, _ in taught(learner) for parameter in net.parameters()):
        parameter.data += 1  # far from its target
    now = leaves(learner.state_dict())
    online = {key.replace("net/", "").replace("online/", "").replace("/", "."): value for key, value in now.items()}
    for periodic in learner.periodic_actions:
        periodic.action()
    after, copies = leaves(learner.state_dict()), isinstance(learner, QLearner) or name == "crr binary"
    share = 1.0 if copies else 0.02 if name == "toy/sac/Catch" else 0.005
    assert any("target" in key for key in before)
    for key in (key for key in before if "target" in key):
        assert torch.equal(now[key], before[key])
        new = online[key.replace("target_", "").replace("target/", "").replace("/", ".")]
        torch.testing.assert_close(after[key], before[key] + share * (new - before[key]))


def test_actions_are_within_bounds_and_carry_no_gradient(name: str) -> None:
    learner, batch, info = learner_of(name)
    for role in ("act", "eval"):
        action = learner.act(batch.obs, role)
        check_actions(action, info, BATCH)
        assert isinstance(info.actions, Discrete) or float(action.abs().max()) <= 1


@pytest.mark.parametrize("name", CONTINUOUS)
def test_evaluation_is_deterministic_unless_it_samples_candidates(name: str) -> None:
    learner, batch, _ = learner_of(name)
    same = torch.equal(learner.act(batch.obs, "eval"), learner.act(batch.obs, "eval"))
    assert same == (not isinstance(learner, BCQ))


def test_a_row_of_weight_zero_has_no_effect(name: str) -> None:
    (one, batch, info), (other, _, _) = learner_of(name), learner_of(name)
    spoiled = Transition(*(column.clone() for column in batch))
    spoiled.reward[5], spoiled.discount[5] = 100.0, 0.0
    if "fqf" not in name:  # the loss of its fractions counts every observation
        for obs in (spoiled.obs, spoiled.next_obs):
            obs[5] = 255 - obs[5] if obs.dtype == torch.uint8 else obs[5] + 1
        discrete = isinstance(info.actions, Discrete)
        spoiled.action[5] = (spoiled.action[5] + 1) % info.actions.n if discrete else -0.5 * spoiled.action[5]
    for learner, data in ((one, batch), (other, spoiled)):
        torch.manual_seed(2)
        for _ in range(2):
            cycled(learner, data)
    ours, theirs = leaves(one.state_dict()), leaves(other.state_dict())
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == []


def test_a_batch_of_final_rows_leaves_every_number_finite_and_the_temperature(name: str) -> None:
    learner, batch, _ = learner_of(name)
    before = leaves(learner.state_dict())
    empty = batch._replace(weight=torch.zeros(BATCH))
    report = [learner.update(empty, phase) for phase in range(learner.cycle_length)][-1]
    after = leaves(learner.state_dict())
    assert all(bool(value.isfinite().all()) for value in (*after.values(), *report.metrics.values()))
    assert all(torch.equal(before[key], after[key]) for key in before if key.endswith("temperature/log"))


def test_update_returns_finite_metrics_and_one_priority_per_row(name: str) -> None:
    learner, batch, _ = learner_of(name)
    report = learner.update(batch, 0)
    assert report.priority.shape == (BATCH,) and bool((report.priority >= 0).all())
    assert all(x.shape == () and not x.requires_grad and bool(x.isfinite()) for x in report.metrics.values())


def test_learner_restored_from_its_state_continues_exactly(name: str) -> None:
    one, batch, _ = learner_of(name)
    cycled(one, batch)
    one.update(batch, 0)
    other = learner_of(name, seed=7)[0]
    goes_on(one, other, lambda learner, time: learner.update(batch, (1 + time) % learner.cycle_length))


def test_equal_seeds_draw_equal_networks_and_others_do_not(name: str) -> None:
    drawn_from_their_seed(lambda seed: learner_of(name, seed)[0])


COMPILED = (
    *slow_but(ONLINE, 4, mark=pytest.mark.soak),
    *slow_but(["td3bc", "il gaussian", "crr binary", "discrete il", "discrete crr with cql"], 0, 3),
    *slow_but(["il", "bcq", "cql", "crr", "iql", "discrete bcq", "discrete cql"], mark=pytest.mark.soak),
)


@pytest.mark.parametrize("name", COMPILED)
def test_every_loss_compiles_without_graph_breaks(name: str) -> None:
    learner, batch, _ = learner_of(name)
    # the partitioner of aot_eager may draw a layer's or a policy's numbers in another order, and they would not compare
    draws = "rainbow" in name or not isinstance(learner, QLearner) or name in DISCRETE
    for net, loss in taught(learner):
        compiles_whole(loss, net, batch, "eager" if draws else "aot_eager")
