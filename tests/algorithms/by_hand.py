"""Networks and their losses in numpy, row by row, which share nothing with the code under test."""

from collections.abc import Callable

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from rlbench.nets.critics import Critics
from rlbench.ops.types import Transition
from tests.algorithms.recorded import BATCH, Array, numbers, rows


def through(x: Array, *nets: nn.Module) -> Array:
    """``x`` through all linear layers within ``nets``, with ReLU between them and nothing after the last."""
    linear = [layer for net in nets for layer in net.modules() if isinstance(layer, nn.Linear)]
    for depth, layer in enumerate(linear):
        x = numbers(layer.weight) @ x + numbers(layer.bias)
        x = np.maximum(x, 0) if depth < len(linear) - 1 else x
    return x


def q(critics: Critics, member: int, obs: Array, action: Array) -> float:
    x = np.concatenate([obs, action])
    for depth, layer in enumerate(critics.layers):
        x = x @ numbers(layer.weight[member]) + numbers(layer.bias[member, 0])
        x = np.maximum(x, 0) if depth < len(critics.layers) - 1 else x
    return float(x[0])


def values_of(critics: Critics, data: Transition) -> Array:
    """``[K, B]``: each member's value of each row's action."""
    return np.array([[q(critics, k, row.obs, row.action) for row in rows(data)] for k in range(critics.members)])


def log_normal(x: Array, mean: Array, std: Array) -> float:
    return float(stats.norm.logpdf(x, mean, std).sum())


def regressed(critics: Critics, data: Transition, targets: list[float]) -> tuple[float, Array]:
    """The critics' loss, each member's weighted mean summed, and every row's mean absolute error."""
    gaps = values_of(critics, data) - targets
    return float((numbers(data.weight) * gaps**2).sum()) / BATCH, np.abs(gaps).mean(0)


def derivative(loss: Callable[[], Tensor | float], parameter: Tensor, index: object, step: float = 1e-6) -> float:
    """The central difference of a loss in one element of a parameter."""
    at, losses = parameter[index].item(), []
    with torch.no_grad():
        for value in (at + step, at - step, at):
            parameter[index] = value
            losses.append(float(loss()))
    return (losses[0] - losses[1]) / (2 * step)
