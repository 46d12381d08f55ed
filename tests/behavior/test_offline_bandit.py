"""Offline learners on a bandit with known optimum: one step, an observation of ±1, a one-dimensional action."""

import numpy as np
import pytest
import torch
from torch import Tensor

from rlbench.assembly.continuous import continuous_offline_parts
from rlbench.config.offline import (
    BCConfig,
    BCQConfig,
    CQLConfig,
    CRRConfig,
    IQLConfig,
    Method,
    OfflineConfig,
    TD3BCConfig,
)
from rlbench.envs.base import Box, EnvInfo
from rlbench.ops.types import Transition
from tests.slow import slow_but

ROWS, BATCH, MODE, BETTER = 2000, 128, 0.6, 0.3
BOX = Box(low=-np.ones(1, np.float32), high=np.ones(1, np.float32))
INFO = EnvInfo(num_envs=1, obs_shape=(1,), obs_dtype=np.dtype("float32"), actions=BOX, versions=())


def two_modes(better: float = BETTER) -> Transition:
    """Three in ten actions are near 0.6 times the observation and pay 1; the others near −0.6 times it and pay 0."""
    draw = torch.Generator().manual_seed(3)
    obs = torch.randint(0, 2, (ROWS, 1), generator=draw) * 2.0 - 1
    good = torch.rand(ROWS, generator=draw) < better
    side = good[:, None] * 2.0 - 1
    return data(obs, MODE * side * obs + 0.05 * torch.randn(ROWS, 1, generator=draw), good.float())


def uphill() -> Transition:
    """Actions lie near 0.2, and pay what they are: the best of all, 1, is far from any that was taken."""
    draw = torch.Generator().manual_seed(3)
    obs = torch.randint(0, 2, (ROWS, 1), generator=draw) * 2.0 - 1
    action = 0.2 + 0.05 * torch.randn(ROWS, 1, generator=draw)
    return data(obs, action, action[:, 0])


def data(obs: Tensor, action: Tensor, reward: Tensor) -> Transition:
    return Transition(obs, action, reward, torch.zeros(ROWS), obs, torch.ones(ROWS), torch.arange(ROWS))


def train(method: Method, data: Transition, updates: int) -> Tensor:
    """The preferred actions at −1 and at 1, ``[2]``."""
    torch.manual_seed(0)
    algo = OfflineConfig(method=method, widths=(32, 32), actor_lr=3e-3, critic_lr=3e-3, tau=0.05)
    learner = continuous_offline_parts("bandit", algo, INFO, torch.device("cpu")).learner
    draw = torch.Generator().manual_seed(1)
    for number in range(updates):
        rows = torch.randint(0, ROWS, (BATCH,), generator=draw)
        learner.update(Transition(*(column[rows] for column in data)), number % learner.cycle_length)
        for periodic in learner.periodic_actions:
            if (number + 1) % periodic.period == 0:
                periodic.action()
    return learner.act(torch.tensor([[-1.0], [1.0]]), "eval")[:, 0]


@pytest.mark.parametrize("policy", ["deterministic", "gaussian"])
def test_behavior_cloning_learns_the_mean_of_the_data(policy: str) -> None:
    method = BCConfig(policy="gaussian" if policy == "gaussian" else "deterministic")
    mean = MODE * (2 * BETTER - 1)
    assert train(method, two_modes(), 300).tolist() == pytest.approx([-mean, mean], abs=0.12)


@pytest.mark.parametrize(
    "method",
    slow_but(
        [
            CRRConfig(beta=0.2),
            CRRConfig(mode="binary"),
            TD3BCConfig(),
            IQLConfig(),
            CQLConfig(n_action_samples=4, alpha=0.1, alpha_lr=None, lagrange_threshold=None),
        ],
        2,
    ),
    ids=["crr exp", "crr binary", "td3bc", "iql", "cql"],
)
def test_offline_rl_learns_the_better_minority_of_the_data(method: Method) -> None:
    low, high = train(method, two_modes(), 500).tolist()
    assert low < -0.25
    assert high > 0.25


@pytest.mark.slow
def test_bcq_chooses_the_better_proposed_action() -> None:
    """Of halves, by a model that pays little for its code: at half a nat it would say no more than the mean."""
    method = BCQConfig(vae_widths=(32, 32), vae_kl_weight=0.02)
    low, high = train(method, two_modes(0.5), 500).tolist()
    assert -0.8 < low < -0.25
    assert 0.25 < high < 0.8


@pytest.mark.slow
def test_bcq_stays_near_the_data_where_td3_extrapolates() -> None:
    near = train(BCQConfig(vae_widths=(32, 32)), uphill(), 400)
    far = train(TD3BCConfig(alpha=1e6), uphill(), 400)
    assert bool((near > 0.15).all())
    assert bool((near < 0.2 + 4 * 0.05 + 0.05).all())
    assert bool((far > 0.8).all())
