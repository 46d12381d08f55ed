"""Policies read off the outputs of a ``Stack``, and their slopes; the values are those of ``ops.policy``."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rlbench.accel.numpy_mlp import Row
from rlbench.ops.action_distributions import LOG_ROOT_TAU


class Head(Protocol):
    """A policy, read off the first network's outputs, and its slopes."""

    def evaluate(self, raw: Row, action: Row) -> tuple[Row, Row]:
        """Log-probabilities and entropies of actions ``[B, A]``, or numbered ones ``[B]`` int64; each ``[B]``."""

    def backward(self, log_prob: Row, entropy: Row, out: Row) -> None:
        """Write the slopes of ``raw`` ``[B, A]``, from those of what ``evaluate`` gave last."""


class GaussianHead:
    """Means, and a spread that is the same everywhere."""

    def __init__(self, log_std: Row, gradient: Row) -> None:
        self.log_std, self.gradient = log_std, gradient  # [A] views
        self._standard = self._inverse = self._squares = log_std
        self._halves = np.full_like(log_std, -0.5)

    def evaluate(self, raw: Row, action: Row) -> tuple[Row, Row]:
        """As ``ops.policy.Gaussian``, of ``[B, A]``: log-density and entropy, each ``[B]``."""
        self._inverse = np.exp(-self.log_std)
        self._standard = (action - raw) * self._inverse
        self._squares = self._standard * self._standard
        width = self.log_std.sum() + len(self.log_std) * np.float32(LOG_ROOT_TAU)
        log_prob: Row = self._squares @ self._halves - width
        return log_prob, np.full_like(log_prob, width + np.float32(0.5 * len(self.log_std)))

    def backward(self, log_prob: Row, entropy: Row, out: Row) -> None:
        """Of the means ``[B, A]``; and of the spread ``[A]``, in its own place."""
        np.multiply(self._standard, log_prob[:, None], out=out)
        out *= self._inverse
        np.add(log_prob @ self._squares, entropy.sum() - log_prob.sum(), out=self.gradient)


class DiscreteHead:
    """Logits of discrete actions."""

    def __init__(self) -> None:
        self._log = self._entropy = np.empty(0, np.float32)
        self._chosen: tuple[NDArray[np.int64], NDArray[np.int64]] = (np.empty(0, np.int64), np.empty(0, np.int64))

    def evaluate(self, raw: Row, action: Row) -> tuple[Row, Row]:
        """As ``ops.policy.Discrete``, of ``[B, A]`` and ``[B]``: log-probability and entropy, each ``[B]``."""
        low = raw - raw.max(1, keepdims=True)
        self._log = low - np.log(np.exp(low).sum(1, keepdims=True))
        self._chosen = np.arange(len(raw)), action.astype(np.int64, copy=False)
        self._entropy = -(np.exp(self._log) * self._log).sum(1)
        return self._log[self._chosen], self._entropy

    def backward(self, log_prob: Row, entropy: Row, out: Row) -> None:
        """Of the logits ``[B, A]``."""
        surprise = entropy[:, None] * (self._log + self._entropy[:, None])
        np.multiply(np.exp(self._log), -surprise - log_prob[:, None], out=out)
        out[self._chosen] += log_prob
