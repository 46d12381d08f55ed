"""The state of an object as a tree of tensors and plain values, and the readers that check what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias, Union

import torch
from torch import Tensor

State: TypeAlias = dict[str, Union[Tensor, int, float, str, "State"]]


class Stateful(Protocol):
    """Anything whose state must survive for a run to go on as if it had never stopped."""

    def state_dict(self) -> State:
        """The state now; tensors may be shared with the object, so write it out before going on."""

    def load_state_dict(self, state: State) -> None:
        """Take over a state; in place, so that compiled and captured code keeps its addresses."""


Parts: TypeAlias = Mapping[str, torch.nn.Module | torch.optim.Optimizer | Stateful]
"""What an object is made of, each part under the name by which a checkpoint knows it."""


def tensor(state: State, key: str) -> Tensor:
    """The tensor ``[...]`` at ``key``.

    Raises:
        TypeError: it is none.
    """
    value = state[key]
    if not isinstance(value, Tensor):
        raise TypeError(f"{key}: expected a tensor, found {type(value).__name__}")
    return value


def whole(state: State, key: str) -> int:
    """The whole number at ``key``.

    Raises:
        TypeError: it is none.
    """
    value = state[key]
    if not isinstance(value, int):
        raise TypeError(f"{key}: expected a whole number, found {type(value).__name__}")
    return value


def number(state: State, key: str) -> float:
    """The number at ``key``.

    Raises:
        TypeError: it is none.
    """
    value = state[key]
    if not isinstance(value, int | float):
        raise TypeError(f"{key}: expected a number, found {type(value).__name__}")
    return value


def branch(state: State, key: str) -> State:
    """The subtree at ``key``; an empty one is not written and reads back as empty.

    Raises:
        TypeError: it is none.
    """
    value = state.get(key, {})
    if not isinstance(value, dict):
        raise TypeError(f"{key}: expected a tree, found {type(value).__name__}")
    return value


def tensors(state: State) -> dict[str, Tensor]:
    """A tree that is all tensors ``[...]``, one level deep.

    Raises:
        TypeError: one is none.
    """
    return {key: tensor(state, key) for key in state}


def of_module(module: torch.nn.Module) -> State:
    """Parameters and buffers of a network by name."""
    return dict(module.state_dict())


def into_module(module: torch.nn.Module, state: State) -> None:
    """Put parameters and buffers back, in place; a missing or extra name is an error."""
    module.load_state_dict(tensors(state))


def of_optimizer(optimizer: torch.optim.Optimizer) -> State:
    """What an optimizer has gathered (moments, counts); its settings are the Spec's."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return {
        f"{i}.{key}": value if isinstance(value, Tensor) else torch.tensor(value)
        for i, parameter in enumerate(parameters)
        for key, value in optimizer.state[parameter].items()
    }


def into_optimizer(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Give an optimizer back what it had gathered."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state.clear()
    for name, value in tensors(state).items():
        i, _, key = name.partition(".")
        parameter = parameters[int(i)]
        like = parameter if value.shape == parameter.shape else value  # moments lie in memory as their parameter does
        optimizer.state[parameter][key] = torch.empty_like(like, dtype=value.dtype, device=parameter.device).copy_(
            value
        )


def of_parts(parts: Parts) -> State:
    """A branch for each part: a network, what an optimizer has gathered, or what has a state of its own."""
    return {name: _of(part) for name, part in parts.items()}


def into_parts(parts: Parts, state: State) -> None:
    """Put all of it back, in place."""
    for name, part in parts.items():
        match part:
            case torch.nn.Module():
                into_module(part, branch(state, name))
            case torch.optim.Optimizer():
                into_optimizer(part, branch(state, name))
            case _:
                part.load_state_dict(branch(state, name))


def _of(part: torch.nn.Module | torch.optim.Optimizer | Stateful) -> State:
    match part:
        case torch.nn.Module():
            return of_module(part)
        case torch.optim.Optimizer():
            return of_optimizer(part)
        case _:
            return part.state_dict()
