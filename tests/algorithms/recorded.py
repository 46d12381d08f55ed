"""Helpers of offline learners' tests: a batch in float64, and networks computed in numpy."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from rlbench.nets.critics import Critics
from rlbench.ops.types import Transition

OBS, ACTIONS, BATCH, WIDTHS = 3, 2, 5, (6, 4)
Array = NDArray[np.float64]


def batch() -> Transition:
    draw = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    return Transition(
        obs=normal(BATCH, OBS),
        action=normal(BATCH, ACTIONS).tanh(),
        reward=normal(BATCH),
        discount=torch.tensor([0.99, 0.99, 0.0, 0.9801, 0.99], dtype=torch.float64),
        next_obs=normal(BATCH, OBS),
        weight=torch.tensor([1.0, 0.5, 1.0, 2.0, 0.0], dtype=torch.float64),
        slot=torch.arange(BATCH),
    )


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=1e-3)


def spread(*nets: nn.Module) -> None:
    """Biases and all are made different, so that no mix-up of networks goes unseen."""
    with torch.no_grad():
        for net in nets:
            for parameter in net.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))


def numbers(x: Tensor) -> Array:
    return np.array(x.detach().double().numpy())


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


def log_normal(x: Array, mean: Array, std: Array) -> float:
    return float(stats.norm.logpdf(x, mean, std).sum())


def regressed(critics: Critics, data: Transition, targets: list[float]) -> tuple[float, Array]:
    """The critics' loss, each member's weighted mean summed, and every row's mean absolute error."""
    total, errors = 0.0, np.zeros(BATCH)
    for i in range(BATCH):
        for k in range(critics.members):
            gap = q(critics, k, numbers(data.obs[i]), numbers(data.action[i])) - targets[i]
            total += float(data.weight[i]) * gap**2 / BATCH
            errors[i] += abs(gap) / critics.members
    return total, errors


def copied(nets: Mapping[str, nn.Module]) -> dict[str, list[Tensor]]:
    return {name: [p.detach().clone() for p in net.parameters()] for name, net in nets.items()}


def changes(nets: Mapping[str, nn.Module], before: Mapping[str, list[Tensor]]) -> set[str]:
    """Names of the networks of which any parameter is another than it was."""
    return {
        name
        for name, net in nets.items()
        if any(not torch.equal(a, b) for a, b in zip(net.parameters(), before[name], strict=True))
    }
