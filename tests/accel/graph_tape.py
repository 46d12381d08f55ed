"""A CUDA graph on the host: operations on fixed tensors that are recorded and replayed without Python.

As on a GPU, recording changes nothing: what it wrote is put back. A replay carries the same operations out on the same
memory, so a number that was read while recording, a tensor that was exchanged for another or a count that Python kept
stays what it was, and shows. What a GPU could not record is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2", "is_nonzero", "equal"}
"""Operations whose result, or its shape, the host must know."""


class RecordingError(RuntimeError):
    """An operation that no graph can hold."""


class Operations(TorchDispatchMode):
    """Everything that was done, in order, and what memory looked like before it was first written."""

    def __init__(self, *, checked: bool) -> None:
        super().__init__()
        self.done: list[tuple[Any, Sequence[Any], Mapping[str, Any], list[Any]]] = []
        self.before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self.own: set[int] = set()
        self.checked = checked  # whether the host may look at numbers to check them, as it does on a host alone

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in WAITS and not (self.checked and name == "_local_scalar_dense"):
            raise RecordingError(f"{func}: the host would wait for the device")
        if name in {"index", "index_put", "index_put_"} and any(
            x.dtype == torch.bool for x in tree_leaves(args[1]) if x is not None
        ):
            raise RecordingError(f"{func}: its shape would depend on a mask")
        if name in {"lift_fresh", "lift_fresh_copy"}:
            raise RecordingError(f"{func}: numbers of the host would be copied to the device")
        for argument, operand in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._keep(operand)
        result = func(*args, **kwargs)
        operand = {_place(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        self.own |= {_place(x) for x in tree_leaves(result) if isinstance(x, Tensor)} - operand - set(self.before)
        self.done.append((func, args, kwargs, tree_leaves(result)))
        return result

    def _keep(self, output: Any) -> None:
        for x in tree_leaves(output):
            place = _place(x)
            if place not in self.own and place not in self.before:
                storage = x.untyped_storage()
                self.before[place] = storage, storage.clone()


class Graph:
    """Recorded operations."""

    def __init__(self, operations: Operations) -> None:
        self.done = operations.done

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, result in self.done:
            for old, new in zip(result, tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                    old.detach().copy_(new)


class GraphRecorder:
    """A recorder; ``generators`` are put back after recording, as a GPU's stay unchanged."""

    def __init__(self, generators: Sequence[torch.Generator], *, checked: bool = False) -> None:
        self.generators, self.checked = generators, checked
        self.graphs: list[Graph] = []
        self.eager = 0

    def run_eagerly(self, work: Callable[[], None]) -> None:
        self.eager += 1
        work()

    def record(self, work: Callable[[], None]) -> Graph:
        streams = [generator.get_state() for generator in self.generators]
        operations = Operations(checked=self.checked)
        try:
            with operations:
                work()
        finally:
            for storage, old in operations.before.values():
                storage.copy_(old)
            for generator, stream in zip(self.generators, streams, strict=True):
                generator.set_state(stream)
        self.graphs.append(Graph(operations))
        return self.graphs[-1]


def _place(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)
