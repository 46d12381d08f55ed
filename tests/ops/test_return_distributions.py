"""Return distributions: literal tables and identities."""

from __future__ import annotations

import math

import pytest
import torch

from rlbench.ops.quantiles import Quantiles
from rlbench.ops.return_distributions import Categorical, Expected, pick

Q = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]])


def test_pick_takes_the_row_of_each_action_at_any_rank() -> None:
    action = torch.tensor([2, 0])
    assert pick(Q, action).tolist() == [3.0, -1.0]
    deep = torch.arange(24.0).view(2, 3, 4)
    assert pick(deep, action).tolist() == [[8.0, 9.0, 10.0, 11.0], [12.0, 13.0, 14.0, 15.0]]


def test_the_squared_error_has_no_half() -> None:
    predicted, goal = Expected(torch.tensor([1.0, -2.0])), Expected(torch.tensor([4.0, -2.5]))
    assert predicted.distance(goal).tolist() == [9.0, 0.25]


def test_the_huber_loss_is_half_the_square_up_to_its_threshold_and_straight_beyond() -> None:
    predicted, goal = Expected(torch.tensor([0.0, 0.0, 0.0]), huber=2.0), Expected(torch.tensor([1.0, 2.0, -5.0]))
    assert predicted.distance(goal).tolist() == [0.5, 2.0, 2.0 * (5.0 - 1.0)]


@pytest.mark.parametrize("huber", [None, 2.0])
def test_the_priority_of_an_expected_value_is_the_absolute_td_error(huber: float | None) -> None:
    """Schaul et al. 2016, section 3.3: p = |δ| + ε, for errors δ of 3, −0.5 and 20, whatever loss is minimised."""
    predicted = Expected(torch.tensor([1.0, -2.0, 30.0]), huber=huber)
    target = Expected(torch.tensor([4.0, -2.5, 10.0]), huber=huber)
    assert predicted.priority(target, predicted.distance(target)).tolist() == [3.0, 0.5, 20.0]


def test_the_priority_of_a_distribution_is_its_loss() -> None:
    """Cross entropy of C51: ln 2 of an even bet on one atom. Quantile Huber loss of QR-DQN: 2 · (|1 − 4| − 1/2)/2."""
    atoms = torch.tensor([0.0, 1.0])
    even, sure = Categorical(torch.zeros(1, 2), atoms), Categorical(torch.tensor([[0.0, -200.0]]), atoms)
    assert even.priority(sure, even.distance(sure)).tolist() == pytest.approx([math.log(2)])
    taus, mass = torch.tensor([[0.25, 0.75]]), torch.full((1, 2), 0.5)
    ones, fours = (Quantiles(torch.full((1, 2), number), taus, mass) for number in (1.0, 4.0))
    assert ones.priority(fours, ones.distance(fours)).tolist() == pytest.approx([2.5])


def test_the_mean_of_a_backup_is_the_backup_of_the_mean() -> None:
    reward, discount = torch.tensor([1.0, -2.0]), torch.tensor([0.9, 0.0])
    value = Expected(torch.tensor([10.0, 20.0]))
    assert value.backup(reward, discount).mean().tolist() == [10.0, -2.0]
    assert torch.equal(value.backup(reward, discount).mean(), reward + discount * value.mean())
