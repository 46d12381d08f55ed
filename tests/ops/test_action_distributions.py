"""Action distributions against densities computed by scipy and by integration."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import distributions

from rlbench.ops.action_distributions import (
    CategoricalPolicy,
    DeterministicPolicy,
    GaussianPolicy,
    SquashedGaussianPolicy,
)


def squashed(mean: list[float], log_std: list[float]) -> SquashedGaussianPolicy:
    return SquashedGaussianPolicy(*(torch.tensor([part], dtype=torch.float64) for part in (mean, log_std)))


def test_log_density_is_the_gaussians_minus_the_log_derivative_of_tanh() -> None:
    mean, log_std, raw = [0.3, -1.2, 0.0], [-0.5, 0.2, 0.9], [0.1, -2.0, 1.4]
    expected = sum(
        stats.norm.logpdf(x, m, np.exp(s)) - np.log(1 - np.tanh(x) ** 2)
        for m, s, x in zip(mean, log_std, raw, strict=True)
    )
    value = squashed(mean, log_std).log_prob_of_tanh(torch.tensor([raw], dtype=torch.float64))
    assert value.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("scale", "actions", "log_prob"),
    [
        (0.4, 1, -0.0026478),  # −½ ln 2π − ln 0.4
        (3.0, 1, -2.0175508),  # −½ ln 2π − ln 3
        (0.4, 17, -0.0450127),  # Humanoid: 17 times the first, 15.577 above −½ · 17 ln 2π
    ],
)
def test_the_log_density_in_the_environments_units_is_less_by_the_logarithm_of_the_scale(
    scale: float, actions: int, log_prob: float
) -> None:
    """A standard normal at 0, where tanh has derivative 1; thu-ml/tianshou e605bdea, policy/modelfree/sac.py."""
    zeros = torch.zeros(1, actions, dtype=torch.float64)
    policy = SquashedGaussianPolicy(zeros, zeros, actions * math.log(scale))
    assert policy.log_prob_of_tanh(zeros).item() == pytest.approx(log_prob, abs=2e-6)
    assert policy.expand(2).log_prob_of_tanh(zeros).tolist() == [[policy.log_prob_of_tanh(zeros).item()]] * 2
    torch.manual_seed(0)
    action, samples = policy.sample_and_log_prob()
    torch.testing.assert_close(samples, policy.log_prob_of_tanh(action.atanh()), rtol=1e-6, atol=1e-6)


def test_sample_returns_its_log_density() -> None:
    torch.manual_seed(0)
    mean, log_std = torch.randn(2, 500, 3, dtype=torch.float64)
    policy = SquashedGaussianPolicy(mean, 0.3 * log_std)
    action, log_prob = policy.sample_and_log_prob()
    assert bool((action.abs() < 1).all())
    torch.testing.assert_close(log_prob, policy.log_prob_of_tanh(action.atanh()), rtol=1e-6, atol=1e-6)


def test_samples_are_distributed_as_their_density_says() -> None:
    torch.manual_seed(1)
    policy = SquashedGaussianPolicy(torch.full((20_000, 1), 0.4), torch.full((20_000, 1), -0.3))
    action, _ = policy.sample_and_log_prob()
    value = stats.kstest(np.arctanh(action.double().numpy().ravel()), stats.norm(0.4, math.exp(-0.3)).cdf)
    assert value.pvalue > 1e-3


def test_the_log_density_stays_finite_where_tanh_is_one() -> None:
    policy = SquashedGaussianPolicy(torch.tensor([[30.0, -30.0]], requires_grad=True), torch.zeros(1, 2))
    _, log_prob = policy.sample_and_log_prob()
    assert math.isfinite(log_prob.item())
    (gradient,) = torch.autograd.grad(log_prob.sum(), policy.mean)
    assert bool(gradient.isfinite().all())
    # far out the density of the action is exp(2|x|)/4 times the Gaussian's, so the derivative is 2 towards the middle
    torch.testing.assert_close(gradient, torch.tensor([[2.0, -2.0]]), rtol=1e-4, atol=1e-4)


def test_the_mode_is_the_squashed_mean() -> None:
    assert squashed([0.5, -2.0], [9.0, 9.0]).mode().tolist()[0] == pytest.approx([math.tanh(0.5), math.tanh(-2.0)])


def test_target_smoothing_is_clipped_gaussian_noise_within_bounds() -> None:
    torch.manual_seed(3)
    middle = DeterministicPolicy(torch.zeros(40_000, 1)).add_clipped_noise(0.2, 0.5)
    assert middle.abs().max().item() == pytest.approx(0.5)
    share_cut = (middle.abs() > 0.4999).double().mean().item()
    assert share_cut == pytest.approx(2 * stats.norm.sf(2.5), abs=0.003)
    inside = middle[middle.abs() < 0.4999]
    assert inside.std().item() == pytest.approx(0.2 * stats.truncnorm(-2.5, 2.5).std(), rel=0.02)
    edge = DeterministicPolicy(torch.full((1_000, 1), 0.9)).add_clipped_noise(0.2, 0.5)
    assert edge.max().item() == 1.0
    assert edge.min().item() >= 0.4 - 1e-6


def gaussians() -> tuple[GaussianPolicy, GaussianPolicy]:
    generator = torch.Generator().manual_seed(4)
    mean, other = (torch.randn(6, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    log_std = torch.tensor([-0.5, 0.3, -1.2], dtype=torch.float64)
    return GaussianPolicy(mean, log_std.expand_as(mean)), GaussianPolicy(other, 0.5 - log_std.expand_as(other))


def discretes() -> tuple[CategoricalPolicy, CategoricalPolicy]:
    generator = torch.Generator().manual_seed(5)
    one, other = (2 * torch.randn(6, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    return CategoricalPolicy(one + 50), CategoricalPolicy(other - 7)  # a shift of all logits is no other policy


def reference(policy: GaussianPolicy | CategoricalPolicy) -> distributions.Distribution:
    if isinstance(policy, CategoricalPolicy):
        return distributions.Categorical(logits=policy.logits)
    return distributions.Independent(distributions.Normal(policy.mean, policy.log_std.exp()), 1)


@pytest.mark.parametrize("pair", [gaussians(), discretes()], ids=["gaussian", "discrete"])
def test_density_entropy_and_kl_equal_the_textbook_formulas(
    pair: tuple[GaussianPolicy, GaussianPolicy] | tuple[CategoricalPolicy, CategoricalPolicy],
) -> None:
    one, other = pair
    continuous = torch.linspace(-2, 2, 18).double().view(6, 3)
    action = torch.arange(6) % 4 if isinstance(one, CategoricalPolicy) else continuous
    torch.testing.assert_close(one.log_prob(action), reference(one).log_prob(action))
    torch.testing.assert_close(one.entropy(), reference(one).entropy())
    value = one.kl_divergence(other)
    torch.testing.assert_close(value, distributions.kl_divergence(reference(one), reference(other)))
    assert one.kl_divergence(one).abs().max().item() < 1e-12


def test_sampled_discrete_actions_have_their_probabilities() -> None:
    torch.manual_seed(6)
    logits = torch.tensor([1.0, -1.5, 0.0, -30.0])
    samples = CategoricalPolicy(logits.expand(20_000, 4)).sample()
    assert samples.dtype == torch.int64
    counts = np.bincount(samples.numpy(), minlength=4)
    chance = special.softmax(logits.double().numpy())
    assert counts[3] == 0
    assert stats.chisquare(counts[:3], 20_000 * chance[:3] / chance[:3].sum()).pvalue > 1e-3
    assert CategoricalPolicy(torch.tensor([[0.0, 40.0], [40.0, 0.0]])).sample().tolist() == [1, 0]


def test_sampled_vectors_follow_their_density_with_independent_components() -> None:
    torch.manual_seed(7)
    mean, log_std = torch.tensor([0.4, -1.0]), torch.tensor([-0.3, 0.6])
    samples = GaussianPolicy(mean.expand(20_000, 2), log_std.expand(20_000, 2)).sample().double().numpy()
    for i in range(2):
        assert stats.kstest(samples[:, i], stats.norm(mean[i].item(), math.exp(log_std[i].item())).cdf).pvalue > 1e-3
    assert abs(float(np.corrcoef(samples.T)[0, 1])) < 0.03


@pytest.mark.parametrize("policy", [gaussians()[0], discretes()[0]], ids=["gaussian", "discrete"])
def test_detached_policy_is_equal_without_gradient(policy: GaussianPolicy | CategoricalPolicy) -> None:
    tensors = [part for part in policy if isinstance(part, torch.Tensor)]
    policy_copy = type(policy)(*(part.clone().requires_grad_() for part in tensors))
    for detached, part in zip(policy_copy.detach(), tensors, strict=False):
        assert torch.equal(detached, part)
        assert not detached.requires_grad


def test_detached_gaussian_clips_as_before_and_is_independent_of_later_changes_of_its_std() -> None:
    log_std = torch.nn.Parameter(torch.zeros(2))
    detached = GaussianPolicy(torch.zeros(3, 2), log_std.expand(3, 2), clip=True).detach()
    log_std.data.fill_(1.0)
    assert (detached.log_std.tolist(), detached.clip) == ([[0, 0]] * 3, True)
