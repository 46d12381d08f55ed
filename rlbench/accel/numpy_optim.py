"""Adam and RMSprop on one flat row of numbers, which is copied from the torch optimizer and back.

What an optimizer has gathered stays its own, in its own form: a run may go on with or without this.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import torch
from torch import Tensor

from rlbench.accel.numpy_mlp import Stack, numbers
from rlbench.algorithms.steps import fused_adam


class NumpyOptimizer:
    """Parameters, slopes and moments of one optimizer in flat rows, each moved as the optimizer would."""

    def __init__(self, stack: Stack, optimizer: torch.optim.Optimizer, *, max_norm: float | None) -> None:
        self.optimizer, self.max_norm, self.adam = optimizer, max_norm, isinstance(optimizer, torch.optim.Adam)
        self.names = ("exp_avg", "exp_avg_sq") if self.adam else ("square_avg",)
        rows = [np.zeros(stack.size, np.float32) for _ in range(2 + len(self.names))]
        self.row, self.gradient = rows[:2]
        self._rows, self._gradients, *self._moments = [[torch.from_numpy(row)] for row in rows]
        self._steps = torch.zeros(())
        self._places = stack.views(self.row)
        self._held = [stack.views(row) for row in rows[2:]]

    def begin(self) -> None:
        """Take parameters and moments over."""
        for parameter, place in self._places:
            place[...] = numbers(parameter)
        for name, held in zip(self.names, self._held, strict=True):
            for parameter, place in held:
                state = self.optimizer.state[parameter]
                if not state:
                    self._first(parameter)
                place[...] = numbers(state[name])
        self._steps.copy_(self.optimizer.state[self._places[0][0]]["step"])

    def step(self) -> None:
        """Down the slope, whose length is cut first."""
        if self.max_norm is not None:
            length = sqrt(float(self.gradient @ self.gradient))
            if length + 1e-6 > self.max_norm:
                self.gradient *= np.float32(self.max_norm / (length + 1e-6))
        if self.adam:
            mean, square = self._moments
            fused_adam(self.optimizer, self._rows, self._gradients, mean, square, [self._steps])
        else:
            self._steps += 1
            self._rmsprop()

    def _rmsprop(self) -> None:
        group, ((square,),) = self.optimizer.param_groups[0], self._moments
        (row,), (slope,) = self._rows, self._gradients
        square.mul_(group["alpha"]).addcmul_(slope, slope, value=1 - group["alpha"])
        row.addcdiv_(slope, square.sqrt().add_(group["eps"]), value=-group["lr"])

    def end(self) -> None:
        """Give them back, in place."""
        for parameter, place in self._places:
            numbers(parameter)[...] = place
        for name, held in zip(self.names, self._held, strict=True):
            for parameter, place in held:
                numbers(self.optimizer.state[parameter][name])[...] = place
        for parameter, _ in self._places:
            self.optimizer.state[parameter]["step"].copy_(self._steps)

    def _first(self, parameter: Tensor) -> None:
        """What the optimizer itself would write down at its first step."""
        state = self.optimizer.state[parameter]
        state["step"] = torch.zeros((), dtype=torch.float32)
        for name in self.names:
            state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
