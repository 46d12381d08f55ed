"""MLPs on many rows on a CPU, computed in chunks that stay in its cache from one layer to the next.

A product of 8,000 × 256 by 256 × 256 runs at three quarters of the speed of one of 1,000 rows, and the
operations between products (ReLU, its gradient, sums) then wait for memory. Results differ only by the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction, once_differentiable

CHUNK: Final = 1_024  # rows of a chunk: with 256 units each, a megabyte per layer

MIN_ROWS: Final = 4 * CHUNK  # number of rows from which chunks gain more than they cost


def pays_to_chunk(rows: Tensor) -> bool:
    """True if ``rows`` ``[B, F]`` are many, on a CPU, and need no gradient."""
    needs_gradient = torch.is_grad_enabled() and rows.requires_grad
    return (
        len(rows) >= MIN_ROWS and rows.device.type == "cpu" and not needs_gradient and not torch.compiler.is_compiling()
    )


class ChunkedMLP(torch.autograd.Function):
    """K networks of ReLU layers on the same rows, ``[B, F]`` to ``[K, B, out]``.

    Layers are weights ``[K, in, out]`` and biases ``[K, 1, out]``; only they get gradients, and of the first order.
    """

    @staticmethod
    def forward(ctx: BackwardCFunction, rows: Tensor, *layers: Tensor) -> Tensor:
        """``[B, F]`` to ``[K, B, out]``: all layers of a chunk before the next chunk."""
        weights, biases = layers[::2], layers[1::2]
        outputs = [rows.new_empty(len(weight), len(rows), weight.shape[2]) for weight in weights]
        for chunk in _chunks(len(rows)):
            for k in range(len(weights[0])):
                x = rows[chunk]
                for weight, bias, out in zip(weights, biases, outputs, strict=True):
                    x = torch.addmm(bias[k], x, weight[k], out=out[k, chunk])
                    if out is not outputs[-1]:
                        x.relu_()
        ctx.save_for_backward(rows, *outputs[:-1], *weights)
        return outputs[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: BackwardCFunction, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of every weight and bias from those of the outputs, ``[K, B, out]``."""
        tensors: tuple[Tensor, ...] = ctx.saved_tensors
        depth = len(tensors) // 2
        rows, hidden, weights = tensors[0], tensors[1:depth], tensors[depth:]
        gradients = [(torch.zeros_like(weight), torch.zeros_like(weight[:, :1])) for weight in weights]
        for chunk in _chunks(len(rows)):
            for k in range(len(gradient)):
                delta = gradient[k, chunk]
                for i in reversed(range(depth)):
                    x = hidden[i - 1][k, chunk] if i else rows[chunk]
                    weight_gradient, bias_gradient = gradients[i]
                    weight_gradient[k] += x.T @ delta
                    bias_gradient[k] += delta.sum(0)
                    if i:
                        delta = torch.ops.aten.threshold_backward(delta @ weights[i][k].T, x, 0)
        return None, *(one for both in gradients for one in both)


apply_chunked: Callable[..., Tensor] = ChunkedMLP.apply
"""``ChunkedMLP`` of rows and layers."""


def _chunks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, CHUNK):
        yield slice(start, start + CHUNK)
