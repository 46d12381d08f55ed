"""Return distributions: what a Q-network says about the future, and how two of them compare.

Each is a value with four verbs. Q-learning is written once in terms of the verbs, so that another member of the
family is another type here and another head in ``nets``, and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import torch.nn.functional as F
from torch import Tensor


class Value(Protocol):
    """What a network predicts about the discounted return of each action."""

    def mean(self) -> Tensor:
        """Expected return, ``[B, A]`` before ``at`` and ``[B]`` after."""

    def at(self, action: Tensor) -> Self:
        """The distributions of the given actions, ``[B]``."""

    def backup(self, reward: Tensor, discount: Tensor) -> Self:
        """The Bellman image ``reward + discount · Z`` of a chosen distribution."""

    def distance(self, target: Self) -> Tensor:
        """How far this prediction is from ``target``, ``[B]``: the loss, and the replay priority."""


def pick(x: Tensor, action: Tensor) -> Tensor:
    """``x[b, action[b]]`` for x of shape ``[B, A, ...]``, without a Python index array."""
    shape = (-1, 1, *([1] * (x.dim() - 2)))
    return x.gather(1, action.view(shape).expand(-1, 1, *x.shape[2:])).squeeze(1)


class Expected(NamedTuple):
    """DQN: the mean alone (https://arxiv.org/abs/1312.5602)."""

    q: Tensor  # [B, A] | [B]
    huber: float | None = None  # where the squared error turns linear; None is nowhere

    def mean(self) -> Tensor:
        """The prediction itself."""
        return self.q

    def at(self, action: Tensor) -> Expected:
        """The values of the given actions."""
        return self._replace(q=pick(self.q, action))

    def backup(self, reward: Tensor, discount: Tensor) -> Expected:
        """One number moved: ``reward + discount · q``."""
        return self._replace(q=reward + discount * self.q)

    def distance(self, target: Expected) -> Tensor:
        """The squared error, without a half as in the documented tables; with ``huber``, the Huber loss."""
        if self.huber is None:
            return (self.q - target.q).square()
        return F.huber_loss(self.q, target.q, reduction="none", delta=self.huber)
