"""Sums of update records, kept on the device and read once an epoch."""

from __future__ import annotations

from operator import attrgetter

import torch
from torch import Tensor

from rlbench.ops.state_dict import State, tensor, whole


class Metrics:
    """Means of named 0-d tensors over the updates of an epoch."""

    def __init__(self, names: tuple[str, ...], device: torch.device) -> None:
        self.names, self.count = names, 0
        self.sums = torch.zeros(len(names), dtype=torch.float64, device=device)

    def add(self, report: object) -> None:
        """One update's record; its fields of these names are 0-d tensors, ``learned.loss`` of a record within."""
        values: list[Tensor] = [attrgetter(name)(report) for name in self.names]
        self.sums += torch.stack(values)
        self.count += 1

    def take(self) -> tuple[int, tuple[float, ...]]:
        """How many updates, and their means; then begin anew. Waits for the device."""
        count, sums = self.count, self.sums.tolist()
        self.count = 0
        self.sums.zero_()
        return count, tuple(s / max(count, 1) for s in sums)

    def state_dict(self) -> State:
        """Sums and count."""
        return {"sums": self.sums, "count": self.count}

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        self.sums.copy_(tensor(state, "sums"))
        self.count = whole(state, "count")
