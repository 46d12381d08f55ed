"""The steps of PPO and A2C, and of the critics of NPG and TRPO, without a framework between the operations.

They compute ``PPO.loss``, its gradients and the optimizer's steps in numpy. They are for small networks on a CPU: a
batch of 64 through 64 units is 50 µs of arithmetic, and a framework adds a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.accel.numpy_mlp import (
    DiscreteHead,
    GaussianHead,
    NumpyMLPs,
    NumpyOptimizer,
    Row,
    append_ones,
    as_array,
    linear_layers,
)
from rlbench.algorithms.onpolicy import EPSILON, RolloutBatch
from rlbench.config.online import PPOConfig
from rlbench.nets.actor_critic import GaussianActor, SeparateActorCritic


class Minibatch(NamedTuple):
    """One batch of a ``RolloutBatch`` on the host."""

    obs: Row  # [B, F + 1], the last column 1
    action: Row  # [B, A], or [B] int64
    log_prob: Row  # [B], as all that follow
    value: Row
    advantage: Row
    value_target: Row
    weight: Row  # as in ``RolloutBatch``, divided by its sum


class NumpyPPO:
    """All batches of one pass over a rollout."""

    def __init__(self, net: SeparateActorCritic, optimizer: torch.optim.Optimizer, method: PPOConfig) -> None:
        self.method, actor = method, net.actor
        extra = [actor.log_std] if isinstance(actor, GaussianActor) else []
        self.stack = NumpyMLPs(
            [linear_layers(actor), linear_layers(net.critic)], activation=net.actor.torso.activation, extra=extra
        )
        self.optimizer = NumpyOptimizer(self.stack, optimizer, max_norm=method.max_grad_norm)
        row, gradient, extra_start = self.optimizer.row, self.optimizer.gradient, self.stack.extra_start
        self.head: GaussianHead | DiscreteHead = DiscreteHead()
        if extra:
            self.head = GaussianHead(row[extra_start:], gradient[extra_start:])
        self.actions = linear_layers(actor)[-1].out_features

    @torch.no_grad()
    def __call__(self, batch: RolloutBatch, batches: tuple[Tensor, ...]) -> Tensor:
        """Policy loss, value loss, entropy and divergence of every batch, ``[batches, 4]``."""
        self.optimizer.begin()
        with np.errstate(all="ignore"):  # what diverges is found where it is reported, as in torch
            reports = [self._step(minibatch) for minibatch in _minibatches(batch, batches)]
        self.optimizer.end()
        return torch.tensor(reports)

    def _step(self, minibatch: Minibatch) -> tuple[float, float, float, float]:
        optimizer, method, weight = self.optimizer, self.method, minibatch.weight
        outputs = self.stack.forward(optimizer.row, minibatch.obs)
        value = outputs[1, :, 0]
        log_prob, entropy = self.head.evaluate(outputs[0, :, : self.actions], minibatch.action)
        objective, derivative = self._surrogate(log_prob, minibatch)
        error, value_gradient = self._value_error(value, minibatch)
        output_gradient = np.zeros_like(outputs)
        entropy_gradient = np.float32(-method.entropy) * weight
        self.head.backward(-weight * derivative, entropy_gradient, output_gradient[0, :, : self.actions])
        output_gradient[1, :, 0] = np.float32(method.value) * weight * value_gradient
        self.stack.backward(optimizer.row, output_gradient, optimizer.gradient)
        optimizer.step()
        difference = minibatch.log_prob - log_prob
        return -float(weight @ objective), float(weight @ error), float(weight @ entropy), float(weight @ difference)

    def _surrogate(self, log_prob: Row, minibatch: Minibatch) -> tuple[Row, Row]:
        """The surrogate objective, and its gradient with respect to the log-probability, each ``[B]``."""
        clip, dual_clip, advantage = self.method.clip, self.method.dual_clip, minibatch.advantage
        if self.method.normalize:
            advantage = _normalize(advantage, minibatch.weight)
        if clip is None:
            return log_prob * advantage, advantage
        ratio = np.exp(log_prob - minibatch.log_prob)
        unclipped = ratio * advantage
        clipped = np.minimum(np.maximum(ratio, np.float32(1 - clip)), np.float32(1 + clip)) * advantage
        objective, derivative = np.minimum(unclipped, clipped), unclipped * (unclipped <= clipped)
        if dual_clip is not None:
            bound = np.where(advantage < 0, np.float32(dual_clip) * advantage, -np.inf).astype(np.float32)
            objective, derivative = np.maximum(objective, bound), derivative * (objective >= bound)
        return objective, derivative

    def _value_error(self, value: Row, minibatch: Minibatch) -> tuple[Row, Row]:
        """Squared errors of the critic, and their gradient by its value, each ``[B]``."""
        gap, clip = value - minibatch.value_target, self.method.clip
        error, derivative = gap * gap, gap + gap
        if not self.method.value_clip or clip is None:
            return error, derivative
        difference = value - minibatch.value
        clipped = minibatch.value + np.minimum(np.maximum(difference, np.float32(-clip)), np.float32(clip))
        clipped_gap = clipped - minibatch.value_target
        clipped_error = clipped_gap * clipped_gap
        active = (np.abs(difference) <= np.float32(clip)) | (error > clipped_error)
        return np.maximum(error, clipped_error), derivative * active


class NumpyValueRegression:
    """Steps of a critic towards the targets of a whole rollout."""

    def __init__(self, net: SeparateActorCritic, optimizer: torch.optim.Optimizer, *, steps: int) -> None:
        self.steps = steps
        self.stack = NumpyMLPs([linear_layers(net.critic)], activation=net.actor.torso.activation, extra=[])
        self.optimizer = NumpyOptimizer(self.stack, optimizer, max_norm=None)

    @torch.no_grad()
    def __call__(self, batch: RolloutBatch) -> Tensor:
        """The critic's mean squared errors before each step, ``[steps]``."""
        optimizer, losses = self.optimizer, list[float]()
        (minibatch,) = _minibatches(batch, (torch.arange(len(batch.weight)),))
        optimizer.begin()
        for _ in range(self.steps):
            outputs = self.stack.forward(optimizer.row, minibatch.obs)
            gap = outputs[0, :, 0] - minibatch.value_target
            losses.append(float(minibatch.weight @ (gap * gap)))
            self.stack.backward(optimizer.row, (2 * minibatch.weight * gap)[None, :, None], optimizer.gradient)
            optimizer.step()
        optimizer.end()
        return torch.tensor(losses)


def _minibatches(batch: RolloutBatch, batches: tuple[Tensor, ...]) -> Iterator[Minibatch]:
    """The minibatches of rows ``batches``, sliced from one copy."""
    whole = _minibatch(batch, as_array(torch.cat(batches)).astype(np.int64, copy=False))
    start = 0
    for rows in batches:
        minibatch = Minibatch._make(column[start : start + len(rows)] for column in whole)
        yield minibatch._replace(weight=minibatch.weight / max(minibatch.weight.sum(), np.float32(1)))
        start += len(rows)


def _minibatch(batch: RolloutBatch, rows: NDArray[np.int64]) -> Minibatch:
    obs, *columns = (as_array(column)[rows] for column in batch)
    return Minibatch(append_ones(obs), *columns)


def _normalize(x: Row, weight: Row) -> Row:
    """As ``normalize`` of ``algorithms/onpolicy.py``."""
    centered = x - weight @ x
    rows = np.float32((weight > 0).sum())
    std = np.sqrt((weight @ (centered * centered)) * (rows / max(rows - 1, np.float32(1))))
    normalized: Row = centered / (std + np.float32(EPSILON))
    return normalized
