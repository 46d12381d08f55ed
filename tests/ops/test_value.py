"""Values: literal tables and identities."""

from __future__ import annotations

import torch

from rlbench.ops.value import Expected, pick

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


def test_the_mean_of_a_backup_is_the_backup_of_the_mean() -> None:
    reward, discount = torch.tensor([1.0, -2.0]), torch.tensor([0.9, 0.0])
    value = Expected(torch.tensor([10.0, 20.0]))
    assert value.backup(reward, discount).mean().tolist() == [10.0, -2.0]
    assert torch.equal(value.backup(reward, discount).mean(), reward + discount * value.mean())
