"""Many rows through small layers on a processor: in parts, which are still in its cache when the next layer reads them.

A product of 8,000 × 256 by 256 × 256 runs at three quarters of the speed of one of 1,000 rows, and what lies between
products (ReLU, its slope, sums) then waits for memory. The numbers are the same but for the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction, once_differentiable

PART: Final = 1_024
"""Rows of a part: with 256 numbers each a megabyte a layer."""

MANY: Final = 4 * PART
"""Rows from which parts are worth their overhead."""


def worth_parting(rows: Tensor) -> bool:
    """Whether ``rows`` ``[B, F]`` are many, on a processor, and no slope of theirs is asked for."""
    wanted = torch.is_grad_enabled() and rows.requires_grad
    return len(rows) >= MANY and rows.device.type == "cpu" and not wanted and not torch.compiler.is_compiling()


class Parted(torch.autograd.Function):
    """K networks of ReLU layers on the same rows, ``[B, F]`` to ``[K, B, out]``.

    Of each layer its weight ``[K, in, out]`` and its bias ``[K, 1, out]``; slopes are theirs alone, once.
    """

    @staticmethod
    def forward(ctx: BackwardCFunction, rows: Tensor, *layers: Tensor) -> Tensor:
        """``[B, F]`` to ``[K, B, out]``: every layer of a part before the next part."""
        weights, biases = layers[::2], layers[1::2]
        found = [rows.new_empty(len(weight), len(rows), weight.shape[2]) for weight in weights]
        for part in _parts(len(rows)):
            for k in range(len(weights[0])):
                x = rows[part]
                for weight, bias, out in zip(weights, biases, found, strict=True):
                    x = torch.addmm(bias[k], x, weight[k], out=out[k, part])
                    if out is not found[-1]:
                        x.relu_()
        ctx.save_for_backward(rows, *found[:-1], *weights)
        return found[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: BackwardCFunction, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Of the slopes of the outputs, ``[K, B, out]``, those of every weight and bias."""
        saved: tuple[Tensor, ...] = ctx.saved_tensors
        depth = len(saved) // 2
        rows, inner, weights = saved[0], saved[1:depth], saved[depth:]
        slopes = [(torch.zeros_like(weight), torch.zeros_like(weight[:, :1])) for weight in weights]
        for part in _parts(len(rows)):
            for k in range(len(slope)):
                pull = slope[k, part]
                for i in reversed(range(depth)):
                    x = inner[i - 1][k, part] if i else rows[part]
                    of_weight, of_bias = slopes[i]
                    of_weight[k] += x.T @ pull
                    of_bias[k] += pull.sum(0)
                    if i:
                        pull = torch.ops.aten.threshold_backward(pull @ weights[i][k].T, x, 0)
        return None, *(one for both in slopes for one in both)


in_parts: Callable[..., Tensor] = Parted.apply
"""``Parted`` of rows and layers."""


def _parts(rows: int) -> Iterator[slice]:
    for start in range(0, rows, PART):
        yield slice(start, start + PART)
