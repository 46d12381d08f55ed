"""Behavior cloning against an independent implementation in float64."""

import numpy as np
import pytest
import torch

from rlbench.algorithms.behavior_cloning import BehaviorCloning
from rlbench.nets.actors import BoundedGaussianActor, DeterministicActor
from tests.algorithms import by_hand, small_nets
from tests.algorithms.recorded import ACTIONS, OBS, WIDTHS, batch, numbers, rows


def learner_of(actor: BoundedGaussianActor | DeterministicActor) -> BehaviorCloning:
    small_nets.spread(actor)
    return BehaviorCloning(actor, actor_optimizer=small_nets.adam(actor))


def test_bc_loss_is_the_mean_squared_error_over_rows_and_dimensions() -> None:
    learner, b = learner_of(small_nets.deterministic_actor()), batch()
    loss, error = learner.loss(b)
    expected = [np.square(np.tanh(by_hand.through(row.obs, learner.actor)) - row.action).mean() for row in rows(b)]
    assert loss.item() == pytest.approx((numbers(b.weight) * expected).mean(), rel=1e-12)
    assert numbers(error) == pytest.approx(np.array(expected), rel=1e-12)


def test_gaussian_actor_maximizes_likelihood_and_reports_the_squared_error() -> None:
    learner, b = learner_of(small_nets.bounded_actor()), batch()
    std, loss, error = np.exp(numbers(learner.actor.log_std)), *learner.loss(b)
    means = [np.tanh(by_hand.through(row.obs, learner.actor)) for row in rows(b)]
    expected = [-by_hand.log_normal(row.action, mean, std) for row, mean in zip(rows(b), means, strict=True)]
    assert loss.item() == pytest.approx((numbers(b.weight) * expected).mean(), rel=1e-12)
    assert numbers(error) == pytest.approx(np.square(means - numbers(b.action)).mean(1), rel=1e-12)


def test_reported_error_ignores_dead_rows() -> None:
    learner, b = learner_of(small_nets.deterministic_actor()), batch()
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
