"""Policies against densities computed by scipy and by integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from rlbench.ops.policy import Deterministic, Squashed


def squashed(mean: list[float], log_std: list[float]) -> Squashed:
    return Squashed(torch.tensor([mean], dtype=torch.float64), torch.tensor([log_std], dtype=torch.float64))


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-0.7, 0.5)])
def test_the_density_of_a_squashed_action_integrates_to_one(mean: float, log_std: float) -> None:
    policy = squashed([mean], [log_std])

    def density(action: float) -> float:
        raw = torch.tensor([[math.atanh(action)]], dtype=torch.float64)
        return float(policy.log_prob(raw).exp())

    total, _ = integrate.quad(density, -1, 1, limit=200)
    assert total == pytest.approx(1, abs=1e-7)


def test_the_log_density_is_the_gaussians_minus_the_slope_of_tanh() -> None:
    mean, log_std, raw = [0.3, -1.2, 0.0], [-0.5, 0.2, 0.9], [0.1, -2.0, 1.4]
    wanted = sum(
        stats.norm.logpdf(x, m, np.exp(s)) - np.log(1 - np.tanh(x) ** 2)
        for m, s, x in zip(mean, log_std, raw, strict=True)
    )
    found = squashed(mean, log_std).log_prob(torch.tensor([raw], dtype=torch.float64))
    assert found.item() == pytest.approx(wanted, rel=1e-12)


def test_a_sample_tells_its_own_density() -> None:
    torch.manual_seed(0)
    policy = Squashed(torch.randn(500, 3, dtype=torch.float64), 0.3 * torch.randn(500, 3, dtype=torch.float64))
    action, log_prob = policy.sample()
    assert bool((action.abs() < 1).all())
    torch.testing.assert_close(log_prob, policy.log_prob(action.atanh()), rtol=1e-6, atol=1e-6)


def test_samples_are_distributed_as_their_density_says() -> None:
    torch.manual_seed(1)
    policy = Squashed(torch.full((20_000, 1), 0.4), torch.full((20_000, 1), -0.3))
    action, _ = policy.sample()
    found = stats.kstest(np.arctanh(action.double().numpy().ravel()), stats.norm(0.4, math.exp(-0.3)).cdf)
    assert found.pvalue > 1e-3


def test_the_log_density_stays_finite_where_tanh_is_one() -> None:
    policy = Squashed(torch.tensor([[30.0, -30.0]], requires_grad=True), torch.zeros(1, 2))
    _, log_prob = policy.sample()
    assert math.isfinite(log_prob.item())
    (slope,) = torch.autograd.grad(log_prob.sum(), policy.mean)
    assert bool(slope.isfinite().all())
    # far out the density of the action is exp(2|x|)/4 times the Gaussian's, so the slope is 2 towards the middle
    torch.testing.assert_close(slope, torch.tensor([[2.0, -2.0]]), rtol=1e-4, atol=1e-4)


def test_the_mode_is_the_squashed_mean() -> None:
    assert squashed([0.5, -2.0], [9.0, 9.0]).mode().tolist()[0] == pytest.approx([math.tanh(0.5), math.tanh(-2.0)])


def test_smoothing_is_clipped_gaussian_noise_kept_in_bounds() -> None:
    torch.manual_seed(3)
    middle = Deterministic(torch.zeros(40_000, 1)).smoothed(0.2, 0.5)
    assert middle.abs().max().item() == pytest.approx(0.5)
    share_cut = (middle.abs() > 0.4999).double().mean().item()
    assert share_cut == pytest.approx(2 * stats.norm.sf(2.5), abs=0.003)
    inside = middle[middle.abs() < 0.4999]
    assert inside.std().item() == pytest.approx(0.2 * stats.truncnorm(-2.5, 2.5).std(), rel=0.02)
    edge = Deterministic(torch.full((1_000, 1), 0.9)).smoothed(0.2, 0.5)
    assert edge.max().item() == 1.0
    assert edge.min().item() >= 0.4 - 1e-6
