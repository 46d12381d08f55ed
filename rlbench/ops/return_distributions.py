"""Return distributions: the output of a Q-network, its Bellman backup and its loss.

``QLearner`` uses only the five methods of ``ReturnDistribution``, so a new distributional algorithm is a new type here
and a new head in ``nets``.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import torch.nn.functional as F
from torch import Tensor


class ReturnDistribution(Protocol):
    """The predicted discounted return of each action, or its distribution (1707.06887)."""

    def mean(self) -> Tensor:
        """Expected return, ``[B, A]`` before ``at`` and ``[B]`` after."""

    def at(self, action: Tensor) -> Self:
        """The distributions of the given actions, ``[B]``."""

    def backup(self, reward: Tensor, discount: Tensor) -> Self:
        """The Bellman backup ``reward + discount · Z`` of a distribution per row; both are ``[B]``."""

    def loss(self, target: Self) -> Tensor:
        """The loss of this prediction against ``target``, ``[B]``."""

    def priority(self, target: Self, loss: Tensor) -> Tensor:
        """Priority in prioritized replay, ``[B]``, of a prediction whose ``loss`` against ``target`` is computed."""


def gather_actions(x: Tensor, action: Tensor) -> Tensor:
    """``x[b, action[b]]`` for x of shape ``[B, A, ...]``, by one gather."""
    shape = (-1, 1, *([1] * (x.dim() - 2)))
    return x.gather(1, action.view(shape).expand(-1, 1, *x.shape[2:])).squeeze(1)


class ExpectedReturn(NamedTuple):
    """DQN: the mean alone (https://arxiv.org/abs/1312.5602)."""

    q: Tensor  # [B, A] | [B]
    huber: float | None = None  # threshold of the Huber loss; None is the squared error

    def mean(self) -> Tensor:
        """The prediction itself, ``[B, A]`` or ``[B]``."""
        return self.q

    def at(self, action: Tensor) -> ExpectedReturn:
        """The values of the given actions ``[B]``."""
        return self._replace(q=gather_actions(self.q, action))

    def backup(self, reward: Tensor, discount: Tensor) -> ExpectedReturn:
        """The TD target ``reward + discount · q``, all ``[B]``."""
        return self._replace(q=reward + discount * self.q)

    def loss(self, target: ExpectedReturn) -> Tensor:
        """The squared error, ``[B]``, without the factor 1/2, as in the reference code; or the Huber loss."""
        if self.huber is None:
            return (self.q - target.q).square()
        return F.huber_loss(self.q, target.q, reduction="none", delta=self.huber)

    def priority(self, target: ExpectedReturn, loss: Tensor) -> Tensor:  # noqa: ARG002 - that argument is squared
        """The absolute TD error |δ|, ``[B]`` (https://arxiv.org/abs/1511.05952, section 3.3)."""
        return (self.q - target.q).abs()


class CategoricalReturn(NamedTuple):
    """C51: probabilities on fixed atoms (https://arxiv.org/abs/1707.06887)."""

    logits: Tensor  # [B, A, Q] | [B, Q]
    atoms: Tensor  # [Q], evenly spaced; [B, Q] after a backup

    def mean(self) -> Tensor:
        """Atoms weighted by their probabilities, ``[B, A]`` or ``[B]``."""
        return (self.logits.softmax(-1) * self.atoms).sum(-1)

    def at(self, action: Tensor) -> CategoricalReturn:
        """The distributions of the given actions ``[B]``."""
        return CategoricalReturn(gather_actions(self.logits, action), self.atoms)

    def backup(self, reward: Tensor, discount: Tensor) -> CategoricalReturn:
        """The same probabilities on atoms ``reward + discount · z``, of ``[B]``."""
        return CategoricalReturn(self.logits, reward[:, None] + discount[:, None] * self.atoms)

    def loss(self, target: CategoricalReturn) -> Tensor:
        """Cross entropy with the projected target, ``[B]`` (algorithm 1)."""
        return -(self.project(target) * self.logits.log_softmax(-1)).sum(-1)

    def priority(self, target: CategoricalReturn, loss: Tensor) -> Tensor:  # noqa: ARG002 - that argument is the priority
        """The cross entropy, ``[B]``; Rainbow's KL loss (1710.02298) is this minus the entropy of the target."""
        return loss

    def project(self, other: CategoricalReturn) -> Tensor:
        """``other``'s probability projected onto these atoms, ``[B, Q]`` (eq. 7): each mass goes to the two nearest."""
        delta = self.atoms[1] - self.atoms[0]
        target_atoms = other.atoms.clamp(self.atoms[0], self.atoms[-1]).unsqueeze(-2)  # [(B,) 1, Q']
        projection = (1 - (target_atoms - self.atoms[:, None]).abs() / delta).clamp(0, 1)  # [B, Q, Q']
        return (projection * other.logits.softmax(-1)[:, None, :]).sum(-1)
