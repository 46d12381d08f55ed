"""PPO, and A2C, which is PPO with one epoch, one minibatch and no clipping."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from rlbench.algorithms.base import ActorCriticLearner, Compiler, compilable
from rlbench.algorithms.onpolicy import (
    METRICS,
    ActorCriticNet,
    AdvantageEstimator,
    RolloutBatch,
    normalize,
    rollout_batch,
    state_values,
)
from rlbench.algorithms.steps import optimize
from rlbench.config.online import PPOConfig
from rlbench.nets.actor_critic import ActorCriticOutput
from rlbench.ops.losses import weighted_mean
from rlbench.ops.types import Metrics, Rollout

EpochSteps: TypeAlias = Callable[[RolloutBatch, tuple[Tensor, ...]], Tensor]
"""A gradient step per minibatch of ``[B]`` rows, to policy loss, value loss, entropy, divergence, ``[n, 4]``."""


class PPO(ActorCriticLearner):
    """https://arxiv.org/abs/1707.06347; without ``clip`` and with one epoch A2C, https://arxiv.org/abs/1602.01783."""

    net: ActorCriticNet
    saved = ("net", "optimizer", "returns", "shuffle")

    def __init__(
        self,
        net: ActorCriticNet,
        *,
        optimizer: torch.optim.Optimizer,
        estimator: AdvantageEstimator,
        config: PPOConfig,
        greedy: bool,
        generator: torch.Generator,
        engine: EpochSteps | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        """``engine`` computes the steps of an epoch faster than ``train_minibatches``; ``generator`` shuffles."""
        super().__init__(compiler)
        self.net, self.optimizer, self.config, self.engine = net, optimizer, config, engine
        self.returns = estimator  # its name in a checkpoint
        self.steps, self.greedy, self.shuffle = config.epochs * config.minibatches, greedy, generator

    def update(self, rollout: Rollout) -> Metrics:
        """Every epoch over the shuffled minibatches of a rollout."""
        batch, reports = rollout_batch(self.net, rollout, self.returns), []
        for epoch in range(self.config.epochs):
            if epoch and self.config.recompute:
                batch = self.recompute_values(batch, rollout)
            order = torch.randperm(len(batch.weight), generator=self.shuffle, device=self.shuffle.device)
            batches = order.tensor_split(self.config.minibatches)
            reports.append((self.engine or self.train_minibatches)(batch, batches))
        return dict(zip(METRICS, torch.cat(reports).mean(0).unbind(), strict=True))

    def train_minibatches(self, batch: RolloutBatch, batches: tuple[Tensor, ...]) -> Tensor:
        """A step for each minibatch of rows; their ``METRICS``, ``[minibatches, 4]``."""
        reports = []
        for rows in batches:
            loss, report = self.loss(RolloutBatch(*(column[rows] for column in batch)))
            optimize(loss, self.optimizer, max_norm=self.config.max_grad_norm)
            reports.append(report)
        return torch.stack(reports)

    def recompute_values(self, batch: RolloutBatch, rollout: Rollout) -> RolloutBatch:
        """The batch with values, advantages and value targets of the current critic; log-probabilities stay."""
        value = state_values(self.net, rollout)
        advantage, value_target = self.returns(rollout, value)
        return batch._replace(
            value=value[:-1].flatten(), advantage=advantage.flatten(), value_target=value_target.flatten()
        )

    @compilable
    def loss(self, batch: RolloutBatch) -> tuple[Tensor, Tensor]:
        """Compute the loss, ``[]`` (eq. 9), and ``METRICS``, ``[4]``."""
        output: ActorCriticOutput = self.net(batch.obs)
        config, weight = self.config, batch.weight
        log_prob = output.policy.log_prob(batch.action)
        advantage = normalize(batch.advantage, weight) if config.normalize else batch.advantage
        policy_loss = -weighted_mean(self.surrogate(log_prob, batch.log_prob, advantage), weight)
        value_loss = weighted_mean(self.value_error(output.value, batch), weight)
        entropy = weighted_mean(output.policy.entropy(), weight)
        divergence = weighted_mean(batch.log_prob - log_prob, weight)
        loss = policy_loss + config.value * value_loss - config.entropy * entropy
        report = (policy_loss, value_loss, entropy, divergence)
        return loss, torch.stack(report).detach()

    def surrogate(self, log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor) -> Tensor:
        """The surrogate objective, ``[B]``: eq. 7, or for A2C the log-probability times the advantage."""
        clip, dual_clip = self.config.clip, self.config.dual_clip
        if clip is None:
            return log_prob * advantage
        ratio = (log_prob - old_log_prob).exp()
        objective = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        if dual_clip is not None:
            objective = torch.where(advantage < 0, torch.max(objective, dual_clip * advantage), objective)
        return objective

    def value_error(self, value: Tensor, batch: RolloutBatch) -> Tensor:
        """Squared errors of the critic, ``[B]``; with ``value_clip`` the maximum with the clipped value's."""
        error = (value - batch.value_target).square()
        if not self.config.value_clip or self.config.clip is None:
            return error
        clipped_value = batch.value + (value - batch.value).clamp(-self.config.clip, self.config.clip)
        return torch.max(error, (clipped_value - batch.value_target).square())
