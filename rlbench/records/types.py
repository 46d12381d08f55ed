"""What a run leaves behind, as frozen records of plain numbers: the only thing the outside ever sees of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where a run stands, after every vector step; never stored."""

    env_steps: int
    updates: int
    last_return: float | None  # of the training game that ended last, in raw points
    evaluated: int | None = None  # games of the running evaluation that have ended; None while training

    @property
    def steps(self) -> int:
        """What the budget counts: agent steps, or gradient steps where none is ever taken."""
        return self.env_steps or self.updates


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """Training games that ended in an epoch."""

    episodes: int  # games that ended
    steps: int  # live agent steps, of ended and unended games
    returns: tuple[float, ...]  # raw points per ended game, over all its lives
    lengths: tuple[int, ...]  # agent steps per ended game
    steps_per_second: float  # of the whole epoch: acting, emulating and learning


@dataclass(frozen=True, kw_only=True, slots=True)
class QUpdated:
    """Means over an epoch's gradient steps of a value-based learner."""

    count: int  # gradient steps
    loss: float
    q: float  # value of the actions taken


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtendedUpdated:
    """Means over an epoch's gradient steps of Q-learning whose loss has a term more: BCQ, CQL and CRR of numbers."""

    count: int  # gradient steps
    loss: float  # the term included
    q: float  # value of the actions taken
    extra: float  # the term: imitation, conservative gap, or both


@dataclass(frozen=True, kw_only=True, slots=True)
class ACUpdated:
    """Means over an epoch's gradient steps of an actor and its critics."""

    count: int  # gradient steps of the critics
    critic_loss: float  # summed over the critics
    actor_loss: float
    q: float  # value of the actions taken, mean over the critics
    entropy: float  # nats, by the policy's own samples; 0 of a deterministic policy
    alpha: float  # what a nat is worth; 0 of a deterministic policy


@dataclass(frozen=True, kw_only=True, slots=True)
class PGUpdated:
    """Means over an epoch's rollouts of an on-policy learner."""

    count: int  # gradient steps
    policy_loss: float
    value_loss: float  # in the critic's own scale; 0 where there is no critic
    entropy: float  # nats
    divergence: float  # of the new policy from the one that acted; 0 where it is not looked at


@dataclass(frozen=True, kw_only=True, slots=True)
class ClonedUpdated:
    """Means over an epoch's gradient steps of a learner that only imitates."""

    count: int  # gradient steps
    actor_loss: float  # squared error, or nats
    error: float  # squared distance of preferred actions from the data's, mean over dimensions; share of numbers missed


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstrainedUpdated:
    """Means over an epoch's gradient steps of BCQ."""

    count: int  # gradient steps
    critic_loss: float  # summed over the critics
    actor_loss: float  # of the perturbation
    q: float  # value of the actions taken, mean over the critics
    error: float  # squared distance of repeated actions from the data's, mean over their dimensions
    divergence: float  # nats per latent number


@dataclass(frozen=True, kw_only=True, slots=True)
class ConservativeUpdated:
    """Means over an epoch's gradient steps of CQL."""

    count: int  # gradient steps
    critic_loss: float  # summed over the critics, gaps included
    actor_loss: float
    q: float  # value of the actions taken, mean over the critics
    entropy: float  # nats, by the policy's own samples
    alpha: float  # what a nat is worth
    gap: float  # what the critics promise more of all actions than of the data's, weighted
    multiplier: float  # of the gap


@dataclass(frozen=True, kw_only=True, slots=True)
class FilteredUpdated:
    """Means over an epoch's gradient steps of a learner that imitates what is better than usual: CRR and IQL."""

    count: int  # gradient steps
    critic_loss: float  # summed over the critics
    value_loss: float  # of a value network; 0 where there is none
    actor_loss: float
    q: float  # value of the actions taken, mean over the critics
    imitated: float  # weight of the data's actions


Learned: TypeAlias = (
    QUpdated
    | ExtendedUpdated
    | ACUpdated
    | PGUpdated
    | ClonedUpdated
    | ConstrainedUpdated
    | ConservativeUpdated
    | FilteredUpdated
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CuriousUpdated:
    """Means over an epoch of a curious learner: its own, and beside them those of its model."""

    count: int  # gradient steps of the learner
    learned: Learned
    forward_loss: float  # half the squared error of foreseen features
    inverse_loss: float  # nats, of guessing what was done
    bonus: float  # reward of a step for not having been foreseen


Updated: TypeAlias = Learned | CuriousUpdated


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """One evaluation: every game that was played, in the order of lanes."""

    returns: tuple[float, ...]  # raw points per game
    lengths: tuple[int, ...]  # agent steps per game
    seeds: tuple[int, ...]  # of the lane that played it
    seconds: float  # wall clock

    @property
    def mean(self) -> float:
        """The score of this evaluation."""
        return sum(self.returns) / len(self.returns)


@dataclass(frozen=True, kw_only=True, slots=True)
class Epoch:
    """Everything a reader of the run may want to know, once per epoch; number 0 is the untrained policy."""

    number: int
    env_steps: int  # live agent steps so far; frames = steps × frame skip
    updates: int  # gradient steps so far
    seconds: float  # wall clock so far, over all attempts
    collected: Collected | None  # None where the experience was recorded beforehand
    updated: Updated | None  # None while nothing has been learned from
    evaluated: Evaluated | None

    @property
    def steps(self) -> int:
        """What the budget counts: agent steps, or gradient steps where none is ever taken."""
        return self.env_steps or self.updates


Status = Literal["done", "failed", "interrupted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended, or stands."""

    status: Status
    reason: str
    env_steps: int  # live agent steps
    updates: int  # gradient steps
    epochs: int
    seconds: float  # wall clock
    final: float | None  # mean return of the last evaluation
    best: float | None  # highest mean return of any evaluation
    best_epoch: int | None
    weights: str | None  # SHA-256 of the policy's parameters
    inexact: tuple[int, ...] = ()  # steps, as the budget counts them, at which it was resumed, but not bit for bit

    @property
    def steps(self) -> int:
        """What the budget counts: agent steps, or gradient steps where none is ever taken."""
        return self.env_steps or self.updates
