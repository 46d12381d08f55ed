"""CQL: SAC with a penalty on the critics' values of actions outside the data."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor, nn

from rlbench.algorithms.base import Compilable, Update, compilable
from rlbench.algorithms.sac import SAC
from rlbench.algorithms.steps import optimize, squared_td_errors
from rlbench.config.offline import CQLConfig
from rlbench.ops.action_distributions import SquashedGaussianPolicy, uniform_actions
from rlbench.ops.losses import conservative_gap, weighted_mean
from rlbench.ops.state_dict import Composite
from rlbench.ops.types import Transition


class LagrangeMultiplier(Composite):
    """The multiplier of CQL's gap: 1, or learned so that the weighted gap meets a threshold (eq. 30 of the paper)."""

    saved = ("log", "optimizer")

    def __init__(
        self, *, device: torch.device, lagrange_threshold: float | None = None, lr: float = 0.0, max_multiplier: float
    ) -> None:
        self.lagrange_threshold, self.max_multiplier = lagrange_threshold, max_multiplier
        self.log = nn.Parameter(torch.zeros((), device=device))
        self.optimizer = torch.optim.Adam([self.log], lr=lr, fused=True)

    def value(self) -> Tensor:
        """The multiplier, ``[]``, without gradient."""
        return self.log.detach().exp().clamp(0, self.max_multiplier)

    def learn(self, gap: Tensor, weight: Tensor) -> None:
        """One step, if there is a threshold: up while the gap ``[]`` exceeds it; none if the ``weight`` ``[]`` is 0."""
        if self.lagrange_threshold is not None:
            excess = torch.where(weight > 0, gap - self.lagrange_threshold, 0.0)
            optimize(-self.log.exp() * excess, self.optimizer)
            self.log.data.clamp_(max=math.log(self.max_multiplier))  # the value's clamp would stop the gradient


class CQL(Compilable):
    """https://arxiv.org/abs/2006.04779, CQL(H); actor, temperature and targets are those of a SAC."""

    cycle_length = 1
    saved = ("sac", "multiplier")

    def __init__(self, sac: SAC, *, multiplier: LagrangeMultiplier, config: CQLConfig) -> None:
        super().__init__(sac.compiler)
        self.sac, self.multiplier, self.config, self.periodic_actions = sac, multiplier, config, sac.periodic_actions
        self.act, self.policy_net = sac.act, sac.policy_net

    @torch.no_grad()
    def candidate_actions(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """Sampled actions of CQL's gap, ``[3M, B, A]``, their log-densities ``[3M, B]``, and the TD target ``[B]``.

        A third is uniform, a third is of the policy at ``obs``, a third of the policy at ``next_obs``; the first of the
        last third also serves the target. All are evaluated at ``obs``, as in the paper's code.
        """
        count = self.config.n_action_samples
        policy = self.sac.actor(torch.cat([batch.obs, batch.next_obs]))
        action, log_prob = policy.expand(count).sample_and_log_prob()
        (action, next_action), (log_prob, next_log_prob) = action.chunk(2, 1), log_prob.chunk(2, 1)
        random, density = uniform_actions(batch.action, count)
        future = self.sac.target_critics(batch.next_obs, next_action[0]).amin(0)
        if self.config.soft_q_backup:
            future = future - self.sac.temperature.value() * next_log_prob[0]
        log_density = torch.cat([torch.full_like(log_prob, density), log_prob, next_log_prob])
        return torch.cat([random, action, next_action]), log_density, batch.reward + batch.discount * future

    @compilable
    def critic_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The critics' loss, gap included, mean value, errors ``[B]`` and weighted gap (eq. 4); others are ``[]``."""
        others, log_density, target = self.candidate_actions(batch)
        value = self.sac.critics.action_values(batch.obs, torch.cat([batch.action[None], others]))  # [K, 1 + 3M, B]
        td_loss, q, error = squared_td_errors(value[:, 0], target, batch.weight)
        config = self.config
        gap = config.conservative_weight * conservative_gap(value[:, 0], value[:, 1:], log_density, config.temperature)
        critic_loss = td_loss + self.multiplier.value() * (batch.weight * gap).mean(1).sum()
        return critic_loss, q, error, weighted_mean(gap.detach().mean(0), batch.weight)

    def update(self, batch: Transition, phase: int = 0) -> Update:  # noqa: ARG002 - all updates are alike
        """A step of the critics, of the multiplier, of the actor and of the temperature."""
        if self.config.actor_first:
            self.sac.update_actor(batch)
        critic_loss, q, error, gap = self.critic_loss(batch)
        multiplier = self.multiplier.value()
        optimize(critic_loss, self.sac.critic_optimizer, max_norm=self.config.max_grad_norm, clip_per_critic=True)
        self.multiplier.learn(gap, batch.weight.sum())
        if not self.config.actor_first:
            self.sac.update_actor(batch)
        metrics = self.sac.metrics(critic_loss, q)
        return Update({**metrics, "gap": gap, "multiplier": multiplier}, error)


EPSILON = 1e-6
"""``tanh_epsilon`` of ARISE-Initiative/robomimic@d309eae robomimic/models/distributions.py."""


class SACWithCloning(SAC):
    """SAC whose actor first clones behavior (robomimic/algo/cql.py, ``_train_policy_on_batch``, at d309eae)."""

    @cached_property
    def cloning(self) -> Tensor:
        """``[]``, 1 while the actor clones the behavior, then 0; a schedule fills it in place."""
        return torch.ones_like(self.temperature.log.detach())

    def objective(self, batch: Transition, policy: SquashedGaussianPolicy, action: Tensor) -> Tensor:
        """The data's log-density while the actor clones, then the minimum value of ``action`` ``[B, A]``; ``[B]``."""
        value = super().objective(batch, policy, action)
        return torch.where(self.cloning > 0, policy.log_prob_of_tanh(atanh(batch.action)), value)


def atanh(action: Tensor) -> Tensor:
    """The inverse of tanh at actions ``[B, A]``, clipped to ``EPSILON`` within ±1, to ``[B, A]``."""
    return 0.5 * ((1 + action).clamp_min(EPSILON).log() - (1 - action).clamp_min(EPSILON).log())
