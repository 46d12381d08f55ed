"""TD3+BC against its equation 5, by an independent implementation in float64."""

import numpy as np
import pytest
import torch

from rlbench.algorithms.td3 import TD3, TD3BC
from rlbench.config.offline import TD3BCConfig
from tests.algorithms import by_hand, small_nets
from tests.algorithms.recorded import Array, batch, gradients, numbers, rows


def learner_of(alpha: float = 2.5) -> TD3BC:
    torch.manual_seed(0)
    actor, critics = small_nets.deterministic_actor(), small_nets.critics()
    small_nets.spread(actor, critics)
    optimizers = {"actor_optimizer": small_nets.adam(actor), "critic_optimizer": small_nets.adam(critics)}
    learner = TD3BC(actor, critics, **optimizers, tau=0.25, delay=2, config=TD3BCConfig(alpha=alpha))
    small_nets.spread(learner.target_actor, learner.target_critics)
    value = critics(batch().obs, learner.act(batch().obs, "eval"))[0].detach()
    critics.layers[-1].bias.data[0] -= value.median()  # values of both signs, whose mean is not 0
    return learner


def parts(learner: TD3BC) -> tuple[Array, Array]:
    """The first critic's values of the actor's actions, and their squared errors."""
    pairs = [(row, np.tanh(by_hand.through(row.obs, learner.actor))) for row in rows(batch())]
    values = [by_hand.q(learner.critics, 0, row.obs, action) for row, action in pairs]
    return np.array(values), np.array([np.square(action - row.action).mean() for row, action in pairs])


@pytest.mark.parametrize("alpha", [1.0, 2.5])
def test_critic_term_is_scaled_by_alpha_over_the_mean_absolute_value(alpha: float) -> None:
    learner, b = learner_of(alpha), batch()
    values, errors = parts(learner)
    assert min(values) < 0 < max(values)
    weight = numbers(b.weight)
    scale = alpha / np.average(np.abs(values), weights=weight)
    assert learner.policy_loss(b).item() == pytest.approx((weight * (errors - scale * values)).mean(), rel=1e-12)


def test_unweighted_loss_equals_the_papers_code() -> None:
    learner, b = learner_of(), batch()
    b = b._replace(weight=torch.ones_like(b.weight))
    action = learner.actor(b.obs).mode()
    value = learner.critics(b.obs, action)[0]
    expected = -2.5 / value.abs().mean().detach() * value.mean() + torch.nn.functional.mse_loss(action, b.action)
    loss = learner.policy_loss(b)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    ours, theirs = (gradients(x, learner.actor) for x in (loss, expected))  # nothing is learned through λ
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_td3bc_critics_equal_td3s() -> None:
    assert TD3BC.critic_loss is TD3.critic_loss
    assert TD3BC.update is TD3.update
