"""Return distributions: what a Q-network says about the future, and how two of them compare.

Each is a value with five verbs. Q-learning is written once in terms of the verbs, so that another member of the
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
        """The Bellman image ``reward + discount · Z`` of a chosen distribution, both ``[B]``."""

    def distance(self, target: Self) -> Tensor:
        """How far this prediction is from ``target``, ``[B]``: the loss."""

    def priority(self, target: Self, distance: Tensor) -> Tensor:
        """Priority in prioritized replay, ``[B]``, of a prediction whose ``distance`` to ``target`` is computed."""


def pick(x: Tensor, action: Tensor) -> Tensor:
    """``x[b, action[b]]`` for x of shape ``[B, A, ...]``, without a Python index array."""
    shape = (-1, 1, *([1] * (x.dim() - 2)))
    return x.gather(1, action.view(shape).expand(-1, 1, *x.shape[2:])).squeeze(1)


class Expected(NamedTuple):
    """DQN: the mean alone (https://arxiv.org/abs/1312.5602)."""

    q: Tensor  # [B, A] | [B]
    huber: float | None = None  # where the squared error turns linear; None is nowhere

    def mean(self) -> Tensor:
        """The prediction itself, ``[B, A]`` or ``[B]``."""
        return self.q

    def at(self, action: Tensor) -> Expected:
        """The values of the given actions ``[B]``."""
        return self._replace(q=pick(self.q, action))

    def backup(self, reward: Tensor, discount: Tensor) -> Expected:
        """One number moved: ``reward + discount · q``, all ``[B]``."""
        return self._replace(q=reward + discount * self.q)

    def distance(self, target: Expected) -> Tensor:
        """The squared error, ``[B]``, without a half as in the documented tables; with ``huber``, the Huber loss."""
        if self.huber is None:
            return (self.q - target.q).square()
        return F.huber_loss(self.q, target.q, reduction="none", delta=self.huber)

    def priority(self, target: Expected, distance: Tensor) -> Tensor:  # noqa: ARG002 - it is a square
        """The absolute TD error |δ|, ``[B]`` (https://arxiv.org/abs/1511.05952, section 3.3)."""
        return (self.q - target.q).abs()


class Categorical(NamedTuple):
    """C51: probabilities on fixed atoms (https://arxiv.org/abs/1707.06887)."""

    logits: Tensor  # [B, A, Q] | [B, Q]
    atoms: Tensor  # [Q], evenly spaced; [B, Q] after a backup

    def mean(self) -> Tensor:
        """Atoms weighted by their probabilities, ``[B, A]`` or ``[B]``."""
        return (self.logits.softmax(-1) * self.atoms).sum(-1)

    def at(self, action: Tensor) -> Categorical:
        """The distributions of the given actions ``[B]``."""
        return Categorical(pick(self.logits, action), self.atoms)

    def backup(self, reward: Tensor, discount: Tensor) -> Categorical:
        """The same probabilities on atoms that ``reward`` and ``discount`` ``[B]`` have moved."""
        return Categorical(self.logits, reward[:, None] + discount[:, None] * self.atoms)

    def distance(self, target: Categorical) -> Tensor:
        """Cross entropy with the projected target, ``[B]`` (algorithm 1)."""
        return -(self.project(target) * self.logits.log_softmax(-1)).sum(-1)

    def priority(self, target: Categorical, distance: Tensor) -> Tensor:  # noqa: ARG002 - the loss has it
        """The cross entropy itself, ``[B]`` (https://arxiv.org/abs/1710.02298, "prioritized replay")."""
        return distance

    def project(self, other: Categorical) -> Tensor:
        """``other``'s probability moved onto these atoms, split between the two nearest, ``[B, Q]`` (eq. 7)."""
        gap = self.atoms[1] - self.atoms[0]
        moved = other.atoms.clamp(self.atoms[0], self.atoms[-1]).unsqueeze(-2)  # [(B,) 1, Q']
        share = (1 - (moved - self.atoms[:, None]).abs() / gap).clamp(0, 1)  # [B, Q, Q']
        return (share * other.logits.softmax(-1)[:, None, :]).sum(-1)
