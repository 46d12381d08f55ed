"""What CRR and IQL have to say: they imitate the better part of the data."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class FilteredUpdate(NamedTuple):
    """Of one gradient step."""

    critic_loss: Tensor  # [] summed over the critics
    value_loss: Tensor  # [] of a value network; 0 where there is none
    actor_loss: Tensor  # []
    q: Tensor  # [] mean value of the actions taken
    imitated: Tensor  # [] mean weight of the data's actions in the actor's loss
    priority: Tensor  # [B]
