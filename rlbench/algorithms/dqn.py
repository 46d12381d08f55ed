"""Q-learning with a target network on any ``ReturnDistribution``: DQN, C51, QR-DQN, IQN, FQF and Rainbow share it.

Two functions extend it to offline algorithms: ``action_mask`` restricts the greedy action, ``auxiliary_loss`` is added.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from rlbench.algorithms.base import Compilable, Compiler, Update, compilable
from rlbench.algorithms.steps import optimize, target_updates
from rlbench.nets.q_heads import QNet
from rlbench.ops.losses import valid_mean
from rlbench.ops.return_distributions import ReturnDistribution
from rlbench.ops.state_dict import Parts
from rlbench.ops.types import Role, Transition

ActionMask: TypeAlias = Callable[[Tensor], Tensor]
"""From the online network's features ``[B, F]`` to the mask of allowed actions, ``[B, A]`` bool, at least one."""

AuxiliaryLoss: TypeAlias = Callable[[Tensor, ReturnDistribution, Transition], Tensor]
"""From features ``[B, F]``, the values of all actions there and the batch to a term of the loss, ``[]``."""


class QLearner(Compilable):
    """DQN, https://www.nature.com/articles/nature14236, double by default, https://arxiv.org/abs/1509.06461."""

    cycle_length = 1

    def __init__(
        self,
        net: QNet,
        *,
        optimizers: Sequence[torch.optim.Optimizer],
        max_grad_norm: float | None,
        double: bool,
        target_update_interval: int,
        action_mask: ActionMask | None = None,
        auxiliary_loss: AuxiliaryLoss | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(compiler)
        if action_mask is not None and not double:
            raise ValueError("action_mask: it restricts what the online network chooses; use double=True")
        self.online, self.target = net, copy.deepcopy(net).requires_grad_(False)
        self.optimizers, self.double, self.max_grad_norm = tuple(optimizers), double, max_grad_norm
        self.action_mask, self.auxiliary_loss = action_mask, auxiliary_loss
        self.periodic_actions = target_updates((self.target, net), period=target_update_interval)

    @compilable
    def loss(self, batch: Transition) -> tuple[Tensor, Update]:
        """Loss of a minibatch, ``[]`` (algorithm 1): pure, of fixed shape, and without a wait for the host."""
        features = self.online.torso(batch.obs)
        values = self.online.head(features, "learn")
        value = values.at(batch.action)
        with torch.no_grad():
            target = self.bootstrap_value(batch.next_obs).backup(batch.reward, batch.discount)
        row_loss = value.loss(target)
        loss = (batch.weight * row_loss).mean()
        q, priority = valid_mean(value.mean().detach(), batch.weight), value.priority(target, row_loss).detach()
        if self.auxiliary_loss is None:
            return loss, Update({"loss": loss.detach(), "q": q}, priority)
        extra = self.auxiliary_loss(features, values, batch)  # the name of its metric in records
        return loss + extra, Update({"loss": (loss + extra).detach(), "q": q, "extra": extra.detach()}, priority)

    def bootstrap_value(self, obs: Tensor) -> ReturnDistribution:
        """The target network's value of the best action at ``obs``, ``[B]``."""
        future: ReturnDistribution = self.target(obs, "target")
        best = self.greedy_actions(obs, "target") if self.double else future.mean().argmax(-1)
        return future.at(best)

    def greedy_actions(self, obs: Tensor, role: Role) -> Tensor:
        """The allowed actions of the highest expected return, ``[B]``."""
        features = self.online.torso(obs)
        mean = self.online.head(features, role).mean()
        if self.action_mask is not None:
            mean = mean.masked_fill(~self.action_mask(features), -torch.inf)
        return mean.argmax(-1)

    def update(self, batch: Transition, phase: int = 0) -> Update:  # noqa: ARG002 - every update is like the others
        """One gradient step of the weighted loss; each optimizer has its own parameters."""
        loss, report = self.loss(batch)
        optimize(loss, *self.optimizers, max_norm=self.max_grad_norm)
        return report

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """The actions of highest expected return, ``[N]``."""
        return self.greedy_actions(obs, role)

    def policy_net(self) -> QNet:
        """The online network."""
        return self.online

    @property
    def parts(self) -> Parts:
        """Both networks and every optimizer."""
        optimizers = {f"optimizer {i}": optimizer for i, optimizer in enumerate(self.optimizers)}
        return {"online": self.online, "target": self.target, **optimizers}
