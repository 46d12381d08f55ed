"""Helpers of learners' tests: a batch in float64, its rows in numpy, and comparisons of networks."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbench.ops.types import Transition

OBS, ACTIONS, BATCH, WIDTHS = 3, 2, 5, (6, 4)
Array = NDArray[np.float64]
T = TypeVar("T")


class Row(NamedTuple):
    """One row of a batch, in numpy."""

    obs: Array
    action: Array
    reward: float
    discount: float
    next_obs: Array
    weight: float


def rows(b: Transition) -> list[Row]:
    return [Row(*row) for row in zip(*(numbers(column) for column in b[:6]), strict=True)]


def seeded(compute: Callable[[], T]) -> T:
    """The result of a computation that draws from torch's own generator."""
    torch.manual_seed(9)
    return compute()


def noise(*shape: int) -> Array:
    """The draws of such a computation."""
    return seeded(lambda: numbers(torch.randn(shape, dtype=torch.float64)))


def gradients(loss: Tensor, net: nn.Module) -> list[Tensor | None]:
    """The gradient of every parameter; None where the loss does not depend on it."""
    return list(torch.autograd.grad(loss, list(net.parameters()), allow_unused=True, retain_graph=True))


def same_parameters(one: nn.Module, other: nn.Module, **tolerance: float) -> None:
    torch.testing.assert_close(list(one.parameters()), list(other.parameters()), **tolerance)


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


def numbers(x: Tensor) -> Array:
    return np.array(x.detach().double().numpy())


def copied(nets: Mapping[str, nn.Module]) -> dict[str, list[Tensor]]:
    return {name: [p.detach().clone() for p in net.parameters()] for name, net in nets.items()}


def changes(nets: Mapping[str, nn.Module], before: Mapping[str, list[Tensor]]) -> set[str]:
    """Names of the networks of which any parameter is another than it was."""
    return {
        name
        for name, net in nets.items()
        if any(not torch.equal(a, b) for a, b in zip(net.parameters(), before[name], strict=True))
    }
