"""A straightforward double-DQN update with a compiled loss: the peer of ``dqn-update``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlbench.ops.types import Transition


def network(actions: int) -> nn.Sequential:
    """The network of Nature DQN, ``[B, 4, 84, 84]`` to ``[B, A]``."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, actions),
    )


class Plain:
    """Networks, optimizer and a compiled loss."""

    def __init__(self, actions: int) -> None:
        self.online = network(actions)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-4)
        self._loss = cast("Callable[[Transition], Tensor]", torch.compile(self.loss))

    def loss(self, batch: Transition) -> Tensor:
        """The squared error to the double-DQN target, ``[]``."""
        with torch.no_grad():
            next_obs = batch.next_obs.float()
            best = self.online(next_obs).argmax(1, keepdim=True)
            next_value = self.target(next_obs).gather(1, best).squeeze(1)
            target = batch.reward + batch.discount * next_value
        q = self.online(batch.obs.float()).gather(1, batch.action[:, None]).squeeze(1)
        return F.mse_loss(q, target)

    def update(self, batch: Transition) -> None:
        """One step of Adam."""
        loss = self._loss(batch)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
