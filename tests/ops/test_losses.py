"""Terms of offline losses against literal tables, scipy and integration."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import Tensor

from rlbench.ops.action_distributions import GaussianPolicy, uniform_actions
from rlbench.ops.losses import (
    bc_mse,
    binary_weight,
    conservative_gap,
    expectile_loss,
    exponential_weight,
    kl_to_standard_normal,
    lambda_mix,
    valid_mean,
    weighted_mean,
)


def doubles(*values: object) -> Tensor:
    return torch.tensor(values[0] if len(values) == 1 else values, dtype=torch.float64)


def test_weighted_mean_divides_by_the_sum_of_weights() -> None:
    assert weighted_mean(doubles([2.0, 1e9, -2.0]), doubles([1.0, 0.0, 3.0])).item() == pytest.approx((2 - 6) / 4)
    assert weighted_mean(doubles([5.0, 7.0]), doubles([0.0, 0.0])).item() == 0


def test_valid_mean_ignores_the_size_of_weights() -> None:
    values = doubles([[2.0, 1e9, -4.0], [3.0, 1e9, 5.0]])
    assert valid_mean(values, doubles([0.5, 0.0, 3.0])).item() == pytest.approx(6 / 4)
    assert valid_mean(values, doubles([0.0, 0.0, 0.0])).item() == 0


def test_the_imitation_error_is_the_mean_over_dimensions_not_their_sum() -> None:
    value = bc_mse(doubles([[1.0, 0.0], [0.5, 0.5]]), doubles([[0.0, 0.0], [0.5, -0.5]]))
    assert value.tolist() == [0.5, 0.5]


def test_an_expectile_loss_weighs_what_is_above_the_prediction_by_tau_and_below_by_the_rest() -> None:
    error = doubles([2.0, -2.0, 0.0, 0.5])
    assert expectile_loss(error, 0.7).tolist() == pytest.approx([2.8, 1.2, 0.0, 0.175], rel=1e-15)
    assert expectile_loss(error, 0.5).tolist() == pytest.approx([2.0, 2.0, 0.0, 0.125], rel=1e-15)


def test_exponential_weights_grow_with_the_advantage_up_to_their_bound() -> None:
    value = exponential_weight(doubles([0.0, 1.0, -2.0, 1.535, 1.6, 1e30, -1e30]), 3.0, 100.0)
    expected = [1.0, math.exp(3), math.exp(-6), math.exp(3 * 1.535), 100.0, 100.0, 0.0]
    assert value.tolist() == pytest.approx(expected, rel=1e-12)
    assert expected[3] > 99.9


def test_binary_weights_are_one_where_the_advantage_is_positive_and_only_there() -> None:
    value = binary_weight(doubles([0.0, 1e-9, -1e-9, 3.0]))
    assert value.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert value.dtype == torch.float64


def test_lambda_mix_is_a_convex_combination_of_minimum_and_maximum() -> None:
    value = doubles([[1.0, 4.0, -2.0], [5.0, 0.0, -2.0]])
    assert lambda_mix(value, 0.75).tolist() == [0.75 * 1 + 0.25 * 5, 0.75 * 0 + 0.25 * 4, -2.0]
    assert lambda_mix(value, 1.0).tolist() == [1.0, 0.0, -2.0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_conservative_gap_is_a_log_sum_over_every_sampled_action(temperature: float) -> None:
    draw = np.random.default_rng(3)
    samples, data, density = draw.normal(size=(2, 30, 4)), draw.normal(size=(2, 4)), draw.normal(size=(30, 4))
    value = conservative_gap(*(torch.tensor(x) for x in (data, samples, density)), temperature)
    for member in range(2):
        for row in range(4):
            terms = [(samples[member, m, row] - density[m, row]) / temperature for m in range(30)]
            expected = temperature * special.logsumexp(terms) - data[member, row]
            assert value[member, row].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-0.7, 0.5)])
def test_the_divergence_from_the_standard_normal_is_its_integral(mean: float, log_std: float) -> None:
    std = math.exp(log_std)

    def density(x: float) -> float:
        log = stats.norm.logpdf(x, mean, std)
        return float(math.exp(log) * (log - stats.norm.logpdf(x)))

    expected, _ = integrate.quad(density, mean - 12 * std, mean + 12 * std)
    value = kl_to_standard_normal(doubles([[mean, 0.0]]), doubles([[log_std, 0.0]]))
    assert value.tolist() == pytest.approx([expected / 2], abs=1e-8)  # mean of two latent numbers, one of them without


def test_uniform_actions_cover_the_range_with_their_density() -> None:
    torch.manual_seed(0)
    action, density = uniform_actions(torch.zeros(100, 3), 50)
    assert action.shape == (50, 100, 3)
    assert density == pytest.approx(3 * math.log(0.5))
    assert stats.kstest(action.double().numpy().ravel(), stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_samples_of_a_gaussian_follow_it_within_bounds() -> None:
    torch.manual_seed(0)
    policy = GaussianPolicy(torch.tensor([[0.1, 0.9]]), torch.tensor([[-2.0, 0.0]]))
    action = policy.clipped_samples(20_000)
    assert action.shape == (20_000, 1, 2)
    assert not action.requires_grad
    assert float(action.abs().max()) == 1
    inside = action[:, 0, 0].double().numpy()
    assert stats.kstest(inside, stats.norm(0.1, math.exp(-2)).cdf).pvalue > 1e-3
    assert float((action[:, 0, 1] == 1).float().mean()) == pytest.approx(stats.norm.sf(0.1), abs=0.02)
