"""PPO, and A2C, which is PPO that looks at every rollout once, as a whole, and clips nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from rlbench.algorithms.base import optimize
from rlbench.algorithms.onpolicy import (
    ActorValue,
    PGUpdate,
    Returns,
    RolloutBatch,
    normalize,
    rollout_batch,
    state_values,
    weighted_mean,
)
from rlbench.nets.actor_critic import PolicyValue
from rlbench.ops.state_dict import Parts, State, into_parts, of_parts, tensor
from rlbench.ops.types import Role, Rollout


class Objective(NamedTuple):
    """What is minimised; the defaults are A2C's."""

    clip: float | None = None  # how far from 1 the ratio of probabilities still pays; None is the plain gradient
    dual_clip: float | None = (
        None  # what a bad action's loss is cut at, in advantages: https://arxiv.org/abs/1912.09729
    )
    value_clip: bool = False  # the critic, too, is held within ``clip`` of what it said before
    value: float = 0.5  # coefficient of the critic's loss, which has no half of its own
    entropy: float = 0.01  # coefficient of the entropy
    normalize: bool = False  # advantages have mean 0 and deviation 1 in every batch


class Passes(NamedTuple):
    """How often a rollout is gone through, and in how many batches; the defaults are A2C's."""

    epochs: int = 1
    minibatches: int = 1
    recompute: bool = False  # what actions were worth is found anew before each repeat but the first


Pass: TypeAlias = Callable[[RolloutBatch, tuple[Tensor, ...]], Tensor]


class PPO:
    """https://arxiv.org/abs/1707.06347; without clip and repeats A2C, https://arxiv.org/abs/1602.01783."""

    def __init__(
        self,
        net: ActorValue,
        *,
        optimizer: torch.optim.Optimizer,
        returns: Returns,
        objective: Objective,
        max_grad_norm: float | None,
        passes: Passes,
        greedy: bool,
        generator: torch.Generator,
    ) -> None:
        self.net, self.optimizer, self.returns, self.objective = net, optimizer, returns, objective
        self.max_grad_norm, self.passes, self.steps = max_grad_norm, passes, passes.epochs * passes.minibatches
        self.greedy, self.generator = greedy, generator  # it shuffles
        self.through: Pass = self.eagerly  # build puts a faster way of computing the same here, where there is one

    def update(self, rollout: Rollout) -> PGUpdate:
        """Every repeat over the shuffled batches of a rollout."""
        known, reports = rollout_batch(self.net, rollout, self.returns), []
        for repeat in range(self.passes.epochs):
            if repeat and self.passes.recompute:
                known = self.recompute_values(known, rollout)
            order = torch.randperm(len(known.weight), generator=self.generator, device=self.generator.device)
            reports.append(self.through(known, order.tensor_split(self.passes.minibatches)))
        return PGUpdate(*torch.cat(reports).mean(0).unbind())

    def eagerly(self, known: RolloutBatch, batches: tuple[Tensor, ...]) -> Tensor:
        """A step for each of the rows ``minibatches`` chooses; their reports, ``[minibatches, 4]``."""
        reports = []
        for rows in batches:
            loss, report = self.loss(RolloutBatch(*(column[rows] for column in known)))
            optimize(loss, (self.optimizer,), max_norm=self.max_grad_norm)
            reports.append(torch.stack(report))
        return torch.stack(reports)

    def recompute_values(self, known: RolloutBatch, rollout: Rollout) -> RolloutBatch:
        """The lesson with values, advantages and goals of the critic as it is now; log-probabilities stay."""
        value = state_values(self.net, rollout)
        advantage, goal = self.returns(rollout, value)
        return known._replace(value=value[:-1].flatten(), advantage=advantage.flatten(), value_target=goal.flatten())

    def loss(self, batch: RolloutBatch) -> tuple[Tensor, PGUpdate]:
        """What is minimised, ``[]`` (eq. 9): pure and of fixed shape, it compiles whole."""
        found: PolicyValue = self.net(batch.obs)
        ours, weight = self.objective, batch.weight
        log_prob = found.policy.log_prob(batch.action)
        advantage = normalize(batch.advantage, weight) if ours.normalize else batch.advantage
        policy_loss = -weighted_mean(self.gain(log_prob, batch.log_prob, advantage), weight)
        value_loss = weighted_mean(self.miss(found.value, batch), weight)
        entropy = weighted_mean(found.policy.entropy(), weight)
        moved = weighted_mean(batch.log_prob - log_prob, weight)
        loss = policy_loss + ours.value * value_loss - ours.entropy * entropy
        report = (policy_loss, value_loss, entropy, moved)
        return loss, PGUpdate(*(x.detach() for x in report))

    def gain(self, log_prob: Tensor, before: Tensor, advantage: Tensor) -> Tensor:
        """What is to grow, ``[B]``: eq. 7, or for A2C the log-probability times the advantage."""
        clip, dual_clip = self.objective.clip, self.objective.dual_clip
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
        if not self.objective.value_clip or self.objective.clip is None:
            return error
        near = batch.value + (value - batch.value).clamp(-self.objective.clip, self.objective.clip)
        return torch.max(error, (near - batch.value_target).square())

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Sampled actions; ``[N]`` numbers or ``[N, A]`` reals, which may lie out of bounds."""
        policy = self.net.policy(obs)
        return policy.mode() if role == "eval" and self.greedy else policy.draw()

    def policy(self) -> ActorValue:
        """Actor and critic."""
        return self.net

    def state_dict(self) -> State:
        """The networks, what the optimizer has gathered, the scale of returns, and the shuffling."""
        return {**of_parts(self._parts()), "shuffle": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """Take them over, in place."""
        into_parts(self._parts(), state)
        self.generator.set_state(tensor(state, "shuffle"))

    def _parts(self) -> Parts:
        return {"net": self.net, "optimizer": self.optimizer, "returns": self.returns}
