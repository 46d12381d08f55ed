"""CRR against its equations 1 to 4, by an independent implementation in float64."""

import math

import numpy as np
import pytest
import torch

from rlbench.algorithms.crr import CRR
from rlbench.algorithms.steps import optimize
from rlbench.config.offline import CRRConfig
from tests.algorithms import by_hand, small_nets
from tests.algorithms.recorded import ACTIONS, BATCH, batch, gradients, noise, numbers, rows, same_parameters, seeded

EXP = CRRConfig(beta=0.5, max_weight=1.5)


def learner_of(method: CRRConfig = EXP, *, critics: int = 2) -> CRR:
    torch.manual_seed(0)
    actor, ensemble = small_nets.bounded_actor(), small_nets.critics(critics)
    small_nets.spread(actor, ensemble)
    optimizers = {"actor_optimizer": small_nets.adam(actor), "critic_optimizer": small_nets.adam(ensemble)}
    learner = CRR(actor, ensemble, **optimizers, tau=0.25, config=method)
    small_nets.spread(learner.target_actor, learner.target_critics)
    return learner


@pytest.mark.parametrize("critics", [1, 2])
def test_crr_critics_regress_to_the_minimum_target_of_a_sampled_action(critics: int) -> None:
    learner, b = learner_of(critics=critics), batch()
    loss, _, error, value = seeded(lambda: learner.critic_loss(b))
    std, targets = np.exp(numbers(learner.target_actor.log_std)), []
    for row, draw in zip(rows(b), noise(1, BATCH, ACTIONS)[0], strict=True):
        action = np.clip(np.tanh(by_hand.through(row.next_obs, learner.target_actor)) + std * draw, -1, 1)
        least = min(by_hand.q(learner.target_critics, k, row.next_obs, action) for k in range(critics))
        targets.append(row.reward + row.discount * least)
    expected, errors = by_hand.regressed(learner.critics, b, targets)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert numbers(error) == pytest.approx(errors, rel=1e-12)
    assert numbers(value) == pytest.approx(by_hand.values_of(learner.critics, b), rel=1e-12)


@pytest.mark.parametrize("usual", ["mean", "max"])
@pytest.mark.parametrize("mode", ["exp", "binary"])
def test_crr_actor_is_weighted_by_the_advantage_over_its_samples(mode: str, usual: str) -> None:
    learner, b = (learner_of(EXP.model_copy(update={"mode": mode, "advantage_type": usual})), batch())
    value = learner.critic_loss(b)[3].amin(0)
    loss, log_prob = seeded(lambda: learner.policy_loss(b, value))
    std, draws, own = (
        np.exp(numbers(learner.actor.log_std)),
        noise(4, BATCH, ACTIONS),
        by_hand.values_of(learner.critics, b),
    )
    expected, weights = 0.0, []
    for i, row in enumerate(rows(b)):
        mean = np.tanh(by_hand.through(row.obs, learner.actor))
        actions = np.clip(mean + std * draws[:, i], -1, 1)
        others = [min(by_hand.q(learner.critics, k, row.obs, action) for k in range(2)) for action in actions]
        advantage = min(own[:, i]) - (sum(others) / 4 if usual == "mean" else max(others))
        weights.append(min(math.exp(advantage / 0.5), 1.5) if mode == "exp" else float(advantage > 0))
        expected -= row.weight * weights[-1] * by_hand.log_normal(row.action, mean, std) / BATCH
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert log_prob.item() == pytest.approx(np.average(weights, weights=numbers(b.weight)), rel=1e-12)
    assert len(set(weights)) > 1


def test_advantage_weights_have_no_gradient() -> None:
    learner, b = learner_of(), batch()
    value = learner.critic_loss(b)[3].amin(0)
    loss, _ = seeded(lambda: learner.policy_loss(b, value))
    assert all(gradient is None for gradient in gradients(loss, learner.critics))
    policy = seeded(lambda: learner.actor(b.obs))
    weight = learner.weight(b.obs, policy, value).detach().clone()
    fixed = -(b.weight * weight * policy.log_prob(b.action)).mean()
    torch.testing.assert_close(gradients(loss, learner.actor), gradients(fixed, learner.actor))


def test_critic_loss_has_no_gradient_in_the_actor() -> None:
    learner, b = learner_of(), batch()
    assert all(gradient is None for gradient in gradients(learner.critic_loss(b)[0], learner.actor))


def test_crr_update_is_one_step_of_each_with_the_minimum_value() -> None:
    one, other, b = learner_of(), learner_of(), batch()
    report = seeded(lambda: one.update(b))
    critic_loss, _, _, value = seeded(lambda: other.critic_loss(b))
    actor_loss, log_prob = other.policy_loss(b, value.amin(0))
    optimize(critic_loss, other.critic_optimizer)
    optimize(actor_loss, other.actor_optimizer)
    assert torch.equal(report.metrics["imitated"], log_prob)
    same_parameters(one.actor, other.actor, rtol=1e-12, atol=1e-14)
    same_parameters(one.critics, other.critics, rtol=1e-12, atol=1e-14)
