"""Cost as the number of elements that operations touch."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Touched(TorchDispatchMode):
    """Counts the elements of everything that operations make or, if ``writes``, change; a view is free."""

    def __init__(self, *, writes: bool = True) -> None:
        super().__init__()
        self.writes, self.elements = writes, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        storages = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            fresh = isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in storages
            if fresh or (self.writes and func._schema.is_mutable):
                self.elements += tensor.numel()
        return out
