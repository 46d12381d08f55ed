"""The base of every learner."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, TypeVarTuple, cast

import torch
from torch import Tensor, nn

from rlbench.nets import actor_critic, discrete_actor_critic
from rlbench.ops.action_distributions import Policy
from rlbench.ops.state_dict import Composite, Stateful
from rlbench.ops.types import Metrics, Role, Rollout

BatchT_contra = TypeVar("BatchT_contra", contravariant=True)
GivenT = TypeVarTuple("GivenT")
ValueT = TypeVar("ValueT")
CompilableT = TypeVar("CompilableT", bound="Compilable")

Compiler: TypeAlias = Callable[[Callable[..., object]], Callable[..., object]]
"""Maps a function to a faster one of the same values."""


class Update(NamedTuple):
    """The metrics and priorities of one gradient step; a network that it does not update reports its last metrics."""

    metrics: Metrics
    priority: Tensor  # [B]


class Periodic(NamedTuple):
    """An in-place action after every ``period`` updates, such as a copy to a target network."""

    period: int  # updates
    action: Callable[[], None]


class Compilable(Composite):
    """An object that computes its losses with ``compiler``; None computes them eagerly."""

    def __init__(self, compiler: Compiler | None = None) -> None:
        self.compiler = compiler
        self.compiled: dict[str, Callable[..., object]] = {}  # losses by name, each after its first call

    @classmethod
    def losses(cls) -> list[str]:
        """The names of the methods that are declared as losses."""
        return [name for name in dir(cls) if getattr(getattr(cls, name), "is_loss", False)]


class ActorLearner(Compilable):
    """A learner that acts by its ``actor``, which returns a policy."""

    actor: nn.Module
    greedy = True  # evaluation takes the policy's mode, else its samples

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Samples of the policy, ``[N]`` or ``[N, A]``; its mode in evaluation if ``greedy``."""
        policy: Policy = self.actor(obs)
        return policy.mode() if role == "eval" and self.greedy else policy.sample()

    def policy_net(self) -> nn.Module:
        """The actor."""
        return self.actor


class ActorCriticLearner(Compilable):
    """A learner that acts by the policy of its ``net``."""

    net: actor_critic.SeparateActorCritic | actor_critic.SharedActorCritic | discrete_actor_critic.DiscreteActorCritic
    greedy = True  # evaluation takes the policy's mode, else its samples

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Samples of the policy, ``[N]`` or ``[N, A]``; its mode in evaluation if ``greedy``."""
        policy = self.net.policy(obs)
        return policy.mode() if role == "eval" and self.greedy else policy.sample()

    def policy_net(self) -> nn.Module:
        """Actor and critics."""
        return self.net


def compilable(method: Callable[[CompilableT, *GivenT], ValueT]) -> Callable[[CompilableT, *GivenT], ValueT]:
    """Declare a method of a learner as a loss: pure and of fixed shape, so that ``torch.compile`` may take it whole."""

    @wraps(method)
    def compute(self: CompilableT, /, *args: *GivenT) -> ValueT:
        if self.compiler is None:
            return method(self, *args)
        if (name := method.__name__) not in self.compiled:
            self.compiled[name] = self.compiler(MethodType(method, self))
        return cast("ValueT", self.compiled[name](*args))

    compute.__dict__["is_loss"] = True
    return compute


class Learner(Stateful, Protocol):
    """A learner: it updates networks and acts; it has no buffer, environment or clock."""

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Return actions at ``obs``, ``[N]`` or ``[N, A]``, before any exploration of the collector."""

    def policy_net(self) -> nn.Module:
        """Return the network that acts."""


class Cyclic(Protocol):
    """Updates that repeat a pattern, with periodic actions between them."""

    @property
    def periodic_actions(self) -> tuple[Periodic, ...]:
        """Periodic actions, such as target updates."""

    @property
    def cycle_length(self) -> int:
        """Number of updates after which their pattern repeats: TD3 updates its actor in every second one."""


class OffPolicyLearner(Learner, Cyclic, Protocol[BatchT_contra]):
    """A learner from batches of transitions of a replay buffer or a data set."""

    def update(self, batch: BatchT_contra, phase: int) -> Update:
        """Make the ``phase``-th gradient step of a cycle, of fixed shape."""


class OnPolicyLearner(Learner, Protocol):
    """A learner from rollouts; its continuous actions may lie out of bounds."""

    @property
    def steps(self) -> int:
        """Gradient steps that one update counts as."""

    def update(self, rollout: Rollout) -> Metrics:
        """Make every gradient step of a rollout; return means over them."""
