"""Helpers of all learners' contract tests: comparison of states, and properties of every learner."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from rlbench.algorithms.base import Periodic
from rlbench.envs.base import Discrete, EnvInfo
from rlbench.ops.state_dict import State, Stateful
from rlbench.ops.types import Transition

LearnerT = TypeVar("LearnerT", bound=Stateful)
BatchT = TypeVar("BatchT")


class Cyclic(Protocol):
    """A learner whose updates differ within a cycle."""

    @property
    def cycle_length(self) -> int: ...

    @property
    def periodic_actions(self) -> tuple[Periodic, ...]: ...

    def update(self, batch: Transition, phase: int = 0) -> object: ...


def leaves(state: State, prefix: str = "") -> dict[str, Tensor]:
    """Every tensor of a state, copied, by its path."""
    tensors = {}
    for key, value in state.items():
        if isinstance(value, dict):
            tensors |= leaves(value, f"{prefix}{key}/")
        elif isinstance(value, Tensor):
            tensors[prefix + key] = value.detach().clone()
    return tensors


def alike(one: Stateful, other: Stateful) -> None:
    """Both hold the same, to the bit."""
    ours, theirs = leaves(one.state_dict()), leaves(other.state_dict())
    assert set(ours) == set(theirs)
    assert [name for name, value in ours.items() if not torch.equal(value, theirs[name])] == []


def due(learner: Cyclic, number: int = 0) -> None:
    """Everything that is due after update ``number``."""
    for periodic in learner.periodic_actions:
        if (number + 1) % periodic.period == 0:
            periodic.action()


def cycled(learner: Cyclic, batch: Transition) -> None:
    """One whole cycle of updates and everything that is due at any time."""
    for phase in range(learner.cycle_length):
        learner.update(batch, phase)
    for periodic in learner.periodic_actions:
        periodic.action()


def goes_on(one: LearnerT, other: LearnerT, update: Callable[[LearnerT, int], object]) -> None:
    """``other`` takes the state over; it does and reports as ``one`` does in the updates that follow."""
    other.load_state_dict(one.state_dict())
    for seed in range(2):
        reports = []
        for learner in (one, other):
            torch.manual_seed(seed)
            reports.append(update(learner, seed))
        torch.testing.assert_close(*reports, rtol=0, atol=0)
    alike(one, other)


def drawn_from_their_seed(construct: Callable[[int], Stateful]) -> None:
    """Equal seeds draw equal networks, others do not."""
    first, again, other = (leaves(construct(seed).state_dict()) for seed in (0, 0, 1))
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not all(torch.equal(value, other[name]) for name, value in first.items())


def check_actions(action: Tensor, info: EnvInfo, count: int) -> None:
    """Of ``count`` observations: of the right type and shape, discrete ones in their range, without gradient."""
    assert not action.requires_grad
    if isinstance(info.actions, Discrete):
        assert (action.dtype, action.shape) == (torch.int64, (count,))
        assert 0 <= int(action.min()) <= int(action.max()) < info.actions.n
    else:
        assert (action.dtype, action.shape) == (torch.float32, (count, *info.actions.low.shape))


def compiles_whole(loss: Callable[[BatchT], Tensor], net: nn.Module, batch: BatchT, backend: str = "eager") -> None:
    """A loss compiles without a break, to the same value and the same gradients."""
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    values = []
    for function in (compiled, loss):
        torch.manual_seed(4)
        values.append(function(batch))
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(x, list(net.parameters()), allow_unused=True) for x in values))
