"""PPO, and A2C, which is PPO that looks at every rollout once, as a whole, and clips nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from rlbench.algorithms.base import Compilable, Compiler, compilable
from rlbench.algorithms.onpolicy import (
    METRICS,
    ActorValue,
    Returns,
    RolloutBatch,
    normalize,
    rollout_batch,
    state_values,
)
from rlbench.algorithms.steps import optimize
from rlbench.config.online import Surrogate
from rlbench.nets.actor_critic import PolicyValue
from rlbench.ops.losses import weighted_mean
from rlbench.ops.types import Metrics, Role, Rollout

Pass: TypeAlias = Callable[[RolloutBatch, tuple[Tensor, ...]], Tensor]
"""Steps on minibatches of rows ``[B]``, to their policy losses, value losses, entropies and divergences, ``[n, 4]``."""


class PPO(Compilable):
    """https://arxiv.org/abs/1707.06347; without clip and repeats A2C, https://arxiv.org/abs/1602.01783."""

    saved = ("net", "optimizer", "returns", "shuffle")

    def __init__(
        self,
        net: ActorValue,
        *,
        optimizer: torch.optim.Optimizer,
        returns: Returns,
        method: Surrogate,
        greedy: bool,
        generator: torch.Generator,
        engine: Pass | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        """``engine`` computes the steps of a pass faster than ``eagerly``; ``generator`` shuffles."""
        super().__init__(compiler)
        self.net, self.optimizer, self.returns, self.config = net, optimizer, returns, method
        self.steps, self.greedy, self.shuffle = method.epochs * method.minibatches, greedy, generator
        self.engine = engine

    def update(self, rollout: Rollout) -> Metrics:
        """Every repeat over the shuffled batches of a rollout."""
        known, reports = rollout_batch(self.net, rollout, self.returns), []
        for repeat in range(self.config.epochs):
            if repeat and self.config.recompute:
                known = self.recompute_values(known, rollout)
            order = torch.randperm(len(known.weight), generator=self.shuffle, device=self.shuffle.device)
            batches = order.tensor_split(self.config.minibatches)
            reports.append((self.engine or self.eagerly)(known, batches))
        return dict(zip(METRICS, torch.cat(reports).mean(0).unbind(), strict=True))

    def eagerly(self, known: RolloutBatch, batches: tuple[Tensor, ...]) -> Tensor:
        """A step for each of the rows ``minibatches`` chooses; their reports, ``[minibatches, 4]``."""
        reports = []
        for rows in batches:
            loss, report = self.loss(RolloutBatch(*(column[rows] for column in known)))
            optimize(loss, self.optimizer, max_norm=self.config.max_grad_norm)
            reports.append(report)
        return torch.stack(reports)

    def recompute_values(self, known: RolloutBatch, rollout: Rollout) -> RolloutBatch:
        """The lesson with values, advantages and goals of the critic as it is now; log-probabilities stay."""
        value = state_values(self.net, rollout)
        advantage, goal = self.returns(rollout, value)
        return known._replace(value=value[:-1].flatten(), advantage=advantage.flatten(), value_target=goal.flatten())

    @compilable
    def loss(self, batch: RolloutBatch) -> tuple[Tensor, Tensor]:
        """Compute the loss, ``[]`` (eq. 9), and ``METRICS``, ``[4]``."""
        found: PolicyValue = self.net(batch.obs)
        ours, weight = self.config, batch.weight
        log_prob = found.policy.log_prob(batch.action)
        advantage = normalize(batch.advantage, weight) if ours.normalize else batch.advantage
        policy_loss = -weighted_mean(self.gain(log_prob, batch.log_prob, advantage), weight)
        value_loss = weighted_mean(self.miss(found.value, batch), weight)
        entropy = weighted_mean(found.policy.entropy(), weight)
        moved = weighted_mean(batch.log_prob - log_prob, weight)
        loss = policy_loss + ours.value * value_loss - ours.entropy * entropy
        report = (policy_loss, value_loss, entropy, moved)
        return loss, torch.stack(report).detach()

    def gain(self, log_prob: Tensor, before: Tensor, advantage: Tensor) -> Tensor:
        """What is to grow, ``[B]``: eq. 7, or for A2C the log-probability times the advantage."""
        clip, dual_clip = self.config.clip, self.config.dual_clip
        if clip is None:
            return log_prob * advantage
        ratio = (log_prob - before).exp()
        gain = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        if dual_clip is not None:
            gain = torch.where(advantage < 0, torch.max(gain, dual_clip * advantage), gain)
        return gain

    def miss(self, value: Tensor, batch: RolloutBatch) -> Tensor:
        """Squared errors of the critic, ``[B]``; with ``value_clip`` the worse of it and of its clipped self."""
        error = (value - batch.value_target).square()
        if not self.config.value_clip or self.config.clip is None:
            return error
        near = batch.value + (value - batch.value).clamp(-self.config.clip, self.config.clip)
        return torch.max(error, (near - batch.value_target).square())

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Sampled actions; ``[N]`` numbers or ``[N, A]`` reals, which may lie out of bounds."""
        policy = self.net.policy(obs)
        return policy.mode() if role == "eval" and self.greedy else policy.draw()

    def policy(self) -> ActorValue:
        """Actor and critic."""
        return self.net
