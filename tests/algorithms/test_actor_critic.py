"""DDPG, TD3, SAC and REDQ against their papers' equations, by an independent implementation in float64."""

import math
from typing import TypeAlias

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from rlbench.algorithms.sac import SAC, Temperature
from rlbench.algorithms.steps import optimize
from rlbench.algorithms.td3 import TD3
from rlbench.config.online import TD3PolicyConfig
from rlbench.nets.actors import DeterministicActor, SquashedGaussianActor
from rlbench.nets.critics import Critics
from tests.algorithms.contract import due
from tests.algorithms.recorded import ACTIONS, BATCH, OBS, WIDTHS, Array, adam, batch, numbers, q, spread, through

USUAL = TD3PolicyConfig(smoothing=0.2, clip=0.5)


Units: TypeAlias = tuple[Tensor, Tensor]

UNITS = (torch.tensor([0.4, 3.0], dtype=torch.float64), torch.tensor([0.0, 0.5], dtype=torch.float64))
"""Actions between ±0.4 and from −2.5 to 3.5: scale and center."""


def in_env_units(action: Array, units: Units | None) -> Array:
    return action if units is None else numbers(units[0]) * action + numbers(units[1])


def td3(*, critics: int = 2, policy: TD3PolicyConfig = USUAL, delay: int = 2, units: Units | None = None) -> TD3:
    torch.manual_seed(0)
    actor = DeterministicActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS).double()
    ensemble = Critics(members=critics, obs=OBS, actions=ACTIONS, widths=WIDTHS, units=units).double()
    learner = TD3(
        actor,
        ensemble,
        actor_optimizer=adam(actor),
        critic_optimizer=adam(ensemble),
        tau=0.25,
        delay=delay,
        policy=policy,
    )
    spread(learner.target_actor)
    spread(learner.target_critics)
    return learner


def sac(
    *,
    critics: int = 2,
    subset: int | None = None,
    delay: int = 1,
    target: float | None = None,
    units: Units | None = None,
) -> SAC:
    torch.manual_seed(0)
    scale = 0.0 if units is None else math.log(0.4) + math.log(3.0)
    actor = SquashedGaussianActor(
        obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, log_std_min=-20, log_std_max=2, log_scale=scale
    ).double()
    ensemble = Critics(members=critics, obs=OBS, actions=ACTIONS, widths=WIDTHS, units=units).double()
    learner = SAC(
        actor,
        ensemble,
        actor_optimizer=adam(actor),
        critic_optimizer=adam(ensemble),
        temperature=Temperature(0.2, device=torch.device("cpu"), target=target, lr=1e-2),
        tau=0.25,
        delay=delay,
        redq_subset=subset,
    )
    spread(learner.target_critics)
    return learner


def torso(net: DeterministicActor | SquashedGaussianActor, head: nn.Linear, obs: Array) -> Array:
    return through(obs, net.torso, head)


@pytest.mark.parametrize("policy", [TD3PolicyConfig(), USUAL, TD3PolicyConfig(smoothing=2.0, clip=0.3)])
@pytest.mark.parametrize("critics", [1, 2])
@pytest.mark.parametrize("units", [None, UNITS], ids=["normalized", "environment"])
def test_td3_critics_regress_to_the_minimum_target(critics: int, policy: TD3PolicyConfig, units: Units | None) -> None:
    learner, b = td3(critics=critics, policy=policy, units=units), batch()
    torch.manual_seed(9)
    loss, mean, error = learner.critic_loss(b)
    torch.manual_seed(9)
    noise = numbers(torch.randn(BATCH, ACTIONS, dtype=torch.float64))
    total, values, errors = 0.0, [], np.zeros(BATCH)
    for i in range(BATCH):
        after = numbers(b.next_obs[i])
        action = np.tanh(torso(learner.target_actor, learner.target_actor.action, after))
        if policy.smoothing is not None:
            action = np.clip(action + np.clip(policy.smoothing * noise[i], -policy.clip, policy.clip), -1, 1)
        least = min(q(learner.target_critics, k, after, in_env_units(action, units)) for k in range(critics))
        goal = float(b.reward[i]) + float(b.discount[i]) * least
        for k in range(critics):
            value = q(learner.critics, k, numbers(b.obs[i]), in_env_units(numbers(b.action[i]), units))
            total += float(b.weight[i]) * (value - goal) ** 2 / BATCH
            values.append(value)
            errors[i] += abs(value - goal) / critics
    assert loss.item() == pytest.approx(total, rel=1e-12)
    valid = np.repeat(numbers(b.weight) > 0, critics)  # a row of weight 0 is in no mean
    assert mean.item() == pytest.approx(np.mean(np.array(values)[valid]), rel=1e-12)
    assert numbers(error) == pytest.approx(errors, rel=1e-12)


@pytest.mark.parametrize("units", [None, UNITS], ids=["normalized", "environment"])
def test_td3_actor_ascends_the_first_critic(units: Units | None) -> None:
    learner, b = td3(units=units), batch()
    learner.critics.layers[-1].bias.data[0] += 10  # it is not the least one
    expected = 0.0
    for i in range(BATCH):
        obs = numbers(b.obs[i])
        action = np.tanh(torso(learner.actor, learner.actor.action, obs))
        expected -= float(b.weight[i]) * q(learner.critics, 0, obs, in_env_units(action, units)) / BATCH
    assert learner.policy_loss(b).item() == pytest.approx(expected, rel=1e-12)


def test_td3_actor_and_targets_update_every_second_step() -> None:
    learner, b = td3(delay=2), batch()
    still = {name: {k: v.clone() for k, v in getattr(learner, name).state_dict().items()} for name in NETWORKS}
    learner.update(b, 0)
    due(learner, 0)
    for name in NETWORKS:
        change = any(not torch.equal(v, still[name][k]) for k, v in getattr(learner, name).state_dict().items())
        assert change == (name == "critics"), name
    learner.update(b, 1)
    due(learner, 1)
    for name in NETWORKS:
        assert any(not torch.equal(v, still[name][k]) for k, v in getattr(learner, name).state_dict().items()), name


NETWORKS = ("actor", "critics", "target_actor", "target_critics")


def log_density(raw: Array, mean: Array, log_std: Array, scale: Array | float) -> float:
    return float((stats.norm.logpdf(raw, mean, np.exp(log_std)) - np.log(scale * (1 - np.tanh(raw) ** 2))).sum())


def sample_action(actor: SquashedGaussianActor, obs: Array, noise: Array, units: Units | None) -> tuple[Array, float]:
    """The action that critics see and its log-density (thu-ml/tianshou e605bdea, policy/modelfree/sac.py)."""
    mean, log_std = torso(actor, actor.mean, obs), np.clip(torso(actor, actor.log_std, obs), -20, 2)
    raw = mean + np.exp(log_std) * noise
    scale = 1.0 if units is None else numbers(units[0])
    return in_env_units(np.tanh(raw), units), log_density(raw, mean, log_std, scale)


@pytest.mark.parametrize(("critics", "subset"), [(2, None), (4, 2), (4, 3)])
@pytest.mark.parametrize("units", [None, UNITS], ids=["normalized", "environment"])
def test_sac_critics_regress_to_the_soft_minimum_target(critics: int, subset: int | None, units: Units | None) -> None:
    learner, b = sac(critics=critics, subset=subset, units=units), batch()
    torch.manual_seed(9)
    loss, _, error = learner.critic_loss(b)
    torch.manual_seed(9)
    noise = numbers(torch.randn(BATCH, ACTIONS, dtype=torch.float64))
    members = list(range(critics))
    if subset is not None:
        members = list(np.argsort(-torch.rand(critics).numpy())[:subset])
    total, errors = 0.0, np.zeros(BATCH)
    for i in range(BATCH):
        after = numbers(b.next_obs[i])
        action, log_prob = sample_action(learner.actor, after, noise[i], units)
        least = min(q(learner.target_critics, int(k), after, action) for k in members)
        goal = float(b.reward[i]) + float(b.discount[i]) * (least - 0.2 * log_prob)
        for k in range(critics):
            gap = q(learner.critics, k, numbers(b.obs[i]), in_env_units(numbers(b.action[i]), units)) - goal
            total += float(b.weight[i]) * gap**2 / BATCH
            errors[i] += abs(gap) / critics
    assert loss.item() == pytest.approx(total, rel=1e-6)  # α lies in float32
    assert numbers(error) == pytest.approx(errors, rel=1e-6)


@pytest.mark.parametrize(("critics", "subset"), [(2, None), (4, 2)])
@pytest.mark.parametrize("units", [None, UNITS], ids=["normalized", "environment"])
def test_sac_actor_ascends_the_soft_value(critics: int, subset: int | None, units: Units | None) -> None:
    learner, b = sac(critics=critics, subset=subset, units=units), batch()
    torch.manual_seed(9)
    loss, entropy = learner.policy_loss(b)
    torch.manual_seed(9)
    noise = numbers(torch.randn(BATCH, ACTIONS, dtype=torch.float64))
    reduce = min if subset is None else lambda values: sum(values) / len(values)
    expected, surprise = 0.0, 0.0
    for i in range(BATCH):
        obs, weight = numbers(b.obs[i]), float(b.weight[i])
        action, log_prob = sample_action(learner.actor, obs, noise[i], units)
        value = reduce([q(learner.critics, k, obs, action) for k in range(critics)])
        expected += weight * (0.2 * log_prob - value) / BATCH
        surprise -= weight * log_prob / float(b.weight.sum())
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert entropy.item() == pytest.approx(surprise, rel=1e-9)


def test_action_units_are_not_in_checkpoints_or_actions() -> None:
    plain, other = sac(), sac(units=UNITS)
    assert plain.critics.state_dict().keys() == other.critics.state_dict().keys()
    assert plain.actor.state_dict().keys() == other.actor.state_dict().keys()
    obs = torch.ones(1, OBS, dtype=torch.float64)
    assert torch.equal(plain.act(obs, "eval"), other.act(obs, "eval"))


def test_soft_policy_gradient_equals_finite_differences() -> None:
    learner, b = sac(), batch()

    def loss() -> Tensor:
        torch.manual_seed(9)
        return learner.policy_loss(b)[0]

    for parameter in (learner.actor.mean.weight, learner.actor.log_std.weight):
        (gradient,) = torch.autograd.grad(loss(), [parameter])
        for index in ((0, 0), (1, 2)):
            step = 1e-6
            with torch.no_grad():
                parameter[index] += step
                above = loss().item()
                parameter[index] -= 2 * step
                below = loss().item()
                parameter[index] += step
            assert gradient[index].item() == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-9)


def test_temperature_gradient_is_the_missing_entropy() -> None:
    temperature = Temperature(0.2, device=torch.device("cpu"), target=-2.0, lr=0.1)
    (gradient,) = torch.autograd.grad(temperature.loss(torch.tensor(-3.0)), [temperature.log])
    assert gradient.item() == pytest.approx(-3.0 - -2.0)
    temperature.learn(torch.tensor(-3.0))  # too little entropy: it must rise; Adam's first step is lr
    assert temperature.value().item() == pytest.approx(0.2 * math.exp(0.1), rel=1e-5)
    temperature = Temperature(0.2, device=torch.device("cpu"))
    temperature.learn(torch.tensor(-3.0))
    assert temperature.value().item() == pytest.approx(0.2)


def test_redq_actor_updates_once_per_cycle_and_targets_every_step() -> None:
    learner, b = sac(critics=4, subset=2, delay=3, target=-2.0), batch()
    for phase in range(3):
        actor = [p.clone() for p in learner.actor.parameters()]
        targets = [p.clone() for p in learner.target_critics.parameters()]
        alpha = learner.temperature.value()
        learner.update(b, phase)
        due(learner, phase)
        change = not all(torch.equal(a, p) for a, p in zip(actor, learner.actor.parameters(), strict=True))
        assert change == (phase == 2)
        assert bool(learner.temperature.value() != alpha) == (phase == 2)
        assert not any(torch.equal(t, p) for t, p in zip(targets, learner.target_critics.parameters(), strict=True))


@pytest.mark.parametrize("learner", [td3(), sac()], ids=["td3", "sac"])
def test_actor_step_leaves_critics_and_their_gradients(learner: TD3 | SAC) -> None:
    b = batch()
    learner.update(b, 0)
    before = [(p.clone(), None if p.grad is None else p.grad.clone()) for p in learner.critics.parameters()]
    assert all(gradient is not None for _, gradient in before)
    actor_loss = learner.policy_loss(b)
    loss = actor_loss if isinstance(actor_loss, Tensor) else actor_loss[0]
    optimize(loss, learner.actor_optimizer)
    for (value, gradient), parameter in zip(before, learner.critics.parameters(), strict=True):
        assert torch.equal(value, parameter)
        assert gradient is not None
        assert parameter.grad is not None
        assert torch.equal(gradient, parameter.grad)
