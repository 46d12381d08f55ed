"""IQL against its equations 5 to 7, by an independent implementation in float64."""

import numpy as np
import pytest
import torch

from rlbench.algorithms.iql import IQL, IQLActor
from rlbench.algorithms.steps import optimize
from rlbench.config.offline import IQLConfig
from rlbench.nets.actors import BoundedGaussianActor, DeterministicActor, StateDependentStdActor
from rlbench.nets.critics import Critics, StateValue
from tests.algorithms.recorded import (
    ACTIONS,
    BATCH,
    OBS,
    WIDTHS,
    Array,
    adam,
    batch,
    log_normal,
    numbers,
    q,
    regressed,
    spread,
    through,
)

USUAL = IQLConfig(max_weight=1.5)


def learner_of(method: IQLConfig = USUAL, actor: IQLActor | None = None) -> IQL:
    torch.manual_seed(0)
    if actor is None:
        actor = BoundedGaussianActor(
            obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, log_std_min=-5, log_std_max=2
        ).double()
    critics = Critics(members=2, obs=OBS, actions=ACTIONS, widths=WIDTHS).double()
    value = StateValue(obs=OBS, widths=WIDTHS).double()
    spread(actor, critics, value)
    learner = IQL(
        actor,
        critics,
        value,
        actor_optimizer=adam(actor),
        critic_optimizer=adam(critics),
        value_optimizer=adam(value),
        tau=0.25,
        method=method,
    )
    spread(learner.target_critics)
    return learner


def advantages(learner: IQL) -> Array:
    """By the least target, not by what is being learned."""
    b, rows = batch(), []
    for i in range(BATCH):
        obs, action = numbers(b.obs[i]), numbers(b.action[i])
        least = min(q(learner.target_critics, k, obs, action) for k in range(2))
        rows.append(least - float(through(obs, learner.value)[0]))
    return np.array(rows)


@pytest.mark.parametrize("expectile", [0.5, 0.7, 0.9])
def test_value_network_regresses_to_an_expectile_of_the_minimum_target(expectile: float) -> None:
    learner, b = learner_of(IQLConfig(expectile=expectile)), batch()
    loss, advantage = learner.value_loss(b)
    expected = advantages(learner)
    assert (expected > 0).any() and (expected < 0).any()
    assert numbers(advantage) == pytest.approx(expected, rel=1e-12)
    each = [(expectile if a > 0 else 1 - expectile) * a**2 for a in expected]
    assert loss.item() == pytest.approx(np.dot(numbers(b.weight), each) / BATCH, rel=1e-12)


def test_critics_regress_to_the_value_of_the_next_state() -> None:
    learner, b = learner_of(), batch()
    targets = [
        float(b.reward[i]) + float(b.discount[i]) * float(through(numbers(b.next_obs[i]), learner.value)[0])
        for i in range(BATCH)
    ]
    expected, errors = regressed(learner.critics, b, targets)
    loss, _, error = learner.critic_loss(b)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert numbers(error) == pytest.approx(errors, rel=1e-12)


def test_actor_is_weighted_by_clipped_exponential_advantages() -> None:
    learner, b = learner_of(), batch()
    advantage = advantages(learner)
    weight = np.minimum(np.exp(3.0 * advantage), 1.5)
    assert (weight == 1.5).any() and (weight < 1.5).any()
    std = np.exp(numbers(learner.actor.log_std))
    expected = 0.0
    for i in range(BATCH):
        mean = np.tanh(through(numbers(b.obs[i]), learner.actor))
        expected -= float(b.weight[i]) * weight[i] * log_normal(numbers(b.action[i]), mean, std) / BATCH
    loss, log_prob = learner.policy_loss(b, learner.value_loss(b)[1])
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert log_prob.item() == pytest.approx(np.average(weight, weights=numbers(b.weight)), rel=1e-12)


@pytest.mark.parametrize("taught", ["value", "critics", "actor"])
def test_each_iql_loss_has_gradients_in_one_network(taught: str) -> None:
    learner, b = learner_of(), batch()
    loss = {
        "value": lambda: learner.value_loss(b)[0],
        "critics": lambda: learner.critic_loss(b)[0],
        "actor": lambda: learner.policy_loss(b, learner.value_loss(b)[1])[0],
    }[taught]()
    nets = {"value": learner.value, "critics": learner.critics, "actor": learner.actor}
    for name, net in nets.items():
        gradients = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True, retain_graph=True)
        assert any(s is not None and bool((s != 0).any()) for s in gradients) == (name == taught), name


def test_joint_update_equals_separate_steps_on_old_values() -> None:
    one, other, b = learner_of(), learner_of(), batch()
    one.update(b)
    value_loss, advantage = other.value_loss(b)
    losses = (other.policy_loss(b, advantage)[0], other.critic_loss(b)[0], value_loss)
    for loss, optimizer in zip(
        losses, (other.actor_optimizer, other.critics_optimizer, other.value_optimizer), strict=True
    ):
        optimize(loss, optimizer)
    for name in ("actor", "critics", "value"):
        for ours, theirs in zip(getattr(one, name).parameters(), getattr(other, name).parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_deterministic_actor_minimizes_weighted_squared_errors() -> None:
    """corl-team/CORL@eeeeef2 algorithms/offline/iql.py: ``torch.sum((policy_out - actions) ** 2, dim=1)``."""
    learner = learner_of(actor=DeterministicActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS).double())
    b = batch()
    weight = np.minimum(np.exp(3.0 * advantages(learner)), 1.5)
    expected = 0.0
    for i in range(BATCH):
        action = np.tanh(through(numbers(b.obs[i]), learner.actor))
        expected += float(b.weight[i]) * weight[i] * float(((action - numbers(b.action[i])) ** 2).sum()) / BATCH
    loss, _ = learner.policy_loss(b, learner.value_loss(b)[1])
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    for role in ("train", "eval"):
        torch.testing.assert_close(learner.act(b.obs, role), learner.actor(b.obs).action)


def test_conditional_actor_maximizes_likelihood_with_a_state_dependent_std() -> None:
    actor = StateDependentStdActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, low=-5, high=2).double()
    learner, b = learner_of(actor=actor), batch()
    weight = np.minimum(np.exp(3.0 * advantages(learner)), 1.5)
    expected = 0.0
    for i in range(BATCH):
        mean = np.tanh(through(numbers(b.obs[i]), actor.torso, actor.mean))
        std = np.logaddexp(0, through(numbers(b.obs[i]), actor.torso, actor.std)) * 0.3 / np.log(2)
        expected -= float(b.weight[i]) * weight[i] * log_normal(numbers(b.action[i]), mean, std) / BATCH
    loss, _ = learner.policy_loss(b, learner.value_loss(b)[1])
    assert loss.item() == pytest.approx(expected, rel=1e-12)
