"""IQL against its equations 5 to 7, by an independent implementation in float64."""

import numpy as np
import pytest
import torch

from rlbench.algorithms.iql import IQL, IQLActor
from rlbench.algorithms.steps import optimize
from rlbench.config.offline import IQLConfig
from rlbench.nets.actors import StateDependentStdActor
from rlbench.nets.critics import StateValue
from tests.algorithms import by_hand, small_nets
from tests.algorithms.recorded import ACTIONS, OBS, WIDTHS, Array, batch, gradients, numbers, rows, same_parameters

USUAL = IQLConfig(max_weight=1.5)


def learner_of(method: IQLConfig = USUAL, actor: IQLActor | None = None) -> IQL:
    torch.manual_seed(0)
    actor, critics = actor or small_nets.bounded_actor(), small_nets.critics()
    value = StateValue(obs=OBS, widths=WIDTHS).double()
    small_nets.spread(actor, critics, value)
    nets = {"actor": actor, "critic": critics, "value": value}
    optimizers = {f"{name}_optimizer": small_nets.adam(net) for name, net in nets.items()}
    learner = IQL(actor, critics, value, **optimizers, tau=0.25, config=method)
    small_nets.spread(learner.target_critics)
    return learner


def advantages(learner: IQL) -> Array:
    """By the least target, not by what is being learned."""
    values = np.array([by_hand.through(row.obs, learner.value)[0] for row in rows(batch())])
    return by_hand.values_of(learner.target_critics, batch()).min(0) - values


@pytest.mark.parametrize("expectile", [0.5, 0.7, 0.9])
def test_value_network_regresses_to_an_expectile_of_the_minimum_target(expectile: float) -> None:
    learner, b = learner_of(IQLConfig(expectile=expectile)), batch()
    loss, advantage = learner.value_loss(b)
    expected = advantages(learner)
    assert (expected > 0).any() and (expected < 0).any()
    assert numbers(advantage) == pytest.approx(expected, rel=1e-12)
    each = np.where(expected > 0, expectile, 1 - expectile) * expected**2
    assert loss.item() == pytest.approx((numbers(b.weight) * each).mean(), rel=1e-12)


def test_critics_regress_to_the_value_of_the_next_state() -> None:
    learner, b = learner_of(), batch()
    targets = [row.reward + row.discount * by_hand.through(row.next_obs, learner.value)[0] for row in rows(b)]
    expected, errors = by_hand.regressed(learner.critics, b, targets)
    loss, _, error = learner.critic_loss(b)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert numbers(error) == pytest.approx(errors, rel=1e-12)


def test_actor_is_weighted_by_clipped_exponential_advantages() -> None:
    learner, b = learner_of(), batch()
    weight, std = np.minimum(np.exp(3.0 * advantages(learner)), 1.5), np.exp(numbers(learner.actor.log_std))
    assert (weight == 1.5).any() and (weight < 1.5).any()
    density = [by_hand.log_normal(row.action, np.tanh(by_hand.through(row.obs, learner.actor)), std) for row in rows(b)]
    loss, log_prob = learner.policy_loss(b, learner.value_loss(b)[1])
    assert loss.item() == pytest.approx(-(numbers(b.weight) * weight * density).mean(), rel=1e-12)
    assert log_prob.item() == pytest.approx(np.average(weight, weights=numbers(b.weight)), rel=1e-12)


@pytest.mark.parametrize("taught", ["value", "critics", "actor"])
def test_each_iql_loss_has_gradients_in_one_network(taught: str) -> None:
    learner, b = learner_of(), batch()
    loss = {
        "value": lambda: learner.value_loss(b)[0],
        "critics": lambda: learner.critic_loss(b)[0],
        "actor": lambda: learner.policy_loss(b, learner.value_loss(b)[1])[0],
    }[taught]()
    for name in ("value", "critics", "actor"):
        gradients_of_net = gradients(loss, getattr(learner, name))
        assert any(s is not None and bool((s != 0).any()) for s in gradients_of_net) == (name == taught), name


def test_joint_update_equals_separate_steps_on_old_values() -> None:
    one, other, b = learner_of(), learner_of(), batch()
    one.update(b)
    value_loss, advantage = other.value_loss(b)
    losses = (other.policy_loss(b, advantage)[0], other.critic_loss(b)[0], value_loss)
    optimizers = (other.actor_optimizer, other.critics_optimizer, other.value_optimizer)
    for loss, optimizer in zip(losses, optimizers, strict=True):
        optimize(loss, optimizer)
    for name in ("actor", "critics", "value"):
        same_parameters(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-14)


def test_deterministic_actor_minimizes_weighted_squared_errors() -> None:
    """corl-team/CORL@eeeeef2 algorithms/offline/iql.py: ``torch.sum((policy_out - actions) ** 2, dim=1)``."""
    learner, b = learner_of(actor=small_nets.deterministic_actor()), batch()
    weight = np.minimum(np.exp(3.0 * advantages(learner)), 1.5)
    errors = [((np.tanh(by_hand.through(row.obs, learner.actor)) - row.action) ** 2).sum() for row in rows(b)]
    loss, _ = learner.policy_loss(b, learner.value_loss(b)[1])
    assert loss.item() == pytest.approx((numbers(b.weight) * weight * errors).mean(), rel=1e-12)
    for role in ("train", "eval"):
        torch.testing.assert_close(learner.act(b.obs, role), learner.actor(b.obs).action)


def test_conditional_actor_maximizes_likelihood_with_a_state_dependent_std() -> None:
    bounds = {"log_std_min": -5, "log_std_max": 2}
    actor = StateDependentStdActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, **bounds).double()
    learner, b = learner_of(actor=actor), batch()
    weight, density = np.minimum(np.exp(3.0 * advantages(learner)), 1.5), []
    for row in rows(b):
        mean = np.tanh(by_hand.through(row.obs, actor.torso, actor.mean))
        std = np.logaddexp(0, by_hand.through(row.obs, actor.torso, actor.std)) * 0.3 / np.log(2)
        density.append(by_hand.log_normal(row.action, mean, std))
    loss, _ = learner.policy_loss(b, learner.value_loss(b)[1])
    assert loss.item() == pytest.approx(-(numbers(b.weight) * weight * density).mean(), rel=1e-12)
