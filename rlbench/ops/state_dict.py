"""The state of an object as a tree of tensors and plain values, and readers that check loaded values."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import ClassVar, Final, Protocol, TypeAlias, TypeVar, Union

import torch
from torch import Tensor

ValueT = TypeVar("ValueT")
State: TypeAlias = dict[str, Union[Tensor, int, float, str, "State"]]

SEPARATOR: Final = "/"
"""Separator of the keys of nested states in the name of a value in a checkpoint."""

MOMENTS: Final = {torch.optim.Adam: ("exp_avg", "exp_avg_sq"), torch.optim.RMSprop: ("square_avg",)}
"""Moments of each parameter that an optimizer keeps beside its count of steps."""


class Stateful(Protocol):
    """Interface of an object whose state a checkpoint must contain for an exact resume."""

    def state_dict(self) -> State:
        """Return the current state; its tensors may be shared with the object, so write it before the next step."""

    def load_state_dict(self, state: State) -> None:
        """Load a state in place, so that compiled and captured code keeps its addresses."""


Part: TypeAlias = Union[torch.nn.Module, torch.optim.Optimizer, torch.Generator, Tensor, Stateful, "Parts"]
Parts: TypeAlias = Mapping[str, Part]
"""The parts of an object, each under its name in a checkpoint."""


class Composite:
    """An object whose state consists of its parts' states."""

    saved: ClassVar[tuple[str, ...]]
    """The attributes that a checkpoint stores, each under its own name."""

    @property
    def parts(self) -> Parts:
        """Everything that a checkpoint stores of it."""
        return {name: getattr(self, name) for name in self.saved}

    def state_dict(self) -> State:
        """The state of every part; tensors are shared with the object."""
        return parts_state(self.parts)

    def load_state_dict(self, state: State) -> None:
        """Load every part, in place."""
        load_parts(self.parts, state)


def tensor(state: State, key: str, like: Tensor | None = None) -> Tensor:
    """The tensor ``[...]`` at ``key``.

    Raises:
        TypeError: it is not a tensor, or has another shape or type than ``like``.
    """
    value = _read(state, key, Tensor, "a tensor")
    if like is not None and (value.shape, value.dtype) != (like.shape, like.dtype):
        raise TypeError(f"{key}: expected {like.dtype} {tuple(like.shape)}, found {value.dtype} {tuple(value.shape)}")
    return value


def integer(state: State, key: str, least: int = 0) -> int:
    """The whole number at ``key``.

    Raises:
        TypeError: it is not a whole number from ``least`` to 2⁵³.
    """
    value = _read(state, key, int, "a whole number")
    if isinstance(value, bool) or not least <= value <= 2**53:
        raise TypeError(f"{key}: expected a whole number from {least} on")
    return value


def number(state: State, key: str, least: float = -sys.float_info.max, most: float = sys.float_info.max) -> float:
    """The number at ``key``.

    Raises:
        TypeError: it is not a number from ``least`` to ``most``.
    """
    value = _read(state, key, (int, float), "a number")
    if not least <= value <= most:
        raise TypeError(f"{key}: expected a number from {least:g} to {most:g}")
    return value


def subtree(state: State, key: str) -> State:
    """The subtree at ``key``; an empty one is not written and reads back as empty.

    Raises:
        TypeError: it is not a tree.
    """
    return _read(state, key, dict, "a tree") if key in state else {}


def _read(state: State, key: str, kind: type[ValueT] | tuple[type[ValueT], ...], noun: str) -> ValueT:
    value = state[key]
    if not isinstance(value, kind):
        raise TypeError(f"{key}: expected {noun}, found {type(value).__name__}")
    return value


def tensors(state: State) -> dict[str, Tensor]:
    """A tree that is all tensors ``[...]``, one level deep.

    Raises:
        TypeError: a value is not a tensor.
    """
    return {key: tensor(state, key) for key in state}


def module_state(module: torch.nn.Module) -> State:
    """Parameters and buffers of a network by name."""
    return dict(module.state_dict())


def load_module(module: torch.nn.Module, state: State) -> None:
    """Load parameters and buffers in place; a missing or extra name is an error."""
    module.load_state_dict(tensors(state))


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """The state of an optimizer (moments, counts); its settings come from the Spec."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return {
        f"{i}.{key}": value if isinstance(value, Tensor) else torch.tensor(value)
        for i, parameter in enumerate(parameters)
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Restore the state of an optimizer, in place.

    Raises:
        TypeError: a count or a moment is missing, or has another shape or type, which a fused kernel does not check.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state.clear()
    for name, value in tensors(state).items():
        i, _, key = name.partition(".")
        parameter = parameters[int(i)]
        expected = (torch.float32, ()) if key == "step" else (parameter.dtype, parameter.shape)
        if type(optimizer) in MOMENTS and (value.dtype, value.shape) != expected:
            raise TypeError(f"{name}: has another shape or type than its parameter")
        like = parameter if value.shape == parameter.shape else value  # moments lie in memory as their parameter does
        moment = torch.empty_like(like, dtype=value.dtype, device=parameter.device)
        optimizer.state[parameter][key] = moment.copy_(value)
    names = {"step", *MOMENTS[type(optimizer)]} if type(optimizer) in MOMENTS else set[str]()
    if any(not names <= moments.keys() for moments in optimizer.state.values()):
        raise TypeError("a moment of an optimizer is missing")


def parts_state(parts: Parts) -> State:
    """The state of each part under its name: a branch, or the tensor of a tensor and of a generator."""
    return {name: _part_state(part) for name, part in parts.items()}


def load_parts(parts: Parts, state: State) -> None:
    """Load every part in place."""
    for name, part in parts.items():
        match part:
            case torch.nn.Module():
                load_module(part, subtree(state, name))
            case torch.optim.Optimizer():
                load_optimizer(part, subtree(state, name))
            case torch.Generator():
                part.set_state(tensor(state, name))
            case Tensor():
                part.detach().copy_(tensor(state, name))
            case Mapping():
                load_parts(part, subtree(state, name))
            case _:
                part.load_state_dict(subtree(state, name))


def _part_state(part: Part) -> State | Tensor:
    match part:
        case torch.nn.Module():
            return module_state(part)
        case torch.optim.Optimizer():
            return optimizer_state(part)
        case torch.Generator():
            return part.get_state()
        case Tensor():
            return part
        case Mapping():
            return parts_state(part)
        case _:
            return part.state_dict()
