"""Small networks and their optimizers in numpy: layers, heads, Adam and RMSprop on one flat row of numbers.

The state of an optimizer stays its own, in its own form: a run resumes with or without this.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbench.algorithms.steps import fused_adam
from rlbench.ops.action_distributions import LOG_SQRT_2PI

Row: TypeAlias = NDArray[np.float32]


class Layer(NamedTuple):
    """The position of one layer of all networks in a flat row."""

    start: int
    shape: tuple[int, int, int]  # K, inputs + 1, outputs

    @property
    def stop(self) -> int:
        """The end of the layer, and the start of the next."""
        return self.start + prod(self.shape)

    def view(self, row: Row) -> Row:
        """``[K, inputs + 1, outputs]``, a view."""
        return row[self.start : self.stop].reshape(self.shape)


class Activations(NamedTuple):
    """Buffers of activations for one batch size, allocated once."""

    inputs: list[Row]  # per layer what it reads, [K, B, inputs + 1]; of the first [B, inputs + 1]
    sums: list[Row]  # per layer what it gives, [K, B, outputs]
    deltas: list[Row]  # gradients of the same


class NumpyMLPs:
    """K networks of layers with ``tanh`` or ``relu`` between them, and ``extra`` parameters after them."""

    def __init__(
        self, nets: Sequence[Sequence[nn.Linear]], *, activation: type[nn.Module], extra: Sequence[Tensor]
    ) -> None:
        self.nets, self.extra, self.is_tanh = nets, extra, activation is nn.Tanh
        self.layers: list[Layer] = []
        start = 0
        for layers in zip(*nets, strict=True):
            shape = (len(nets), layers[0].in_features + 1, max(layer.out_features for layer in layers))
            self.layers.append(Layer(start, shape))
            start = self.layers[-1].stop
        self.extra_start = start
        self.size = start + sum(tensor.numel() for tensor in extra)
        self._activations_by_batch: dict[int, Activations] = {}

    def views(self, row: Row) -> list[tuple[Tensor, Row]]:
        """Every parameter, and its view of ``row`` ``[size]`` in the parameter's shape."""
        views_of_parameters: list[tuple[Tensor, Row]] = []
        for k, net in enumerate(self.nets):
            for position, layer in zip(self.layers, net, strict=True):
                block = position.view(row)[k, :, : layer.out_features]
                views_of_parameters += [(layer.weight, block[:-1].T), (layer.bias, block[-1])]
        start = self.extra_start
        for tensor in self.extra:
            views_of_parameters.append((tensor, row[start : start + tensor.numel()].reshape(tuple(tensor.shape))))
            start += tensor.numel()
        return views_of_parameters

    def forward(self, row: Row, x: Row) -> Row:
        """``[B, inputs + 1]``, whose last column is 1, to ``[K, B, outputs]``; overwritten by the next call."""
        buffers = self._activations(len(x))
        buffers.inputs[0] = x
        for i, layer in enumerate(self.layers):
            np.matmul(buffers.inputs[i], layer.view(row), out=buffers.sums[i])
            if i + 1 < len(self.layers):
                hidden = buffers.inputs[i + 1][:, :, :-1]
                if self.is_tanh:
                    np.tanh(buffers.sums[i], out=hidden)
                else:
                    np.maximum(buffers.sums[i], 0, out=hidden)
        return buffers.sums[-1]

    def backward(self, row: Row, output_gradient: Row, gradient: Row) -> None:
        """Write the last ``forward``'s ``gradient``, for output gradients ``output_gradient`` ``[K, B, outputs]``."""
        buffers = self._activations(output_gradient.shape[1])
        for i in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[i]
            np.matmul(buffers.inputs[i].swapaxes(-1, -2), output_gradient, out=layer.view(gradient))
            if i == 0:
                return
            input_gradient, hidden = buffers.deltas[i - 1], buffers.inputs[i][:, :, :-1]
            np.matmul(output_gradient, layer.view(row)[:, :-1].swapaxes(1, 2), out=input_gradient)
            derivative = buffers.sums[i - 1]  # no longer needed
            if self.is_tanh:
                np.multiply(hidden, hidden, out=derivative)
                np.subtract(1, derivative, out=derivative)
            else:
                np.greater(hidden, 0, out=derivative)
            input_gradient *= derivative
            output_gradient = input_gradient

    def _activations(self, batch: int) -> Activations:
        if batch not in self._activations_by_batch:
            shapes = [(k, batch, outputs) for k, _, outputs in (layer.shape for layer in self.layers)]
            inputs = [np.ones((k, batch, outputs + 1), np.float32) for k, _, outputs in shapes[:-1]]
            empty = [np.empty(0, np.float32), *inputs]
            self._activations_by_batch[batch] = Activations(
                empty,
                [np.empty(shape, np.float32) for shape in shapes],
                [np.empty(shape, np.float32) for shape in shapes[:-1]],
            )
        return self._activations_by_batch[batch]


def linear_layers(net: nn.Module) -> list[nn.Linear]:
    """The linear layers of a plain network, first to last."""
    return [module for module in net.modules() if isinstance(module, nn.Linear)]


def append_ones(x: Row) -> Row:
    """``[B, ...]`` to ``[B, F + 1]``, the last column 1; bytes are read as 0 … 1, as ``MLPTorso`` does."""
    flat = x.reshape(len(x), -1)
    wide = np.ones((len(x), flat.shape[1] + 1), np.float32)
    wide[:, :-1] = flat / np.float32(255) if x.dtype == np.uint8 else flat
    return wide


def as_array(x: Tensor) -> Row:
    """The numbers ``[...]`` of a tensor on the host, of its own type, without a copy."""
    row: Row = x.detach().numpy()
    return row


class GaussianHead:
    """A diagonal Gaussian: means, and a log std that does not depend on the observation."""

    def __init__(self, log_std: Row, gradient: Row) -> None:
        self.log_std, self.gradient = log_std, gradient  # [A] views
        self._standard = self._inverse = self._squares = log_std
        self._halves = np.full_like(log_std, -0.5)

    def evaluate(self, raw: Row, action: Row) -> tuple[Row, Row]:
        """As ``GaussianPolicy``, of ``[B, A]``: log-density and entropy, each ``[B]``."""
        self._inverse = np.exp(-self.log_std)
        self._standard = (action - raw) * self._inverse
        self._squares = self._standard * self._standard
        width = self.log_std.sum() + len(self.log_std) * np.float32(LOG_SQRT_2PI)
        log_prob: Row = self._squares @ self._halves - width
        return log_prob, np.full_like(log_prob, width + np.float32(0.5 * len(self.log_std)))

    def backward(self, log_prob: Row, entropy: Row, out: Row) -> None:
        """Write the gradients of the means ``[B, A]`` and of the log std ``[A]``."""
        np.multiply(self._standard, log_prob[:, None], out=out)
        out *= self._inverse
        np.add(log_prob @ self._squares, entropy.sum() - log_prob.sum(), out=self.gradient)


class DiscreteHead:
    """Logits of discrete actions."""

    def __init__(self) -> None:
        self._log_probs = self._entropy = np.empty(0, np.float32)
        self._actions: tuple[NDArray[np.int64], NDArray[np.int64]] = (np.empty(0, np.int64), np.empty(0, np.int64))

    def evaluate(self, raw: Row, action: Row) -> tuple[Row, Row]:
        """As ``CategoricalPolicy``, of ``[B, A]`` and ``[B]``: log-probability and entropy, each ``[B]``."""
        shifted = raw - raw.max(1, keepdims=True)
        self._log_probs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        self._actions = np.arange(len(raw)), action.astype(np.int64, copy=False)
        self._entropy = -(np.exp(self._log_probs) * self._log_probs).sum(1)
        return self._log_probs[self._actions], self._entropy

    def backward(self, log_prob: Row, entropy: Row, out: Row) -> None:
        """Write the gradients of the logits ``[B, A]``."""
        negative_entropy = entropy[:, None] * (self._log_probs + self._entropy[:, None])
        np.multiply(np.exp(self._log_probs), -negative_entropy - log_prob[:, None], out=out)
        out[self._actions] += log_prob


class NumpyOptimizer:
    """Parameters, gradients and moments of one optimizer in flat rows, each moved as the optimizer would."""

    def __init__(self, stack: NumpyMLPs, optimizer: torch.optim.Optimizer, *, max_norm: float | None) -> None:
        self.optimizer, self.max_norm, self.adam = optimizer, max_norm, isinstance(optimizer, torch.optim.Adam)
        self.names = ("exp_avg", "exp_avg_sq") if self.adam else ("square_avg",)
        rows = [np.zeros(stack.size, np.float32) for _ in range(2 + len(self.names))]
        self.row, self.gradient = rows[:2]
        self._rows, self._gradients, *self._moments = [[torch.from_numpy(row)] for row in rows]
        self._steps = torch.zeros(())
        self._parameter_views = stack.views(self.row)
        self._moment_views = [stack.views(row) for row in rows[2:]]

    def begin(self) -> None:
        """Copy parameters and moments from torch."""
        for parameter, view in self._parameter_views:
            view[...] = as_array(parameter)
        for name, views in zip(self.names, self._moment_views, strict=True):
            for parameter, view in views:
                state = self.optimizer.state[parameter]
                if not state:
                    self._init_state(parameter)
                view[...] = as_array(state[name])
        self._steps.copy_(self.optimizer.state[self._parameter_views[0][0]]["step"])

    def step(self) -> None:
        """Take a gradient step after clipping the gradient's norm."""
        if self.max_norm is not None:
            norm = sqrt(float(self.gradient @ self.gradient))
            if norm + 1e-6 > self.max_norm:
                self.gradient *= np.float32(self.max_norm / (norm + 1e-6))
        if self.adam:
            mean, square = self._moments
            fused_adam(self.optimizer, self._rows, self._gradients, mean, square, [self._steps])
        else:
            self._steps += 1
            self._rmsprop()

    def _rmsprop(self) -> None:
        group, ((square,),) = self.optimizer.param_groups[0], self._moments
        (row,), (gradient,) = self._rows, self._gradients
        square.mul_(group["alpha"]).addcmul_(gradient, gradient, value=1 - group["alpha"])
        row.addcdiv_(gradient, square.sqrt().add_(group["eps"]), value=-group["lr"])

    def end(self) -> None:
        """Copy parameters and moments back into torch, in place."""
        for parameter, view in self._parameter_views:
            as_array(parameter)[...] = view
        for name, views in zip(self.names, self._moment_views, strict=True):
            for parameter, view in views:
                as_array(self.optimizer.state[parameter][name])[...] = view
        for parameter, _ in self._parameter_views:
            self.optimizer.state[parameter]["step"].copy_(self._steps)

    def _init_state(self, parameter: Tensor) -> None:
        """Initialize the optimizer's state as its own first step does."""
        state = self.optimizer.state[parameter]
        state["step"] = torch.zeros((), dtype=torch.float32)
        for name in self.names:
            state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
