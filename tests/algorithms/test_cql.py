"""CQL against its paper, by independent loops over all sampled actions in float64."""

import math

import numpy as np
import pytest
import torch
from scipy import special

from rlbench.algorithms.cql import CQL, ClonedSAC, LagrangeMultiplier, atanh
from rlbench.algorithms.sac import SAC, Temperature
from rlbench.algorithms.steps import optimize
from rlbench.config.offline import CQLConfig
from rlbench.nets.actors import SquashedGaussianActor
from rlbench.nets.critics import Critics
from rlbench.ops.types import Transition
from tests.algorithms.contract import due
from tests.algorithms.recorded import (
    ACTIONS,
    BATCH,
    OBS,
    WIDTHS,
    Array,
    adam,
    batch,
    changes,
    copied,
    log_normal,
    numbers,
    q,
    regressed,
    spread,
    through,
)

CPU = torch.device("cpu")
USUAL = CQLConfig(conservative_weight=2.0, temperature=1.5)


def learner_of(method: CQLConfig = USUAL, *, threshold: float | None = 1.0, most: float = 1e6) -> CQL:
    torch.manual_seed(0)
    actor = SquashedGaussianActor(
        obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, log_std_min=-20, log_std_max=2
    ).double()
    critics = Critics(members=2, obs=OBS, actions=ACTIONS, widths=WIDTHS).double()
    spread(actor, critics)
    sac = SAC(
        actor,
        critics,
        actor_optimizer=adam(actor),
        critic_optimizer=adam(critics),
        temperature=Temperature(0.2, device=CPU, target=-2.0, lr=1e-2),
        tau=0.25,
        delay=1,
        redq_subset=None,
    )
    spread(sac.target_critics)
    multiplier = LagrangeMultiplier(device=CPU, lagrange_threshold=threshold, lr=1e-2, max_multiplier=most)
    return CQL(sac, multiplier=multiplier, method=method)


def sample_action(actor: SquashedGaussianActor, obs: Array, noise: Array) -> tuple[Array, float]:
    """An action of the policy at ``obs``, and its log-density by the change of variables."""
    mean = through(obs, actor.torso, actor.mean)
    std = np.exp(np.clip(through(obs, actor.torso, actor.log_std), -20, 2))
    raw = mean + std * noise
    return np.tanh(raw), log_normal(raw, mean, std) - float(np.log(1 - np.tanh(raw) ** 2).sum())


def action_draws(count: int) -> tuple[Array, Array]:
    """The draws of ``considered`` in their order: noise ``[M, 2B, A]`` and uniform actions ``[M, B, A]``."""
    torch.manual_seed(9)
    noise = torch.randn(count, 2 * BATCH, ACTIONS, dtype=torch.float64)
    return numbers(noise), numbers(2 * torch.rand(count, BATCH, ACTIONS, dtype=torch.float64) - 1)


def gaps(learner: CQL) -> tuple[Array, list[float]]:
    """The weighted gap of each critic and row, ``[K, B]``, and the critics' targets."""
    b, config, gap, targets = batch(), learner.config, np.zeros((2, BATCH)), []
    noise, uniform = action_draws(config.n_action_samples)
    for i in range(BATCH):
        obs, after = numbers(b.obs[i]), numbers(b.next_obs[i])
        others = [(uniform[m, i], ACTIONS * math.log(0.5)) for m in range(config.n_action_samples)]
        others += [sample_action(learner.sac.actor, obs, noise[m, i]) for m in range(config.n_action_samples)]
        there = [sample_action(learner.sac.actor, after, noise[m, BATCH + i]) for m in range(config.n_action_samples)]
        others += there
        assert len(others) == 30
        for k in range(2):
            terms = [(q(learner.sac.critics, k, obs, a) - log) / config.temperature for a, log in others]
            own = q(learner.sac.critics, k, obs, numbers(b.action[i]))
            gap[k, i] = config.conservative_weight * (config.temperature * special.logsumexp(terms) - own)
        action, log = there[0]
        future = min(q(learner.sac.target_critics, k, after, action) for k in range(2))
        targets.append(
            float(b.reward[i]) + float(b.discount[i]) * (future - (0.2 * log if config.soft_q_backup else 0.0))
        )
    return gap, targets


@pytest.mark.parametrize("method", [USUAL, CQLConfig(soft_q_backup=False, max_grad_norm=None)])
@pytest.mark.parametrize("log_multiplier", [0.0, 1.3])
def test_cql_critic_loss_is_td_error_plus_conservative_gap(method: CQLConfig, log_multiplier: float) -> None:
    learner, b = learner_of(method), batch()
    learner.multiplier.log.data.fill_(log_multiplier)
    gap, targets = gaps(learner)
    expected, errors = regressed(learner.sac.critics, b, targets)
    expected += math.exp(log_multiplier) * float((numbers(b.weight) * gap).sum()) / BATCH
    torch.manual_seed(9)
    loss, _, error, value = learner.critic_loss(b)
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

    def loss() -> torch.Tensor:
        torch.manual_seed(9)
        return learner.critic_loss(b)[0]

    weight = learner.sac.critics.layers[1].weight
    (gradient,) = torch.autograd.grad(loss(), [weight])
    for index in ((0, 0, 1), (1, 2, 3)):
        with torch.no_grad():
            weight[index] += 1e-6
            above = loss().item()
            weight[index] -= 2e-6
            below = loss().item()
            weight[index] += 1e-6
        assert gradient[index].item() == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-8)


def test_the_multiplier_rises_while_the_gap_is_above_its_threshold_and_falls_below_it() -> None:
    rows = torch.tensor(5.0)
    for gap, expected in ((3.0, math.exp(0.1)), (1.0, math.exp(-0.1))):
        multiplier = LagrangeMultiplier(device=CPU, lagrange_threshold=2.0, lr=0.1, max_multiplier=1e6)
        assert multiplier.value().item() == 1
        multiplier.learn(torch.tensor(gap), rows)  # Adam's first step is lr
        assert multiplier.value().item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("share", "expected"), [(0.9, math.exp(1e-2)), (1.1, math.exp(-1e-2))])
def test_an_update_compares_the_weighted_gap_with_the_threshold(share: float, expected: float) -> None:
    """Weighted by 2, the gap is just above or just below; unweighted it would be far below both times."""
    torch.manual_seed(9)
    gap = learner_of().critic_loss(batch())[3].item()
    assert gap > 0
    learner = learner_of(threshold=share * gap)
    torch.manual_seed(9)
    learner.update(batch())
    assert learner.multiplier.value().item() == pytest.approx(expected, rel=1e-5)  # Adam's first step is its rate


def test_multiplier_is_clipped_at_its_bound_and_can_leave_it() -> None:
    multiplier, rows = (
        LagrangeMultiplier(device=CPU, lagrange_threshold=2.0, lr=1.0, max_multiplier=5.0),
        torch.tensor(5.0),
    )
    for _ in range(20):
        multiplier.learn(torch.tensor(9.0), rows)
        assert 0 < multiplier.value().item() <= 5
    assert multiplier.value().item() == pytest.approx(5)
    for _ in range(20):
        multiplier.learn(torch.tensor(-9.0), rows)
    assert 0 <= multiplier.value().item() < 1


def test_without_a_threshold_or_without_rows_the_multiplier_stays() -> None:
    fixed, rows = LagrangeMultiplier(device=CPU, max_multiplier=1e6), torch.tensor(5.0)
    fixed.learn(torch.tensor(50.0), rows)
    assert fixed.value().item() == 1
    multiplier = LagrangeMultiplier(device=CPU, lagrange_threshold=2.0, lr=0.1, max_multiplier=1e6)
    multiplier.learn(torch.tensor(0.0), torch.tensor(0.0))
    assert multiplier.value().item() == 1


def test_each_critics_gradient_is_clipped_separately() -> None:
    torch.manual_seed(0)
    critics = Critics(members=2, obs=OBS, actions=ACTIONS, widths=WIDTHS).double()
    parameters = list(critics.parameters())
    value = critics(batch().obs, batch().action)
    loss = (torch.tensor([[100.0], [0.01]]) * value).sum()  # one gradient is far too long, the other short
    whole = torch.autograd.grad(loss, parameters, retain_graph=True)
    plain = torch.autograd.grad(value.sum(), parameters, retain_graph=True)
    norms = [math.sqrt(sum(float(g[k].square().sum()) for g in whole)) for k in range(2)]
    assert norms[0] > 1 > norms[1]
    optimize(loss, torch.optim.SGD(parameters, lr=0.0), max_norm=1.0, each=True)
    for parameter, gradient in zip(parameters, whole, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad[0], gradient[0] / norms[0], rtol=1e-5, atol=1e-12)
        torch.testing.assert_close(parameter.grad[1], gradient[1], rtol=1e-12, atol=0)
    optimize(critics(batch().obs, batch().action).sum(), torch.optim.SGD(parameters, lr=0.0), each=True)
    assert parameters[0].grad is not None
    torch.testing.assert_close(parameters[0].grad, plain[0])


def test_cql_update_changes_every_part_once() -> None:
    learner, b = learner_of(), batch()
    nets = {"actor": learner.sac.actor, "critics": learner.sac.critics, "targets": learner.sac.target_critics}
    before, alpha = copied(nets), learner.sac.temperature.value()
    report = learner.update(b)
    due(learner)
    assert changes(nets, before) == set(nets)
    assert learner.sac.temperature.value() != alpha
    assert report.metrics["multiplier"].item() == 1  # the one that was used
    rises = report.metrics["gap"].item() > 1.0
    assert learner.multiplier.value().item() == pytest.approx(math.exp(0.01 if rises else -0.01), rel=1e-4)


def cloned(cloning: float) -> ClonedSAC:
    learner = learner_of().sac
    sac = ClonedSAC(
        learner.actor,
        learner.critics,
        actor_optimizer=learner.actor_optimizer,
        critic_optimizer=learner.critic_optimizer,
        temperature=learner.temperature,
        tau=0.25,
        delay=1,
        redq_subset=None,
    )
    sac.cloning.fill_(cloning)
    return sac


def test_cloning_actor_maximizes_the_density_of_the_data() -> None:
    """ARISE-Initiative/robomimic@d309eae robomimic/algo/cql.py: ``entropy_weight * log_prob - baseline``."""
    sac, b, expected = cloned(1.0), batch(), 0.0
    torch.manual_seed(9)
    noise = numbers(torch.randn(BATCH, ACTIONS, dtype=torch.float64))
    for i in range(BATCH):
        obs, action = numbers(b.obs[i]), numbers(b.action[i])
        log = sample_action(sac.actor, obs, noise[i])[1]
        mean = through(obs, sac.actor.torso, sac.actor.mean)
        std = np.exp(np.clip(through(obs, sac.actor.torso, sac.actor.log_std), -20, 2))
        density = log_normal(np.arctanh(action), mean, std) - float(np.log(1 - action**2).sum())
        expected += float(b.weight[i]) * (0.2 * log - density) / BATCH
    torch.manual_seed(9)
    assert sac.policy_loss(b)[0].item() == pytest.approx(expected, rel=1e-6)  # α lies in float32
    critics = list(sac.critics.parameters())
    gradients = torch.autograd.grad(sac.policy_loss(b)[0], critics, allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in gradients)


def test_actor_after_cloning_equals_that_of_sac() -> None:
    sac, plain, b = cloned(0.0), learner_of().sac, batch()
    torch.manual_seed(9)
    loss, entropy = sac.policy_loss(b)
    torch.manual_seed(9)
    assert (loss.item(), entropy.item()) == tuple(x.item() for x in plain.policy_loss(b))


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
    torch.manual_seed(9)
    learner.update(b)
    torch.manual_seed(9)
    for step in order if actor_first else order[::-1]:
        step()
    for net in ("actor", "critics"):
        for one, other in zip(
            getattr(learner.sac, net).parameters(), getattr(steps.sac, net).parameters(), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def critic_step(learner: CQL, b: Transition) -> None:
    loss = learner.critic_loss(b)[0]
    optimize(loss, learner.sac.critic_optimizer, max_norm=learner.config.max_grad_norm, each=True)
