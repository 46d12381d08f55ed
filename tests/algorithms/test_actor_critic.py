"""DDPG, TD3, SAC and REDQ against their papers' equations, by an independent implementation in float64."""

import math
from typing import TypeAlias

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from rlbench.algorithms.sac import SAC, Temperature
from rlbench.algorithms.steps import optimize
from rlbench.algorithms.td3 import TD3
from rlbench.config.online import TD3PolicyConfig
from rlbench.nets.actors import SquashedGaussianActor
from rlbench.ops.types import Transition
from tests.algorithms import by_hand, small_nets
from tests.algorithms.contract import due
from tests.algorithms.recorded import ACTIONS, BATCH, OBS, Array, batch, changes, copied, noise, numbers, rows, seeded

USUAL, CPU = TD3PolicyConfig(smoothing=0.2, clip=0.5), torch.device("cpu")

Units: TypeAlias = tuple[Tensor, Tensor]

UNITS = (torch.tensor([0.4, 3.0], dtype=torch.float64), torch.tensor([0.0, 0.5], dtype=torch.float64))
"""Actions between ±0.4 and from −2.5 to 3.5: scale and center."""

in_both_units = pytest.mark.parametrize("units", [None, UNITS], ids=["normalized", "environment"])


def in_env_units(action: Array, units: Units | None) -> Array:
    return action if units is None else numbers(units[0]) * action + numbers(units[1])


def data_in(b: Transition, units: Units | None) -> Transition:
    return b._replace(action=torch.from_numpy(in_env_units(numbers(b.action), units)))


def td3(*, critics: int = 2, policy: TD3PolicyConfig = USUAL, delay: int = 2, units: Units | None = None) -> TD3:
    torch.manual_seed(0)
    actor, ensemble = small_nets.deterministic_actor(), small_nets.critics(critics, units)
    optimizers = {"actor_optimizer": small_nets.adam(actor), "critic_optimizer": small_nets.adam(ensemble)}
    learner = TD3(actor, ensemble, **optimizers, tau=0.25, delay=delay, config=policy)
    small_nets.spread(learner.target_actor, learner.target_critics)
    return learner


def sac(*, critics: int = 2, subset: int | None = None, delay: int = 1, target: float | None = None,
        units: Units | None = None) -> SAC:  # fmt: skip
    torch.manual_seed(0)
    actor = small_nets.squashed_actor(log_scale=0.0 if units is None else math.log(0.4) + math.log(3.0))
    ensemble = small_nets.critics(critics, units)
    temperature = Temperature(0.2, device=CPU, target=target, lr=1e-2)
    optimizers = {"actor_optimizer": small_nets.adam(actor), "critic_optimizer": small_nets.adam(ensemble)}
    learner = SAC(actor, ensemble, **optimizers, temperature=temperature, tau=0.25, delay=delay, redq_subset=subset)
    small_nets.spread(learner.target_critics)
    return learner


@pytest.mark.parametrize("policy", [TD3PolicyConfig(), USUAL, TD3PolicyConfig(smoothing=2.0, clip=0.3)])
@pytest.mark.parametrize("critics", [1, 2])
@in_both_units
def test_td3_critics_regress_to_the_minimum_target(critics: int, policy: TD3PolicyConfig, units: Units | None) -> None:
    learner, b = td3(critics=critics, policy=policy, units=units), batch()
    loss, mean, error = seeded(lambda: learner.critic_loss(b))
    targets = []
    for row, draw in zip(rows(b), noise(BATCH, ACTIONS), strict=True):
        action = np.tanh(by_hand.through(row.next_obs, learner.target_actor.torso, learner.target_actor.action))
        if policy.smoothing is not None:
            action = np.clip(action + np.clip(policy.smoothing * draw, -policy.clip, policy.clip), -1, 1)
        action = in_env_units(action, units)
        least = min(by_hand.q(learner.target_critics, k, row.next_obs, action) for k in range(critics))
        targets.append(row.reward + row.discount * least)
    expected, errors = by_hand.regressed(learner.critics, data_in(b, units), targets)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    values = by_hand.values_of(learner.critics, data_in(b, units))[
        :, numbers(b.weight) > 0
    ]  # a row of weight 0 is in no mean
    assert mean.item() == pytest.approx(values.mean(), rel=1e-12)
    assert numbers(error) == pytest.approx(errors, rel=1e-12)


@in_both_units
def test_td3_actor_ascends_the_first_critic(units: Units | None) -> None:
    learner, b = td3(units=units), batch()
    learner.critics.layers[-1].bias.data[0] += 10  # it is not the least one
    expected = 0.0
    for row in rows(b):
        action = np.tanh(by_hand.through(row.obs, learner.actor.torso, learner.actor.action))
        expected -= row.weight * by_hand.q(learner.critics, 0, row.obs, in_env_units(action, units)) / BATCH
    assert learner.policy_loss(b).item() == pytest.approx(expected, rel=1e-12)


def test_td3_actor_and_targets_update_every_second_step() -> None:
    learner, b = td3(delay=2), batch()
    nets = {name: getattr(learner, name) for name in ("actor", "critics", "target_actor", "target_critics")}
    before = copied(nets)
    for phase, expected in enumerate(({"critics"}, set(nets))):
        learner.update(b, phase)
        due(learner, phase)
        assert changes(nets, before) == expected


def log_density(raw: Array, mean: Array, log_std: Array, scale: Array | float) -> float:
    return float((stats.norm.logpdf(raw, mean, np.exp(log_std)) - np.log(scale * (1 - np.tanh(raw) ** 2))).sum())


def sample_action(actor: SquashedGaussianActor, obs: Array, draw: Array, units: Units | None) -> tuple[Array, float]:
    """The action that critics see and its log-density (thu-ml/tianshou e605bdea, policy/modelfree/sac.py)."""
    mean = by_hand.through(obs, actor.torso, actor.mean)
    log_std = np.clip(by_hand.through(obs, actor.torso, actor.log_std), -20, 2)
    raw = mean + np.exp(log_std) * draw
    scale = 1.0 if units is None else numbers(units[0])
    return in_env_units(np.tanh(raw), units), log_density(raw, mean, log_std, scale)


@pytest.mark.parametrize(("critics", "subset"), [(2, None), (4, 2), (4, 3)])
@in_both_units
def test_sac_critics_regress_to_the_soft_minimum_target(critics: int, subset: int | None, units: Units | None) -> None:
    learner, b = sac(critics=critics, subset=subset, units=units), batch()
    loss, _, error = seeded(lambda: learner.critic_loss(b))
    draws, order = noise(BATCH, ACTIONS), np.argsort(-torch.rand(critics).numpy())
    members = list(range(critics)) if subset is None else order[:subset]
    targets = []
    for row, draw in zip(rows(b), draws, strict=True):
        action, log_prob = sample_action(learner.actor, row.next_obs, draw, units)
        least = min(by_hand.q(learner.target_critics, int(k), row.next_obs, action) for k in members)
        targets.append(row.reward + row.discount * (least - 0.2 * log_prob))
    expected, errors = by_hand.regressed(learner.critics, data_in(b, units), targets)
    assert loss.item() == pytest.approx(expected, rel=1e-6)  # α lies in float32
    assert numbers(error) == pytest.approx(errors, rel=1e-6)


@pytest.mark.parametrize(("critics", "subset"), [(2, None), (4, 2)])
@in_both_units
def test_sac_actor_ascends_the_soft_value(critics: int, subset: int | None, units: Units | None) -> None:
    learner, b = sac(critics=critics, subset=subset, units=units), batch()
    loss, entropy = seeded(lambda: learner.policy_loss(b))
    reduce = min if subset is None else np.mean
    expected, surprise = 0.0, 0.0
    for row, draw in zip(rows(b), noise(BATCH, ACTIONS), strict=True):
        action, log_prob = sample_action(learner.actor, row.obs, draw, units)
        value = reduce([by_hand.q(learner.critics, k, row.obs, action) for k in range(critics)])
        expected += row.weight * (0.2 * log_prob - value) / BATCH
        surprise -= row.weight * log_prob / float(b.weight.sum())
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
    loss = lambda: seeded(lambda: learner.policy_loss(b)[0])
    for parameter in (learner.actor.mean.weight, learner.actor.log_std.weight):
        (gradient,) = torch.autograd.grad(loss(), [parameter])
        for index in ((0, 0), (1, 2)):
            assert gradient[index].item() == pytest.approx(
                by_hand.derivative(loss, parameter, index), rel=1e-5, abs=1e-9
            )


def test_temperature_gradient_is_the_missing_entropy() -> None:
    temperature = Temperature(0.2, device=CPU, target=-2.0, lr=0.1)
    (gradient,) = torch.autograd.grad(temperature.loss(torch.tensor(-3.0)), [temperature.log])
    assert gradient.item() == pytest.approx(-3.0 - -2.0)
    temperature.learn(torch.tensor(-3.0))  # too little entropy: it must rise; Adam's first step is lr
    assert temperature.value().item() == pytest.approx(0.2 * math.exp(0.1), rel=1e-5)
    temperature = Temperature(0.2, device=CPU)
    temperature.learn(torch.tensor(-3.0))
    assert temperature.value().item() == pytest.approx(0.2)


def test_redq_actor_updates_once_per_cycle_and_targets_every_step() -> None:
    learner, b = sac(critics=4, subset=2, delay=3, target=-2.0), batch()
    for phase in range(3):
        nets = {"actor": learner.actor, "targets": learner.target_critics}
        before, alpha = copied(nets), learner.temperature.value()
        targets = before["targets"]
        learner.update(b, phase)
        due(learner, phase)
        assert changes(nets, before) == ({"actor", "targets"} if phase == 2 else {"targets"})
        assert bool(learner.temperature.value() != alpha) == (phase == 2)
        assert not any(torch.equal(t, p) for t, p in zip(targets, learner.target_critics.parameters(), strict=True))


@pytest.mark.parametrize("learner", [td3(), sac()], ids=["td3", "sac"])
def test_actor_step_leaves_critics_and_their_gradients(learner: TD3 | SAC) -> None:
    b = batch()
    learner.update(b, 0)
    before = [(p.detach().clone(), p.grad.clone()) for p in learner.critics.parameters()]
    actor_loss = learner.policy_loss(b)
    optimize(actor_loss if isinstance(actor_loss, Tensor) else actor_loss[0], learner.actor_optimizer)
    for (value, gradient), parameter in zip(before, learner.critics.parameters(), strict=True):
        assert torch.equal(value, parameter) and torch.equal(gradient, parameter.grad)
