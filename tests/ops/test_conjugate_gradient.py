"""Fisher products against the explicit matrix, and conjugate gradient against a direct solver."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.functional import hessian
from torch.func import functional_call

from rlbench.nets.actor_critic import DiscreteActor, GaussianActor
from rlbench.nets.torsos import MLPTorso
from rlbench.ops.action_distributions import StochasticPolicy
from rlbench.ops.conjugate_gradient import conjugate_gradient, fisher_vector_product, flatten, unflatten_like

Actor = GaussianActor | DiscreteActor
OBS, ACTIONS, BATCH = 3, 2, 7


def actor_of(kind: str) -> Actor:
    torch.manual_seed(0)
    torso = MLPTorso(obs_shape=(OBS,), widths=(4,), activation="tanh")
    if kind == "gaussian":
        actor: Actor = GaussianActor(torso=torso, actions=ACTIONS, log_std=-0.5)
        with torch.no_grad():
            actor.log_std.add_(torch.tensor([0.0, 0.9]))
        return actor.double()
    return DiscreteActor(torso=torso, actions=3).double()


def policy_at() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    weight = torch.ones(BATCH, dtype=torch.float64)
    weight[2] = 0
    return torch.randn(BATCH, OBS, generator=generator, dtype=torch.float64), weight


def at(actor: Actor, row: Tensor, obs: Tensor) -> StochasticPolicy:
    parameters = dict(actor.named_parameters())
    pieces = unflatten_like(row, list(parameters.values()))
    policy: StochasticPolicy = functional_call(actor, dict(zip(parameters, pieces, strict=True)), (obs,))
    return policy


def written_out(actor: Actor, *, damping: float) -> Tensor:
    """Every column of the product."""
    obs, weight = policy_at()
    policy, parameters = actor(obs), list(actor.parameters())
    mean = (policy.detach().kl_divergence(policy) * weight).sum() / weight.sum()
    product = fisher_vector_product(mean, parameters, damping=damping)
    unit = torch.eye(sum(p.numel() for p in parameters), dtype=torch.float64)
    return torch.stack([product(column) for column in unit], dim=1)


@pytest.mark.parametrize("damping", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["gaussian", "discrete"])
def test_the_fisher_product_is_that_of_the_second_derivative_of_the_mean_divergence(kind: str, damping: float) -> None:
    actor, (obs, weight) = actor_of(kind), policy_at()
    before = actor(obs).detach()

    def kl_divergence(row: Tensor) -> Tensor:
        return (before.kl_divergence(at(actor, row, obs)) * weight).sum() / weight.sum()

    solution = written_out(actor, damping=damping)
    matrix = hessian(kl_divergence, flatten(list(actor.parameters())).detach())
    torch.testing.assert_close(solution, matrix + damping * torch.eye(len(matrix), dtype=torch.float64))
    assert float(matrix.abs().max()) > 0.1


def system(size: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    right = torch.randn(size, generator=generator, dtype=torch.float64)
    return root @ root.T / size + 0.5 * torch.eye(size, dtype=torch.float64), right


@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_as_many_iterations_as_unknowns_solve_the_system(size: int) -> None:
    matrix, right = system(size, seed=size)
    solution = conjugate_gradient(lambda v: matrix @ v, right, iterations=size, tolerance=0.0)
    np.testing.assert_allclose(solution.numpy(), np.linalg.solve(matrix.numpy(), right.numpy()), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_fewer_iterations_give_the_krylov_space_optimum(iterations: int) -> None:
    """In the norm of the matrix: the exact minimum over span(b, Ab, A²b, …), found by a direct solver."""
    matrix, right = (x.numpy() for x in system(8, seed=1))
    basis = np.stack([np.linalg.matrix_power(matrix, k) @ right for k in range(iterations)], 1) if iterations else None
    expected: NDArray[np.float64] = np.zeros(8)
    if basis is not None:
        expected = basis @ np.linalg.solve(basis.T @ matrix @ basis, basis.T @ right)
    matrix_tensor = torch.from_numpy(matrix)
    solution = conjugate_gradient(
        lambda v: matrix_tensor @ v, torch.from_numpy(right), iterations=iterations, tolerance=1e-10
    )
    np.testing.assert_allclose(solution.numpy(), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_iterations_after_convergence_change_nothing(dtype: torch.dtype) -> None:
    """A right side of two eigenvectors is solved in two steps; then all is rounding, and dividing by it would spoil."""
    diagonal = torch.tensor([4.0, 4.0, 0.5, 0.5, 9.0], dtype=dtype)
    right = torch.tensor([8.0, 4.0, 1.0, 1.0, 0.0], dtype=dtype)
    two, many = (conjugate_gradient(lambda v: diagonal * v, right, iterations=i, tolerance=1e-10) for i in (2, 50))
    assert torch.equal(two, many)
    torch.testing.assert_close(many, torch.tensor([2.0, 1.0, 2.0, 2.0, 0.0], dtype=dtype))


def test_zero_right_hand_side_gives_zero() -> None:
    assert conjugate_gradient(lambda v: 3 * v, torch.zeros(4), iterations=10, tolerance=1e-10).tolist() == [0, 0, 0, 0]


def test_it_stops_at_the_tolerance_of_the_squared_residual() -> None:
    matrix, right = system(8, seed=2)

    def solution(iterations: int, tolerance: float = 0.0) -> Tensor:
        return conjugate_gradient(lambda v: matrix @ v, right, iterations=iterations, tolerance=tolerance)

    size = [float((right - matrix @ solution(k)).square().sum()) for k in range(6)]
    between = (size[3] + size[2]) / 2
    assert size[3] < between < min(size[:3])
    assert torch.equal(solution(8, between), solution(3))


def test_flattening_and_unflattening_tensors_round_trip() -> None:
    parts = [torch.randn(2, 3), torch.randn(()), torch.randn(4), torch.randn(1, 1, 2)]
    row = flatten(parts)
    assert row.shape == (6 + 1 + 4 + 2,)
    assert row[:6].tolist() == parts[0].flatten().tolist()
    for piece, part in zip(unflatten_like(row, parts), parts, strict=True):
        assert torch.equal(piece, part)
    with pytest.raises(RuntimeError):
        unflatten_like(torch.zeros(12), parts)
