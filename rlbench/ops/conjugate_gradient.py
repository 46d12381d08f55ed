"""Natural gradients: Fisher-vector products, conjugate gradient, and parameters as one flat vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def flatten(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate all elements of some tensors, ``[P]``."""
    return torch.cat([part.reshape(-1) for part in parts])


def unflatten_like(row: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Split ``[P]`` into tensors ``[...]`` with the shapes of ``like``."""
    pieces = torch.split(row, [part.numel() for part in like])
    return [piece.view_as(part) for piece, part in zip(pieces, like, strict=True)]


def fisher_vector_product(
    divergence: Tensor, parameters: Sequence[Tensor], *, damping: float
) -> Callable[[Tensor], Tensor]:
    """``v → (F + damping · I) v``, both ``[P]``, of the mean ``divergence`` ``[]`` from a policy to itself.

    F is its second derivative there, the Fisher information; it is never written out (Pearlmutter 1994).
    """
    gradient = flatten(torch.autograd.grad(divergence, parameters, create_graph=True))

    def product(vector: Tensor) -> Tensor:
        directional = (gradient * vector).sum()
        return flatten(torch.autograd.grad(directional, parameters, retain_graph=True)) + damping * vector

    return product


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], right: Tensor, *, iterations: int, tolerance: float
) -> Tensor:
    """``x`` with ``product(x) ≈ right``, both ``[P]``, by conjugate gradient (Hestenes and Stiefel 1952).

    The number of iterations is fixed; after the squared residual falls below ``tolerance`` they change nothing.
    """
    x, residual, direction = torch.zeros_like(right), right.clone(), right.clone()
    square = residual @ residual
    for _ in range(iterations):
        image = product(direction)
        active = (square >= tolerance).to(square.dtype)
        step = active * square / (direction @ image).clamp_min(torch.finfo(square.dtype).tiny)
        x = x + step * direction
        residual = residual - step * image
        new_square = residual @ residual
        beta = active * new_square / square.clamp_min(torch.finfo(square.dtype).tiny)
        direction = torch.where(active > 0, residual + beta * direction, direction)
        square = torch.where(active > 0, new_square, square)
    return x
