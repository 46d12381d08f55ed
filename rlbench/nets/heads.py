"""Features to a value per action; the head's type is the algorithm."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from torch import Tensor, nn

from rlbench.ops.types import Role
from rlbench.ops.value import Expected, Value

ValueT_co = TypeVar("ValueT_co", bound=Value, covariant=True)


class Head(Protocol[ValueT_co]):
    """Features ``[B, F]`` to a value, for the purpose that ``role`` names."""

    def __call__(self, features: Tensor, role: Role) -> ValueT_co:
        """The value of every action."""

    def auxiliary(self, features: Tensor, action: Tensor) -> Tensor:
        """A further loss on parameters of the head alone, ``[]``; zero for most."""


class ExpectedHead(nn.Module):
    """One hidden layer, then one number per action."""

    def __init__(self, *, features: int, hidden: int, actions: int, huber: float | None) -> None:
        super().__init__()
        self.hidden, self.out, self.huber = nn.Linear(features, hidden), nn.Linear(hidden, actions), huber

    def forward(self, features: Tensor, role: Role) -> Expected:  # noqa: ARG002 - the same for every purpose
        """``[B, F]`` to ``[B, A]``."""
        return Expected(self.out(self.hidden(features).relu()), self.huber)

    def auxiliary(self, features: Tensor, action: Tensor) -> Tensor:  # noqa: ARG002 - no parameters of its own
        """Nothing."""
        return features.new_zeros(())


class QNet(nn.Module, Generic[ValueT_co]):
    """A torso and a head."""

    def __init__(self, torso: nn.Module, head: Head[ValueT_co]) -> None:
        super().__init__()
        self.torso, self.head = torso, head

    def forward(self, obs: Tensor, role: Role) -> ValueT_co:
        """What the network says of every action at ``obs``."""
        return self.head(self.torso(obs), role)
