"""C51 and quantile losses against the papers' equations in float64 loops, and their identities."""

import math

import pytest
import torch

from rlbench.ops.quantiles import QuantileReturn
from rlbench.ops.return_distributions import CategoricalReturn, ExpectedReturn, gather_actions

Q = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]])


def test_pick_takes_the_row_of_each_action_at_any_rank() -> None:
    action = torch.tensor([2, 0])
    assert gather_actions(Q, action).tolist() == [3.0, -1.0]
    deep = torch.arange(24.0).view(2, 3, 4)
    assert gather_actions(deep, action).tolist() == [[8.0, 9.0, 10.0, 11.0], [12.0, 13.0, 14.0, 15.0]]


def test_the_squared_error_has_no_half() -> None:
    predicted, goal = ExpectedReturn(torch.tensor([1.0, -2.0])), ExpectedReturn(torch.tensor([4.0, -2.5]))
    assert predicted.loss(goal).tolist() == [9.0, 0.25]


def test_the_huber_loss_is_half_the_square_up_to_its_threshold_and_straight_beyond() -> None:
    predicted, goal = (
        ExpectedReturn(torch.tensor([0.0, 0.0, 0.0]), huber=2.0),
        ExpectedReturn(torch.tensor([1.0, 2.0, -5.0])),
    )
    assert predicted.loss(goal).tolist() == [0.5, 2.0, 2.0 * (5.0 - 1.0)]


@pytest.mark.parametrize("huber", [None, 2.0])
def test_the_priority_of_an_expected_value_is_the_absolute_td_error(huber: float | None) -> None:
    """Schaul et al. 2016, section 3.3: p = |δ| + ε, for errors δ of 3, −0.5 and 20, whatever loss is minimised."""
    predicted = ExpectedReturn(torch.tensor([1.0, -2.0, 30.0]), huber=huber)
    target = ExpectedReturn(torch.tensor([4.0, -2.5, 10.0]), huber=huber)
    assert predicted.priority(target, predicted.loss(target)).tolist() == [3.0, 0.5, 20.0]


def test_the_priority_of_a_distribution_is_its_loss() -> None:
    """Cross entropy of C51: ln 2 of an even bet on one atom. Quantile Huber loss of QR-DQN: 2 · (|1 − 4| − 1/2)/2."""
    atoms = torch.tensor([0.0, 1.0])
    even, sure = CategoricalReturn(torch.zeros(1, 2), atoms), CategoricalReturn(torch.tensor([[0.0, -200.0]]), atoms)
    assert even.priority(sure, even.loss(sure)).tolist() == pytest.approx([math.log(2)])
    taus, mass = torch.tensor([[0.25, 0.75]]), torch.full((1, 2), 0.5)
    ones, fours = (QuantileReturn(torch.full((1, 2), number), taus, mass) for number in (1.0, 4.0))
    assert ones.priority(fours, ones.loss(fours)).tolist() == pytest.approx([2.5])


ATOMS = torch.linspace(-2.0, 2.0, 5)


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(v) for v in row)
    return [math.exp(v) / total for v in row]


def projected(probabilities: list[float], target: list[float], atoms: list[float]) -> list[float]:
    """Bellemare et al. 2017, algorithm 1, an atom at a time."""
    low, high, gap = atoms[0], atoms[-1], atoms[1] - atoms[0]
    out = [0.0] * len(atoms)
    for p, z in zip(probabilities, target, strict=True):
        b = (min(max(z, low), high) - low) / gap
        below, above = math.floor(b + 1e-12), math.ceil(b - 1e-12)
        if below == above:
            out[below] += p
        else:
            out[below] += p * (above - b)
            out[above] += p * (b - below)
    return out


def test_the_projection_is_the_papers_algorithm() -> None:
    generator = torch.Generator().manual_seed(1)
    atoms = torch.linspace(-10, 10, 51, dtype=torch.float64)
    logits = torch.randn(6, 51, generator=generator, dtype=torch.float64)
    reward = torch.tensor([0.0, 1.0, -1.0, 30.0, 0.37, -12.0], dtype=torch.float64)
    discount = torch.tensor([0.99, 0.0, 0.970299, 0.99, 1.0, 0.5], dtype=torch.float64)
    target = CategoricalReturn(logits, atoms).backup(reward, discount)
    ours = CategoricalReturn(torch.zeros(6, 51, dtype=torch.float64), atoms).project(target)
    for i in range(6):
        places = [reward[i].item() + discount[i].item() * z for z in atoms.tolist()]
        want = projected(softmax(logits[i].tolist()), places, atoms.tolist())
        assert ours[i].tolist() == pytest.approx(want, abs=1e-12)


def test_the_categorical_distance_is_the_cross_entropy() -> None:
    predicted, target = torch.randn(3, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    atoms = ATOMS.double()
    ours = CategoricalReturn(predicted, atoms).loss(CategoricalReturn(target, atoms))
    for i in range(3):
        p, q = softmax(target[i].tolist()), softmax(predicted[i].tolist())
        assert ours[i].item() == pytest.approx(-sum(a * math.log(b) for a, b in zip(p, q, strict=True)))


def test_the_quantile_huber_loss_is_the_papers_double_loop() -> None:
    """Dabney et al. 2018, eq. 9 and 10 with κ = 1: Σ_i E_j [ |τ_i − 1{u < 0}| · L(u) ], u = θ'_j − θ_i."""
    generator = torch.Generator().manual_seed(2)
    draw = lambda *s: 2 * torch.randn(*s, generator=generator, dtype=torch.float64)
    theta, goal = draw(4, 3), draw(4, 5)
    taus = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    ours = QuantileReturn(theta, taus, torch.full((4, 3), 1 / 3)).loss(
        QuantileReturn(goal, taus, torch.full((4, 5), 1 / 5))
    )
    for b in range(4):
        total = 0.0
        for i in range(3):
            for j in range(5):
                u = goal[b, j].item() - theta[b, i].item()
                huber = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
                total += abs(taus[b, i].item() - (1.0 if u < 0 else 0.0)) * huber / 5
        assert ours[b].item() == pytest.approx(total)


def test_the_quantile_huber_loss_is_its_plain_formula_to_the_bit_and_so_is_its_gradient() -> None:
    """Errors below, at and beyond κ, and none at all; the fused kernels must not move a score."""
    theta = torch.randn(4, 200, generator=torch.Generator().manual_seed(3)).mul(2).requires_grad_()
    goal, taus = theta.detach().flip(1) + torch.tensor([0.0, 1.0, -1.0, 0.3])[:, None], torch.rand(4, 200)
    mass = torch.full((4, 200), 1 / 200)
    error = goal[:, None, :] - theta[:, :, None]
    huber = torch.where(error.abs() < 1, 0.5 * error.square(), error.abs() - 0.5)
    plain = ((taus[:, :, None] - (error < 0).float()).abs() * huber).mean(2).sum(1)
    ours = QuantileReturn(theta, taus, mass).loss(QuantileReturn(goal, taus, mass))
    assert torch.equal(ours, plain)
    want, got = (torch.autograd.grad(loss.square().sum(), theta)[0] for loss in (plain, ours))
    assert torch.equal(got, want)


def test_a_mean_weighs_each_value_by_its_mass() -> None:
    value = QuantileReturn(torch.tensor([[[1.0, 3.0], [10.0, 0.0]]]), torch.zeros(1, 2), torch.tensor([[0.25, 0.75]]))
    assert value.mean().tolist() == [[2.5, 2.5]]
    assert value.at(torch.tensor([1])).mean().tolist() == [2.5]


@pytest.mark.parametrize("actions", [1, 4])
def test_the_mean_of_a_backup_is_the_backup_of_the_mean(actions: int) -> None:
    reward, discount = torch.tensor([1.0, -2.0]), torch.tensor([0.9, 0.0])
    action = torch.tensor([0, actions - 1])
    for value in (
        ExpectedReturn(torch.randn(2, actions)),
        CategoricalReturn(torch.randn(2, actions, 51), torch.linspace(-10, 10, 51)),
        QuantileReturn(torch.randn(2, actions, 8), torch.rand(2, 8), torch.rand(2, 8).softmax(-1)),
    ):
        action_value = value.at(action)
        torch.testing.assert_close(
            action_value.backup(reward, discount).mean(), reward + discount * action_value.mean()
        )
        torch.testing.assert_close(action_value.mean(), value.mean().gather(1, action[:, None]).squeeze(1))


def test_as_many_actions_as_fractions_do_not_confuse_the_mean() -> None:
    value = QuantileReturn(torch.randn(3, 5, 5), torch.rand(3, 5), torch.full((3, 5), 0.2))
    torch.testing.assert_close(value.mean(), value.values.mean(-1))
