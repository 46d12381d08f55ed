"""Behavior cloning against an independent implementation in float64."""

import numpy as np
import pytest
import torch

from rlbench.algorithms.behavior_cloning import BehaviorCloning
from rlbench.nets.actors import BoundedGaussianActor, DeterministicActor
from tests.algorithms.recorded import ACTIONS, BATCH, OBS, WIDTHS, adam, batch, log_normal, numbers, spread, through


def deterministic() -> BehaviorCloning:
    torch.manual_seed(0)
    actor = DeterministicActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS).double()
    spread(actor)
    return BehaviorCloning(actor, actor_optimizer=adam(actor))


def gaussian() -> BehaviorCloning:
    torch.manual_seed(0)
    actor = BoundedGaussianActor(
        obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, log_std_min=-5, log_std_max=2
    ).double()
    spread(actor)
    return BehaviorCloning(actor, actor_optimizer=adam(actor))


def test_bc_loss_is_the_mean_squared_error_over_rows_and_dimensions() -> None:
    learner, b = deterministic(), batch()
    loss, error = learner.loss(b)
    expected = [
        np.square(np.tanh(through(numbers(b.obs[i]), learner.actor)) - numbers(b.action[i])).mean() for i in range(5)
    ]
    assert loss.item() == pytest.approx(np.dot(numbers(b.weight), expected) / BATCH, rel=1e-12)
    assert numbers(error) == pytest.approx(np.array(expected), rel=1e-12)


def test_gaussian_actor_maximizes_likelihood_and_reports_the_squared_error() -> None:
    learner, b = gaussian(), batch()
    assert isinstance(learner.actor, BoundedGaussianActor)
    std, loss, error = np.exp(numbers(learner.actor.log_std)), *learner.loss(b)
    expected, squares = [], []
    for i in range(BATCH):
        mean = np.tanh(through(numbers(b.obs[i]), learner.actor))
        expected.append(-log_normal(numbers(b.action[i]), mean, std))
        squares.append(np.square(mean - numbers(b.action[i])).mean())
    assert loss.item() == pytest.approx(np.dot(numbers(b.weight), expected) / BATCH, rel=1e-12)
    assert numbers(error) == pytest.approx(np.array(squares), rel=1e-12)


def test_reported_error_ignores_dead_rows() -> None:
    learner, b = deterministic(), batch()
    _, error = learner.loss(b)
    expected = float(np.average(numbers(error), weights=numbers(b.weight)))
    assert learner.update(b).metrics["error"].item() == pytest.approx(expected, rel=1e-12)


def test_gaussian_actors_std_and_mean_stay_within_their_bounds() -> None:
    torch.manual_seed(0)
    actor = BoundedGaussianActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, log_std_min=-1.0, log_std_max=0.5)
    with torch.no_grad():
        actor.log_std.copy_(torch.tensor([-3.0, 2.0]))
        actor.mean.weight.mul_(1e3)
    policy = actor(torch.randn(4, OBS))
    assert policy.log_std.tolist() == [[-1.0, 0.5]] * 4
    assert float(policy.mode().detach().abs().max()) <= 1
