"""Exploration: its distributions, its bounds, and equally many random numbers whatever its rate."""

import pytest
import torch
from scipy import stats

from rlbench.collectors.explore import EpsilonGreedy, Explorer, GaussianNoise


def test_actions_are_uniform_while_the_amount_is_positive() -> None:
    noise = GaussianNoise(generator=torch.Generator().manual_seed(0), std=0.1)
    noise.set_exploration_rate(1.0)
    action = noise(torch.full((5_000, 2), 0.9))
    assert stats.kstest(action.flatten(), stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_actions_are_then_the_policys_with_gaussian_noise_within_bounds() -> None:
    noise = GaussianNoise(generator=torch.Generator().manual_seed(0), std=0.1)
    noise.set_exploration_rate(0.0)
    action = noise(torch.tensor([[0.0, 0.95]]).repeat(5_000, 1)).double()
    assert stats.kstest(action[:, 0], stats.norm(0, 0.1).cdf).pvalue > 1e-3
    assert action.max() == 1
    assert float((action[:, 1] == 1).double().mean()) == pytest.approx(stats.norm.sf(0.5), abs=0.02)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_a_share_epsilon_of_actions_is_uniform(epsilon: float) -> None:
    greedy = EpsilonGreedy(actions=4, generator=torch.Generator().manual_seed(0))
    greedy.set_exploration_rate(epsilon)
    share = torch.bincount(greedy(torch.full((20_000,), 2)), minlength=4) / 20_000
    assert share.tolist() == pytest.approx([epsilon / 4, epsilon / 4, 1 - 0.75 * epsilon, epsilon / 4], abs=0.01)


@pytest.mark.parametrize("rates", [(0.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("kind", [EpsilonGreedy, GaussianNoise])
def test_any_amount_draws_equally_many_numbers(kind: type[Explorer], rates: tuple[float, float]) -> None:
    states = []
    for rate in rates:
        generator = torch.Generator().manual_seed(0)
        explorer = kind(generator=generator, **({"actions": 3} if kind is EpsilonGreedy else {"std": 0.1}))
        explorer.set_exploration_rate(rate)
        explorer(torch.zeros(4, dtype=torch.int64) if kind is EpsilonGreedy else torch.zeros(4, 2))
        states.append(generator.get_state())
    assert torch.equal(*states)
