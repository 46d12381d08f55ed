"""TD3+BC against its equation 5, by an independent implementation in float64."""

import numpy as np
import pytest
import torch

from rlbench.algorithms.td3 import TD3, TD3BC
from rlbench.config.offline import TD3BCConfig
from rlbench.nets.actors import DeterministicActor
from rlbench.nets.critics import Critics
from tests.algorithms.recorded import ACTIONS, BATCH, OBS, WIDTHS, adam, batch, numbers, q, spread, through


def learner_of(alpha: float = 2.5) -> TD3BC:
    torch.manual_seed(0)
    actor = DeterministicActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS).double()
    critics = Critics(members=2, obs=OBS, actions=ACTIONS, widths=WIDTHS).double()
    spread(actor, critics)
    learner = TD3BC(
        actor,
        critics,
        actor_optimizer=adam(actor),
        critic_optimizer=adam(critics),
        tau=0.25,
        delay=2,
        policy=TD3BCConfig(alpha=alpha),
    )
    spread(learner.target_actor, learner.target_critics)
    value = critics(batch().obs, learner.act(batch().obs, "eval"))[0].detach()
    critics.layers[-1].bias.data[0] -= value.median()  # values of both signs, whose mean is not 0
    return learner


def parts(learner: TD3BC) -> tuple[list[float], list[float]]:
    """The first critic's values of the actor's actions, and their squared errors."""
    b, values, errors = batch(), [], []
    for i in range(BATCH):
        action = np.tanh(through(numbers(b.obs[i]), learner.actor))
        values.append(q(learner.critics, 0, numbers(b.obs[i]), action))
        errors.append(float(np.square(action - numbers(b.action[i])).mean()))
    return values, errors


@pytest.mark.parametrize("alpha", [1.0, 2.5])
def test_critic_term_is_scaled_by_alpha_over_the_mean_absolute_value(alpha: float) -> None:
    learner, b = learner_of(alpha), batch()
    values, errors = parts(learner)
    assert min(values) < 0 < max(values)
    weight = numbers(b.weight)
    scale = alpha / np.average(np.abs(values), weights=weight)
    expected = sum(weight[i] * (errors[i] - scale * values[i]) for i in range(BATCH)) / BATCH
    assert learner.policy_loss(b).item() == pytest.approx(expected, rel=1e-12)


def test_unweighted_loss_equals_the_papers_code() -> None:
    learner, b = learner_of(), batch()
    b = b._replace(weight=torch.ones_like(b.weight))
    action = learner.actor(b.obs).mode()
    value = learner.critics(b.obs, action)[0]
    expected = -2.5 / value.abs().mean().detach() * value.mean() + torch.nn.functional.mse_loss(action, b.action)
    loss = learner.policy_loss(b)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    gradients = (torch.autograd.grad(x, list(learner.actor.parameters())) for x in (loss, expected))
    for ours, theirs in zip(*gradients, strict=True):  # nothing is learned through λ
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_td3bc_critics_equal_td3s() -> None:
    assert TD3BC.critic_loss is TD3.critic_loss
    assert TD3BC.update is TD3.update
