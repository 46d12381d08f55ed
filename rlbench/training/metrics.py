"""Sums of the metrics of gradient steps, kept on the device and read once an epoch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlbench.ops.state_dict import State, branch, tensor, whole
from rlbench.records.types import Updated


class MeanMetrics:
    """Means of named metrics over the gradient steps of an epoch; their names are those of the first step."""

    def __init__(self, device: torch.device) -> None:
        self.names, self.count = tuple[str, ...](), 0
        self.sums = torch.zeros(0, dtype=torch.float64, device=device)

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """Add the metrics of one update, each ``[]``."""
        if not self.names:
            self.names = tuple(sorted(metrics))
            self.sums = self.sums.new_zeros(len(metrics))
        self.sums += torch.stack([metrics[name] for name in self.names])
        self.count += 1

    def take(self, steps: int = 1) -> Updated | None:
        """Means since the last call, of updates of ``steps`` gradient steps; None after none. Waits for the device."""
        count, sums = self.count, self.sums.tolist()
        self.count = 0
        self.sums.zero_()
        means = {name: total / count for name, total in zip(self.names, sums, strict=True)} if count else {}
        return Updated(count=count * steps, means=means) if count else None

    def state_dict(self) -> State:
        """Sums by name, and count."""
        return {"sums": dict(zip(self.names, self.sums.unbind(), strict=True)), "count": self.count}

    def load_state_dict(self, state: State) -> None:
        """Restore sums and count."""
        sums = branch(state, "sums")
        self.names, self.count = tuple(sorted(sums)), whole(state, "count")
        self.sums = self.sums.new_zeros(len(self.names))
        for place, name in zip(self.sums.unbind(), self.names, strict=True):
            place.copy_(tensor(sums, name))
