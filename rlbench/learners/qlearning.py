"""Q-learning with a target network; what it predicts is a ``Value``, so DQN and its distributional kin share it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlbench.learners.base import Periodic, descend
from rlbench.nets.heads import QNet
from rlbench.ops.state import State, branch, into_module, into_optimizer, of_module, of_optimizer
from rlbench.ops.types import Role, Transition


class QUpdate(NamedTuple):
    """What one gradient step has to say."""

    loss: Tensor  # []
    q: Tensor  # [] mean value of the actions taken
    priority: Tensor  # [B]


class QLearner:
    """DQN, https://www.nature.com/articles/nature14236, double by default, https://arxiv.org/abs/1509.06461."""

    cycle = 1

    def __init__(
        self,
        net: QNet,
        *,
        optimizers: Sequence[torch.optim.Optimizer],
        max_grad_norm: float | None,
        double: bool,
        sync_every: int,
    ) -> None:
        self.online, self.target = net, copy.deepcopy(net).requires_grad_(False)
        self.optimizers, self.double, self.max_grad_norm = tuple(optimizers), double, max_grad_norm
        self.every = (Periodic(sync_every, self.sync),)

    def loss(self, batch: Transition) -> tuple[Tensor, QUpdate]:
        """Pure and of fixed shape: compiles whole, captures as a CUDA graph, never waits for the host."""
        features = self.online.torso(batch.obs)
        value = self.online.head(features, "learn").at(batch.action)
        with torch.no_grad():
            future = self.target(batch.next_obs, "target")
            chooser = self.online(batch.next_obs, "target") if self.double else future
            best = chooser.mean().argmax(-1)
            goal = future.at(best).backup(batch.reward, batch.discount)
        error = value.distance(goal)
        loss = (batch.weight * error).mean() + self.online.head.auxiliary(features, batch.action, value)
        return loss, QUpdate(loss.detach(), value.mean().mean().detach(), error.detach())

    def update(self, batch: Transition, phase: int = 0) -> QUpdate:  # noqa: ARG002 - every update is like the others
        """One step down the weighted loss, each optimizer on its own parameters."""
        loss, report = self.loss(batch)
        descend(loss, self.optimizers, max_norm=self.max_grad_norm)
        return report

    def sync(self) -> None:
        """Copy the online network to the target, in place."""
        torch._foreach_copy_(list(self.target.parameters()), list(self.online.parameters()))

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """The actions of highest expected return, ``[N]``."""
        preferred: Tensor = self.online(obs, role).mean().argmax(-1)
        return preferred

    def policy(self) -> QNet:
        """The online network."""
        return self.online

    def state_dict(self) -> State:
        """Both networks and what the optimizers have gathered."""
        networks: State = {"online": of_module(self.online), "target": of_module(self.target)}
        return {**networks, **{f"optimizer {i}": of_optimizer(o) for i, o in enumerate(self.optimizers)}}

    def load_state_dict(self, state: State) -> None:
        """Take them over, in place."""
        into_module(self.online, branch(state, "online"))
        into_module(self.target, branch(state, "target"))
        for i, optimizer in enumerate(self.optimizers):
            into_optimizer(optimizer, branch(state, f"optimizer {i}"))
