"""Properties of every offline learner; new learners are added to the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlbench.algorithms.base import OffPolicyLearner
from rlbench.algorithms.bcq import BCQ
from rlbench.algorithms.behavior_cloning import Imitation
from rlbench.algorithms.cql import CQL
from rlbench.algorithms.crr import CRR
from rlbench.algorithms.iql import IQL
from rlbench.algorithms.td3 import TD3BC
from rlbench.assembly.components import OfflineParts
from rlbench.assembly.offline_continuous import continuous_parts
from rlbench.config import offline
from rlbench.config.offline import Offline
from rlbench.envs.base import Box, EnvInfo
from rlbench.ops.types import Transition
from tests.algorithms.contract import compiles_whole, cycled, drawn_from_their_seed, goes_on, leaves
from tests.slow import slow_but

OBS, ACTIONS, BATCH = 3, 2, 6
BOX = Box(low=-np.ones(ACTIONS, np.float32), high=np.ones(ACTIONS, np.float32))
INFO = EnvInfo(num_envs=1, obs_shape=(OBS,), obs_dtype=np.dtype("float32"), actions=BOX, versions=())
METHODS: dict[str, offline.Method] = {
    "il": offline.Imitation(),
    "il gaussian": offline.Imitation(policy="gaussian"),
    "bcq": offline.BatchConstrained(vae_widths=(10, 9), eval_action_samples=5),
    "cql": offline.Conservative(n_action_samples=3),
    "cql fixed": offline.Conservative(
        n_action_samples=2, lagrange_threshold=None, alpha_lr=None, max_grad_norm=None, soft_q_backup=False
    ),
    "crr": offline.CriticRegularized(),
    "crr binary": offline.CriticRegularized(mode="binary", advantage_type="max", critics=1, target_update_interval=100),
    "td3bc": offline.TD3BC(),
    "iql": offline.ImplicitQ(),
    "bcq unclipped": offline.BatchConstrained(
        vae_widths=(10, 9), eval_action_samples=5, latent_dim=14, latent_clip=None
    ),
    "cql cloning": offline.Conservative(
        n_action_samples=2, lagrange_threshold=None, bc_steps=10, mean_bound=9.0, final_init="uniform", actor_first=True
    ),
    "cql orthogonal": offline.Conservative(
        n_action_samples=2, lagrange_threshold=None, log_std_offset=-1.0, orthogonal_init=True, final_init="xavier"
    ),
    "iql deterministic": offline.ImplicitQ(policy="deterministic"),
    "iql conditional": offline.ImplicitQ(policy="conditional"),
}


def brought(name: str, seed: int = 0) -> OfflineParts:
    torch.manual_seed(seed)
    return continuous_parts(
        name, Offline(method=METHODS[name], widths=(8, 7), actor_lr=1e-3), INFO, torch.device("cpu")
    )


def made(name: str, seed: int = 0) -> tuple[OffPolicyLearner[Transition], Transition]:
    draw = torch.Generator().manual_seed(1)
    batch = Transition(
        obs=torch.randn(BATCH, OBS, generator=draw),
        action=torch.rand(BATCH, ACTIONS, generator=draw) * 2 - 1,
        reward=torch.randn(BATCH, generator=draw),
        discount=torch.full((BATCH,), 0.97),
        next_obs=torch.randn(BATCH, OBS, generator=draw),
        weight=torch.tensor([1.0, 1, 1, 1, 1, 0]),
        slot=torch.arange(BATCH),
    )
    return brought(name, seed).learner, batch


class Taught(NamedTuple):
    """A network, and its loss as a function of the batch alone."""

    net: nn.Module
    loss: Callable[[Transition], Tensor]


def taught(learner: OffPolicyLearner[Transition]) -> tuple[Taught, ...]:
    """All that learns; targets follow and are not among them."""
    match learner:
        case Imitation():
            return (Taught(learner.actor, lambda b: learner.loss(b)[0]),)
        case TD3BC():
            return Taught(learner.critics, lambda b: learner.critic_loss(b)[0]), Taught(
                learner.actor, learner.policy_loss
            )
        case CRR():
            actor = Taught(learner.actor, lambda b: learner.policy_loss(b, b.reward)[0])
            return Taught(learner.critics, lambda b: learner.critic_loss(b)[0]), actor
        case IQL():
            actor = Taught(learner.actor, lambda b: learner.policy_loss(b, b.reward)[0])
            value = Taught(learner.value, lambda b: learner.value_loss(b)[0])
            return Taught(learner.critics, lambda b: learner.critic_loss(b)[0]), actor, value
        case CQL():
            actor = Taught(learner.sac.actor, lambda b: learner.sac.policy_loss(b)[0])
            return Taught(learner.sac.critics, lambda b: learner.critic_loss(b)[0]), actor
        case BCQ():
            return (
                Taught(learner.net.proposer, lambda b: learner.model_loss(b)[0]),
                Taught(learner.net.critics, lambda b: learner.critic_loss(b, learner.proposals(b)[1])[0]),
                Taught(learner.net.perturbation, lambda b: learner.policy_loss(b, b.action)),
            )
        case _:
            raise TypeError(type(learner).__name__)


@pytest.fixture(params=METHODS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_cycle_of_updates_changes_every_parameter_that_learns(name: str) -> None:
    learner, batch = made(name)
    before = [[p.detach().clone() for p in net.parameters()] for net, _ in taught(learner)]
    if isinstance(learner, CRR):  # weights of 0 would be right, and teach nothing
        batch = batch._replace(reward=batch.reward + 100)
        for _ in range(50):
            learner.update(batch, 0)
    for phase in range(learner.cycle):
        learner.update(batch, phase)
    for (net, _), old in zip(taught(learner), before, strict=True):
        assert not [k for (k, v), o in zip(net.named_parameters(), old, strict=True) if torch.equal(v, o)]


def test_targets_change_within_a_cycle_and_have_no_gradient(name: str) -> None:
    learner, batch = made(name)
    cycled(learner, batch)
    before = leaves(learner.state_dict())
    targets = {key for key in before if "target_" in key}
    assert bool(targets) == (not isinstance(learner, Imitation))
    for _ in range(3):
        cycled(learner, batch)
    after = leaves(learner.state_dict())
    assert all(not torch.equal(before[key], after[key]) for key in targets)


def test_actions_are_within_bounds_and_carry_no_gradient(name: str) -> None:
    learner, batch = made(name)
    for role in ("act", "eval"):
        action = learner.act(batch.obs, role)
        assert not action.requires_grad
        assert action.dtype == torch.float32
        assert action.shape == (BATCH, ACTIONS)
        assert float(action.abs().max()) <= 1


def test_evaluation_is_deterministic_unless_it_samples_candidates(name: str) -> None:
    learner, batch = made(name)
    same = torch.equal(learner.act(batch.obs, "eval"), learner.act(batch.obs, "eval"))
    assert same == (not isinstance(learner, BCQ))


def test_a_row_of_weight_zero_has_no_effect(name: str) -> None:
    (one, batch), (other, _) = made(name), made(name)
    spoiled = batch._replace(**{key: getattr(batch, key).clone() for key in ("obs", "action", "reward", "next_obs")})
    for column in (spoiled.obs, spoiled.reward, spoiled.next_obs):
        column[5] += 100.0
    spoiled.action[5] *= -0.5
    for learner, seen in ((one, batch), (other, spoiled)):
        torch.manual_seed(2)
        for _ in range(2):
            cycled(learner, seen)
    for (net, _), (twin, _) in zip(taught(one), taught(other), strict=True):
        for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
            assert torch.equal(ours, theirs)
    ours, theirs = leaves(one.state_dict()), leaves(other.state_dict())
    for key in ours:
        if key.startswith(("multiplier", "sac/temperature")):
            assert torch.equal(ours[key], theirs[key]), key


def test_a_batch_of_dead_rows_leaves_every_number_finite(name: str) -> None:
    learner, batch = made(name)
    for _ in range(2):
        cycled(learner, batch._replace(weight=torch.zeros(BATCH)))
    assert all(bool(value.isfinite().all()) for value in leaves(learner.state_dict()).values())


def test_update_returns_finite_metrics_and_one_priority_per_row(name: str) -> None:
    learner, batch = made(name)
    report = learner.update(batch, 0)
    assert report.priority.shape == (BATCH,)
    assert bool((report.priority >= 0).all())
    figures = report.metrics.values()
    assert all(x.shape == () and not x.requires_grad and bool(x.isfinite()) for x in figures)


def test_learner_restored_from_its_state_continues_exactly(name: str) -> None:
    one, batch = made(name)
    cycled(one, batch)
    one.update(batch, 0)
    goes_on(one, made(name, seed=7)[0], lambda learner, time: learner.update(batch, (1 + time) % learner.cycle))


def test_equal_seeds_draw_equal_networks_and_others_do_not(name: str) -> None:
    drawn_from_their_seed(lambda seed: made(name, seed)[0])


@pytest.mark.parametrize("name", slow_but(["il", "il gaussian", "bcq", "cql", "crr", "crr binary", "td3bc", "iql"], 6))
def test_every_loss_compiles_without_graph_breaks(name: str) -> None:
    learner, batch = made(name)
    for net, loss in taught(learner):
        compiles_whole(loss, net, batch)
