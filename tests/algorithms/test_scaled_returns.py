"""The order of scaling and bootstrapping returns, transcribed from the reference code."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from rlbench.ops.types import Rollout
from tests.algorithms.rollouts import ENVS, ROWS, Array, estimator_of, numbers, reinforce, rollout_of, through


class Running:
    """Mean and variance as a running estimate; begins at 0 and 1."""

    def __init__(self) -> None:
        self.mean, self.var, self.count = 0.0, 1.0, 0

    def update(self, x: Array) -> None:
        total, gap = self.count + len(x), float(x.mean()) - self.mean
        squares = self.var * self.count + float(x.var()) * len(x) + gap**2 * self.count * len(x) / total
        self.mean, self.var, self.count = self.mean + gap * len(x) / total, squares / total, total


@dataclass
class Flat:
    """Live rows, env after env, as the documented buffer holds them."""

    place: list[tuple[int, int]]
    reward: Array
    value: Array
    following: Array  # 0 where the episode terminated
    end: NDArray[np.bool_]  # ended, or the newest of its env


def flattened(rollout: Rollout, value: Array) -> Flat:
    place = [(t, n) for n in range(ENVS) for t in range(ROWS) if not rollout.final[t, n]]
    newest = {n: max(t for t, m in place if m == n) for n in range(ENVS)}
    return Flat(
        place,
        np.array([float(rollout.reward[p]) for p in place]),
        np.array([value[p] for p in place]),
        np.array([0.0 if rollout.terminated[t, n] else value[t + 1, n] for t, n in place]),
        np.array([bool(rollout.done[t, n]) or t == newest[n] for t, n in place]),
    )


def gae(rows: Flat, value: Array, following: Array, gamma: float, trace: float) -> Array:
    delta, advantage, behind = rows.reward + gamma * following - value, np.zeros(len(value)), 0.0
    for i in range(len(value) - 1, -1, -1):
        behind = delta[i] + gamma * trace * (0.0 if rows.end[i] else 1.0) * behind
        advantage[i] = behind
    return advantage


@pytest.mark.parametrize("normalize_returns", [True, False])
def test_returns_are_scaled_in_the_reference_codes_order(normalize_returns: bool) -> None:
    """Values times the old std, advantages, targets divided by the old std, then the statistics."""
    returns, running = estimator_of(normalize=normalize_returns), Running()
    for seed in range(5):
        rollout = rollout_of(seed=seed)
        rollout = rollout._replace(reward=rollout.reward * 10 + 3 * ~rollout.final)
        value = torch.randn(ROWS + 1, ENVS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        advantage, goal = returns(rollout, value)
        rows, unit = flattened(rollout, numbers(value)), math.sqrt(running.var + 1e-8) if normalize_returns else 1.0
        expected = gae(rows, rows.value * unit, rows.following * unit, 0.9, 0.8)
        returns_by_hand = expected + rows.value * unit
        running.update(returns_by_hand)
        np.testing.assert_allclose([float(advantage[p]) for p in rows.place], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose([float(goal[p]) for p in rows.place], returns_by_hand / unit, rtol=1e-5, atol=1e-6)
        assert not normalize_returns or seed == 0 or abs(unit - 1) > 0.1
    if normalize_returns:
        statistics = [returns.moments.mean.item(), returns.moments.var.item(), returns.moments.rows.item()]
        assert statistics == pytest.approx([running.mean, running.var, running.count], rel=1e-5)


@pytest.mark.parametrize("standardise", [True, False])
def test_reinforce_uses_the_reference_codes_normalized_returns(standardise: bool) -> None:
    """Open episodes bootstrap from the running mean, which is subtracted; the old std divides."""
    learner, running = reinforce(standardise=standardise), Running()
    for seed in range(4):
        rollout = rollout_of(seed=seed)
        rollout = rollout._replace(reward=rollout.reward * 10 + 3 * ~rollout.final)
        weights = learner.return_weights(rollout)
        mean, unit = (running.mean, math.sqrt(running.var + 1e-8)) if standardise else (0.0, 1.0)
        rows = flattened(rollout, np.full((ROWS + 1, ENVS), mean))
        returns_by_hand = gae(rows, rows.value, rows.following, 0.9, 1.0) + rows.value
        np.testing.assert_allclose(
            [float(weights[p]) for p in rows.place], (returns_by_hand - mean) / unit, rtol=1e-5, atol=1e-5
        )
        running.update(returns_by_hand)
    assert not standardise or abs(running.mean) > 3


def test_reinforce_loss_is_minus_log_probability_times_return() -> None:
    learner, rollout = reinforce(standardise=True), rollout_of()
    obs, action = rollout.obs[:-1].flatten(0, 1), rollout.action.flatten(0, 1)
    weights, weight = torch.randn(ROWS * ENVS).double(), (~rollout.final).flatten().double()
    loss, report = learner.loss(obs, action, weights, weight)
    std, expected = np.exp(numbers(learner.actor.log_std)), []
    for i in range(len(weights)):
        if weight[i]:
            log_prob = stats.norm.logpdf(numbers(action[i]), through(learner.actor, numbers(obs[i])), std).sum()
            expected.append(-float(log_prob) * float(weights[i]))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-9)
    assert report["entropy"].item() == pytest.approx(stats.norm.entropy(0, std).sum(), rel=1e-9)
