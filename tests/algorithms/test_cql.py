"""CQL against its paper, by independent loops over all sampled actions in float64."""

import math

import numpy as np
import pytest
import torch
from scipy import special

from rlbench.algorithms.cql import CQL, LagrangeMultiplier, SACWithCloning, atanh
from rlbench.algorithms.sac import SAC, Temperature
from rlbench.algorithms.steps import optimize
from rlbench.config.offline import CQLConfig
from rlbench.nets.actors import SquashedGaussianActor
from rlbench.ops.types import Transition
from tests.algorithms import by_hand, small_nets
from tests.algorithms.recorded import (
    ACTIONS,
    BATCH,
    Array,
    batch,
    gradients,
    noise,
    numbers,
    rows,
    same_parameters,
    seeded,
)

CPU = torch.device("cpu")
USUAL = CQLConfig(conservative_weight=2.0, temperature=1.5)


def multiplier_of(threshold: float | None = 2.0, *, lr: float = 0.1, most: float = 1e6) -> LagrangeMultiplier:
    return LagrangeMultiplier(device=CPU, lagrange_threshold=threshold, lr=lr, max_multiplier=most)


def learner_of(method: CQLConfig = USUAL, *, threshold: float | None = 1.0) -> CQL:
    torch.manual_seed(0)
    actor, critics = small_nets.squashed_actor(), small_nets.critics()
    small_nets.spread(actor, critics)
    optimizers = {"actor_optimizer": small_nets.adam(actor), "critic_optimizer": small_nets.adam(critics)}
    temperature = Temperature(0.2, device=CPU, target=-2.0, lr=1e-2)
    sac = SAC(actor, critics, **optimizers, temperature=temperature, tau=0.25, delay=1, redq_subset=None)
    small_nets.spread(sac.target_critics)
    return CQL(sac, multiplier=multiplier_of(threshold, lr=1e-2), config=method)


def gaussian(actor: SquashedGaussianActor, obs: Array) -> tuple[Array, Array]:
    """Mean and std before the tanh."""
    std = np.exp(np.clip(by_hand.through(obs, actor.torso, actor.log_std), -20, 2))
    return by_hand.through(obs, actor.torso, actor.mean), std


def sample_action(actor: SquashedGaussianActor, obs: Array, draw: Array) -> tuple[Array, float]:
    """An action of the policy at ``obs``, and its log-density by the change of variables."""
    mean, std = gaussian(actor, obs)
    raw = mean + std * draw
    return np.tanh(raw), by_hand.log_normal(raw, mean, std) - float(np.log(1 - np.tanh(raw) ** 2).sum())


def gaps(learner: CQL) -> tuple[Array, list[float]]:
    """The weighted gap of each critic and row, ``[K, B]``, and the critics' targets."""
    b, config, gap, targets = batch(), learner.config, np.zeros((2, BATCH)), []
    samples = range(config.n_action_samples)
    draws = noise(len(samples), 2 * BATCH, ACTIONS)  # in the order of ``candidate_actions``, and then uniform actions
    uniform = numbers(2 * torch.rand(len(samples), BATCH, ACTIONS, dtype=torch.float64) - 1)
    for i, row in enumerate(rows(b)):
        others = [(uniform[m, i], ACTIONS * math.log(0.5)) for m in samples]
        others += [sample_action(learner.sac.actor, row.obs, draws[m, i]) for m in samples]
        there = [sample_action(learner.sac.actor, row.next_obs, draws[m, BATCH + i]) for m in samples]
        others += there
        assert len(others) == 30
        for k in range(2):
            terms = [(by_hand.q(learner.sac.critics, k, row.obs, a) - log) / config.temperature for a, log in others]
            own = by_hand.q(learner.sac.critics, k, row.obs, row.action)
            gap[k, i] = config.conservative_weight * (config.temperature * special.logsumexp(terms) - own)
        action, log = there[0]
        future = min(by_hand.q(learner.sac.target_critics, k, row.next_obs, action) for k in range(2))
        targets.append(row.reward + row.discount * (future - (0.2 * log if config.soft_q_backup else 0.0)))
    return gap, targets


@pytest.mark.parametrize("method", [USUAL, CQLConfig(soft_q_backup=False, max_grad_norm=None)])
@pytest.mark.parametrize("log_multiplier", [0.0, 1.3])
def test_cql_critic_loss_is_td_error_plus_conservative_gap(method: CQLConfig, log_multiplier: float) -> None:
    learner, b = learner_of(method), batch()
    learner.multiplier.log.data.fill_(log_multiplier)
    gap, targets = gaps(learner)
    expected, errors = by_hand.regressed(learner.sac.critics, b, targets)
    expected += math.exp(log_multiplier) * float((numbers(b.weight) * gap).sum()) / BATCH
    loss, _, error, value = seeded(lambda: learner.critic_loss(b))
    assert loss.item() == pytest.approx(expected, rel=1e-6)  # α and the multiplier lie in float32
    assert numbers(error) == pytest.approx(errors, rel=1e-6)
    assert value.item() == pytest.approx(np.average(gap.mean(0), weights=numbers(b.weight)), rel=1e-9)


def test_critic_loss_has_no_gradient_in_actor_or_temperature() -> None:
    learner, b = learner_of(), batch()
    loss = learner.critic_loss(b)[0]
    others = [*learner.sac.actor.parameters(), learner.sac.temperature.log, learner.multiplier.log]
    assert all(s is None for s in torch.autograd.grad(loss, others, allow_unused=True))


def test_critic_gradient_equals_finite_differences() -> None:
    learner, b = learner_of(), batch()
    loss, weight = lambda: seeded(lambda: learner.critic_loss(b)[0]), learner.sac.critics.layers[1].weight
    (gradient,) = torch.autograd.grad(loss(), [weight])
    for index in ((0, 0, 1), (1, 2, 3)):
        assert gradient[index].item() == pytest.approx(by_hand.derivative(loss, weight, index), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize(("gap", "expected"), [(3.0, math.exp(0.1)), (1.0, math.exp(-0.1))])
def test_the_multiplier_rises_while_the_gap_is_above_its_threshold_and_falls_below_it(
    gap: float, expected: float
) -> None:
    multiplier = multiplier_of(2.0)
    assert multiplier.value().item() == 1
    multiplier.learn(torch.tensor(gap), torch.tensor(5.0))  # Adam's first step is lr
    assert multiplier.value().item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("share", "expected"), [(0.9, math.exp(1e-2)), (1.1, math.exp(-1e-2))])
def test_an_update_compares_the_weighted_gap_with_the_threshold(share: float, expected: float) -> None:
    """Weighted by 2, the gap is just above or just below; unweighted it would be far below both times."""
    gap = seeded(lambda: learner_of().critic_loss(batch()))[3].item()
    learner = learner_of(threshold=share * gap)
    assert gap > 0
    seeded(lambda: learner.update(batch()))
    assert learner.multiplier.value().item() == pytest.approx(expected, rel=1e-5)  # Adam's first step is its rate


def test_multiplier_is_clipped_at_its_bound_and_can_leave_it() -> None:
    multiplier, count = multiplier_of(2.0, lr=1.0, most=5.0), torch.tensor(5.0)
    for _ in range(20):
        multiplier.learn(torch.tensor(9.0), count)
        assert 0 < multiplier.value().item() <= 5
    assert multiplier.value().item() == pytest.approx(5)
    for _ in range(20):
        multiplier.learn(torch.tensor(-9.0), count)
    assert 0 <= multiplier.value().item() < 1


@pytest.mark.parametrize(("threshold", "gap", "count"), [(None, 50.0, 5.0), (2.0, 0.0, 0.0)])
def test_without_a_threshold_or_without_rows_the_multiplier_stays(
    threshold: float | None, gap: float, count: float
) -> None:
    multiplier = multiplier_of(threshold)
    multiplier.learn(torch.tensor(gap), torch.tensor(count))
    assert multiplier.value().item() == 1


def test_each_critics_gradient_is_clipped_separately() -> None:
    torch.manual_seed(0)
    critics = small_nets.critics()
    parameters = list(critics.parameters())
    value = critics(batch().obs, batch().action)
    loss = (torch.tensor([[100.0], [0.01]]) * value).sum()  # one gradient is far too long, the other short
    whole, plain = gradients(loss, critics), gradients(value.sum(), critics)
    norms = [math.sqrt(sum(float(g[k].square().sum()) for g in whole)) for k in range(2)]
    assert norms[0] > 1 > norms[1]
    optimize(loss, torch.optim.SGD(parameters, lr=0.0), max_norm=1.0, clip_per_critic=True)
    for parameter, gradient in zip(parameters, whole, strict=True):
        torch.testing.assert_close(parameter.grad[0], gradient[0] / norms[0], rtol=1e-5, atol=1e-12)
        torch.testing.assert_close(parameter.grad[1], gradient[1], rtol=1e-12, atol=0)
    optimize(critics(batch().obs, batch().action).sum(), torch.optim.SGD(parameters, lr=0.0), clip_per_critic=True)
    torch.testing.assert_close(parameters[0].grad, plain[0])


def cloned(cloning: float) -> SACWithCloning:
    sac = learner_of().sac
    optimizers = {"actor_optimizer": sac.actor_optimizer, "critic_optimizer": sac.critic_optimizer}
    options = {"temperature": sac.temperature, "tau": 0.25, "delay": 1, "redq_subset": None}
    clone = SACWithCloning(sac.actor, sac.critics, **optimizers, **options)
    clone.cloning.fill_(cloning)
    return clone


def test_cloning_actor_maximizes_the_density_of_the_data() -> None:
    """ARISE-Initiative/robomimic@d309eae robomimic/algo/cql.py: ``entropy_weight * log_prob - baseline``."""
    sac, b, expected = cloned(1.0), batch(), 0.0
    for row, draw in zip(rows(b), noise(BATCH, ACTIONS), strict=True):
        log = sample_action(sac.actor, row.obs, draw)[1]
        density = by_hand.log_normal(np.arctanh(row.action), *gaussian(sac.actor, row.obs))
        density -= float(np.log(1 - row.action**2).sum())
        expected += row.weight * (0.2 * log - density) / BATCH
    assert seeded(lambda: sac.policy_loss(b))[0].item() == pytest.approx(expected, rel=1e-6)  # α lies in float32
    assert all(gradient is None or not gradient.any() for gradient in gradients(sac.policy_loss(b)[0], sac.critics))


def test_actor_after_cloning_equals_that_of_sac() -> None:
    losses = [seeded(lambda sac=sac: sac.policy_loss(batch())) for sac in (cloned(0.0), learner_of().sac)]
    assert [x.item() for x in losses[0]] == [x.item() for x in losses[1]]


def test_inverse_tanh_is_exact_and_finite_at_the_bounds() -> None:
    raw = torch.tensor([[-3.0, 0.0], [0.3, 4.0]], dtype=torch.float64)
    torch.testing.assert_close(atanh(raw.tanh()), raw)
    edge = atanh(torch.tensor([[-1.0, 1.0]], dtype=torch.float64))
    assert edge.tolist()[0] == pytest.approx([-0.5 * math.log(2e6), 0.5 * math.log(2e6)])


@pytest.mark.parametrize("actor_first", [True, False])
def test_actor_uses_critics_before_or_after_their_step(*, actor_first: bool) -> None:
    method = CQLConfig(conservative_weight=2.0, temperature=1.5, actor_first=actor_first)
    learner, steps, b = learner_of(method), learner_of(method), batch()
    order = [lambda: steps.sac.update_actor(b), lambda: critic_step(steps, b)]
    seeded(lambda: learner.update(b))
    seeded(lambda: [step() for step in (order if actor_first else order[::-1])])
    for net in ("actor", "critics"):
        same_parameters(getattr(learner.sac, net), getattr(steps.sac, net), rtol=0, atol=0)


def critic_step(learner: CQL, b: Transition) -> None:
    loss = learner.critic_loss(b)[0]
    optimize(loss, learner.sac.critic_optimizer, max_norm=learner.config.max_grad_norm, clip_per_critic=True)
