"""The steps of PPO and A2C, and of the critics of NPG and TRPO, without a framework between the operations.

They compute ``PPO.loss``, its gradients and ``optimize`` in numpy. They are for small networks on a CPU: a batch of 64
through 64 units is 50 µs of arithmetic, and a framework adds a millisecond.
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
    PolicyHead,
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
    share: Row  # what a row counts in a mean: 0 for a final observation; they sum to 1


class NumpyPPO:
    """All batches of one pass over a rollout."""

    def __init__(
        self,
        net: SeparateActorCritic,
        optimizer: torch.optim.Optimizer,
        method: PPOConfig,
    ) -> None:
        self.method, actor = method, net.actor
        gaussian = isinstance(actor, GaussianActor)
        loose = [actor.log_std] if isinstance(actor, GaussianActor) else []
        self.stack = NumpyMLPs(
            [linear_layers(actor), linear_layers(net.critic)], activation=net.actor.torso.activation, loose=loose
        )
        self.descent = NumpyOptimizer(self.stack, optimizer, max_norm=method.max_grad_norm)
        row, gradient, behind = self.descent.row, self.descent.gradient, self.stack.behind
        self.head: PolicyHead = GaussianHead(row[behind:], gradient[behind:]) if gaussian else DiscreteHead()
        self.actions = linear_layers(actor)[-1].out_features

    @torch.no_grad()
    def __call__(self, batch: RolloutBatch, batches: tuple[Tensor, ...]) -> Tensor:
        """Policy loss, value loss, entropy and divergence of every batch, ``[batches, 4]``."""
        self.descent.begin()
        with np.errstate(all="ignore"):  # what diverges is found where it is reported, as in torch
            reports = [self._step(page) for page in _minibatches(batch, batches)]
        self.descent.end()
        return torch.tensor(reports)

    def _step(self, page: Minibatch) -> tuple[float, float, float, float]:
        descent, ours, share = self.descent, self.method, page.share
        outputs = self.stack.forward(descent.row, page.obs)
        value = outputs[1, :, 0]
        log_prob, entropy = self.head.evaluate(outputs[0, :, : self.actions], page.action)
        gain, derivative = self._gain(log_prob, page)
        error, pull_value = self._miss(value, page)
        pull = np.zeros_like(outputs)
        self.head.backward(-share * derivative, np.float32(-ours.entropy) * share, pull[0, :, : self.actions])
        pull[1, :, 0] = np.float32(ours.value) * share * pull_value
        self.stack.backward(descent.row, pull, descent.gradient)
        descent.step()
        difference = page.log_prob - log_prob
        return -float(share @ gain), float(share @ error), float(share @ entropy), float(share @ difference)

    def _gain(self, log_prob: Row, page: Minibatch) -> tuple[Row, Row]:
        """The surrogate objective, and its gradient with respect to the log-probability, each ``[B]``."""
        clip, dual_clip, advantage = self.method.clip, self.method.dual_clip, page.advantage
        if self.method.normalize:
            advantage = _normalize(advantage, page.share)
        if clip is None:
            return log_prob * advantage, advantage
        ratio = np.exp(log_prob - page.log_prob)
        free = ratio * advantage
        held = np.minimum(np.maximum(ratio, np.float32(1 - clip)), np.float32(1 + clip)) * advantage
        gain, derivative = np.minimum(free, held), free * (free <= held)
        if dual_clip is not None:
            worst = np.where(advantage < 0, np.float32(dual_clip) * advantage, -np.inf).astype(np.float32)
            gain, derivative = np.maximum(gain, worst), derivative * (gain >= worst)
        return gain, derivative

    def _miss(self, value: Row, page: Minibatch) -> tuple[Row, Row]:
        """Squared errors of the critic, and their gradient by its value, each ``[B]``."""
        gap, clip = value - page.value_target, self.method.clip
        error, derivative = gap * gap, gap + gap
        if not self.method.value_clip or clip is None:
            return error, derivative
        difference = value - page.value
        near = page.value + np.minimum(np.maximum(difference, np.float32(-clip)), np.float32(clip)) - page.value_target
        other = near * near
        return np.maximum(error, other), derivative * ((np.abs(difference) <= np.float32(clip)) | (error > other))


class NumpyValueRegression:
    """Steps of a critic towards the targets of a whole rollout."""

    def __init__(self, net: SeparateActorCritic, optimizer: torch.optim.Optimizer, *, steps: int) -> None:
        self.steps = steps
        self.stack = NumpyMLPs([linear_layers(net.critic)], activation=net.actor.torso.activation, loose=[])
        self.descent = NumpyOptimizer(self.stack, optimizer, max_norm=None)

    @torch.no_grad()
    def __call__(self, batch: RolloutBatch) -> Tensor:
        """The critic's mean squared errors before each step, ``[steps]``."""
        descent, losses = self.descent, list[float]()
        (page,) = _minibatches(batch, (torch.arange(len(batch.weight)),))
        descent.begin()
        for _ in range(self.steps):
            outputs = self.stack.forward(descent.row, page.obs)
            gap = outputs[0, :, 0] - page.value_target
            losses.append(float(page.share @ (gap * gap)))
            self.stack.backward(descent.row, (2 * page.share * gap)[None, :, None], descent.gradient)
            descent.step()
        descent.end()
        return torch.tensor(losses)


def _minibatches(batch: RolloutBatch, batches: tuple[Tensor, ...]) -> Iterator[Minibatch]:
    """The lesson in the order of its batches, copied once and then cut up."""
    whole = _minibatch(batch, as_array(torch.cat(batches)).astype(np.int64, copy=False))
    start = 0
    for rows in batches:
        page = Minibatch._make(column[start : start + len(rows)] for column in whole)
        yield page._replace(share=page.share / max(page.share.sum(), np.float32(1)))
        start += len(rows)


def _minibatch(batch: RolloutBatch, rows: NDArray[np.int64]) -> Minibatch:
    obs, *columns = (as_array(column)[rows] for column in batch)
    return Minibatch(append_ones(obs), *columns)


def _normalize(x: Row, share: Row) -> Row:
    """As ``rollouts.standardised``."""
    off = x - share @ x
    rows = np.float32((share > 0).sum())
    spread = np.sqrt((share @ (off * off)) * (rows / max(rows - 1, np.float32(1))))
    standard: Row = off / (spread + np.float32(EPSILON))
    return standard
