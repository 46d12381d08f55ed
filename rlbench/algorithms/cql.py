"""CQL: SAC whose critics are also pressed down on actions that might be taken, and up on those that were."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.algorithms.base import Compilable, Update, compilable, step
from rlbench.algorithms.critic_loss import squared_td_errors
from rlbench.algorithms.multiplier import LagrangeMultiplier
from rlbench.algorithms.sac import SAC
from rlbench.config.offline import Conservative
from rlbench.nets.actors import SquashedActor
from rlbench.ops.action_distributions import uniform_actions
from rlbench.ops.losses import conservative_gap, weighted_mean
from rlbench.ops.state_dict import Parts
from rlbench.ops.types import Role, Transition


class CQL(Compilable):
    """https://arxiv.org/abs/2006.04779, CQL(H); actor, temperature and targets are those of a SAC."""

    cycle = 1

    def __init__(self, sac: SAC, *, multiplier: LagrangeMultiplier, method: Conservative) -> None:
        super().__init__(sac.compiler)
        self.sac, self.multiplier, self.config, self.every = sac, multiplier, method, sac.every

    @torch.no_grad()
    def considered(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """Actions the critics may think too well of, ``[3M, B, A]``, their log-densities ``[3M, B]``, and a goal.

        The goal is ``[B]``. A third is drawn from everywhere, a third from the policy here, a third from the policy at
        what comes next; the first of these serves the target too. All are judged here, as in the paper's code.
        """
        count = self.config.n_action_samples
        policy = self.sac.actor(torch.cat([batch.obs, batch.next_obs]))
        action, log_prob = policy.repeated(count).sample()
        (here, there), (likely, next_likely) = action.chunk(2, 1), log_prob.chunk(2, 1)
        random, density = uniform_actions(batch.action, count)
        future = self.sac.target_critics(batch.next_obs, there[0]).amin(0)
        if self.config.soft_q_backup:
            future = future - self.sac.temperature.value() * next_likely[0]
        log_density = torch.cat([torch.full_like(likely, density), likely, next_likely])
        return torch.cat([random, here, there]), log_density, batch.reward + batch.discount * future

    @compilable
    def critic_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Loss with gaps, mean value and weighted gap, ``[]``, and errors ``[B]`` of the critics (eq. 4)."""
        others, log_density, goal = self.considered(batch)
        value = self.sac.critics.each(batch.obs, torch.cat([batch.action[None], others]))  # [K, 1 + 3M, B]
        td_loss, q, error = squared_td_errors(value[:, 0], goal, batch.weight)
        asked = self.config
        gap = asked.conservative_weight * conservative_gap(value[:, 0], value[:, 1:], log_density, asked.temperature)
        critic_loss = td_loss + self.multiplier.value() * (batch.weight * gap).mean(1).sum()
        return critic_loss, q, error, weighted_mean(gap.detach().mean(0), batch.weight)

    def update(self, batch: Transition, phase: int = 0) -> Update:  # noqa: ARG002 - all updates are alike
        """A step of the critics, of the multiplier, of the actor and of the temperature."""
        if self.config.actor_first:
            self.sac.update_actor(batch)
        critic_loss, q, error, gap = self.critic_loss(batch)
        multiplier = self.multiplier.value()
        optimize_each(critic_loss, self.sac.critic_optimizer, max_norm=self.config.max_grad_norm)
        self.multiplier.learn(gap, batch.weight.sum())
        if not self.config.actor_first:
            self.sac.update_actor(batch)
        metrics = self.sac.metrics(critic_loss, q)
        return Update({**metrics, "gap": gap, "multiplier": multiplier}, error)

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Samples of the policy, ``[N, A]``; its mode when it is judged."""
        return self.sac.act(obs, role)

    def policy(self) -> SquashedActor:
        """The actor."""
        return self.sac.actor

    @property
    def parts(self) -> Parts:
        """The SAC and the multiplier."""
        return {"sac": self.sac, "multiplier": self.multiplier}


def optimize_each(critic_loss: Tensor, optimizer: torch.optim.Optimizer, *, max_norm: float | None) -> None:
    """One step of K critics ``[K, ...]``, the gradient of each cut at ``max_norm`` by itself."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = torch.autograd.grad(critic_loss, parameters)
    if max_norm is not None:
        norm = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()  # [K]
        share = (max_norm / (norm + 1e-6)).clamp(max=1)[:, None, None]
        gradients = tuple(g * share for g in gradients)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    step(optimizer)
