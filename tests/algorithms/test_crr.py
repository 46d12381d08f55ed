"""CRR against its equations 1 to 4, by an independent implementation in float64."""

import math

import numpy as np
import pytest
import torch

from rlbench.algorithms.crr import CRR
from rlbench.algorithms.steps import optimize
from rlbench.config.offline import CRRConfig
from rlbench.nets.actors import BoundedGaussianActor
from rlbench.nets.critics import Critics
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

EXP = CRRConfig(beta=0.5, max_weight=1.5)


def learner_of(method: CRRConfig = EXP, *, critics: int = 2) -> CRR:
    torch.manual_seed(0)
    actor = BoundedGaussianActor(
        obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, log_std_min=-5, log_std_max=2
    ).double()
    ensemble = Critics(members=critics, obs=OBS, actions=ACTIONS, widths=WIDTHS).double()
    spread(actor, ensemble)
    learner = CRR(
        actor, ensemble, actor_optimizer=adam(actor), critic_optimizer=adam(ensemble), tau=0.25, method=method
    )
    spread(learner.target_actor, learner.target_critics)
    return learner


def mean_of(actor: BoundedGaussianActor, obs: Array) -> Array:
    return np.tanh(through(obs, actor))


@pytest.mark.parametrize("critics", [1, 2])
def test_crr_critics_regress_to_the_minimum_target_of_a_sampled_action(critics: int) -> None:
    learner, b = learner_of(critics=critics), batch()
    torch.manual_seed(9)
    loss, _, error, value = learner.critic_loss(b)
    torch.manual_seed(9)
    noise = numbers(torch.randn(1, BATCH, ACTIONS, dtype=torch.float64))[0]
    std, targets = np.exp(numbers(learner.target_actor.log_std)), []
    for i in range(BATCH):
        after = numbers(b.next_obs[i])
        action = np.clip(mean_of(learner.target_actor, after) + std * noise[i], -1, 1)
        least = min(q(learner.target_critics, k, after, action) for k in range(critics))
        targets.append(float(b.reward[i]) + float(b.discount[i]) * least)
    expected, errors = regressed(learner.critics, b, targets)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert numbers(error) == pytest.approx(errors, rel=1e-12)
    values_by_hand = [
        [q(learner.critics, k, numbers(b.obs[i]), numbers(b.action[i])) for i in range(5)] for k in range(critics)
    ]
    assert numbers(value) == pytest.approx(np.array(values_by_hand), rel=1e-12)


@pytest.mark.parametrize("usual", ["mean", "max"])
@pytest.mark.parametrize("mode", ["exp", "binary"])
def test_crr_actor_is_weighted_by_the_advantage_over_its_samples(mode: str, usual: str) -> None:
    learner, b = (learner_of(EXP.model_copy(update={"mode": mode, "advantage_type": usual})), batch())
    value = learner.critic_loss(b)[3].amin(0)
    torch.manual_seed(9)
    loss, log_prob = learner.policy_loss(b, value)
    torch.manual_seed(9)
    noise = numbers(torch.randn(4, BATCH, ACTIONS, dtype=torch.float64))
    std, expected, weights = np.exp(numbers(learner.actor.log_std)), 0.0, []
    for i in range(BATCH):
        obs, data = numbers(b.obs[i]), numbers(b.action[i])
        mean = mean_of(learner.actor, obs)
        others = []
        for m in range(4):
            action = np.clip(mean + std * noise[m, i], -1, 1)
            others.append(min(q(learner.critics, k, obs, action) for k in range(2)))
        own = min(q(learner.critics, k, obs, data) for k in range(2))
        advantage = own - (sum(others) / 4 if usual == "mean" else max(others))
        weights.append(min(math.exp(advantage / 0.5), 1.5) if mode == "exp" else float(advantage > 0))
        expected -= float(b.weight[i]) * weights[-1] * log_normal(data, mean, std) / BATCH
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert log_prob.item() == pytest.approx(np.average(weights, weights=numbers(b.weight)), rel=1e-12)
    assert len(set(weights)) > 1


def test_advantage_weights_have_no_gradient() -> None:
    learner, b = learner_of(), batch()
    value = learner.critic_loss(b)[3].amin(0)
    torch.manual_seed(9)
    loss, _ = learner.policy_loss(b, value)
    gradients = torch.autograd.grad(loss, list(learner.critics.parameters()), allow_unused=True, retain_graph=True)
    assert all(gradient is None for gradient in gradients)
    torch.manual_seed(9)
    policy = learner.actor(b.obs)
    weight = learner.weight(b.obs, policy, value).detach().clone()
    fixed = -(b.weight * weight * policy.log_prob(b.action)).mean()
    pairs = (torch.autograd.grad(x, list(learner.actor.parameters())) for x in (loss, fixed))
    for ours, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_critic_loss_has_no_gradient_in_the_actor() -> None:
    learner, b = learner_of(), batch()
    parameters = [*learner.actor.parameters()]
    assert all(s is None for s in torch.autograd.grad(learner.critic_loss(b)[0], parameters, allow_unused=True))


def test_crr_update_is_one_step_of_each_with_the_minimum_value() -> None:
    one, other, b = learner_of(), learner_of(), batch()
    torch.manual_seed(9)
    report = one.update(b)
    torch.manual_seed(9)
    critic_loss, _, _, value = other.critic_loss(b)
    actor_loss, log_prob = other.policy_loss(b, value.amin(0))
    optimize(critic_loss, other.critic_optimizer)
    optimize(actor_loss, other.actor_optimizer)
    assert torch.equal(report.metrics["imitated"], log_prob)
    for name in ("actor", "critics"):
        for ours, theirs in zip(getattr(one, name).parameters(), getattr(other, name).parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
