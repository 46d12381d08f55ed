"""REINFORCE: the gradient of the log-probability of what was done, times what came of it."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.algorithms.base import Compilable, Compiler, compilable
from rlbench.algorithms.onpolicy import EPSILON, METRICS
from rlbench.algorithms.steps import optimize
from rlbench.nets.actor_critic import DiscreteActor, GaussianActor
from rlbench.ops.losses import weighted_mean
from rlbench.ops.returns import discounted_returns, fresh, merge_moments
from rlbench.ops.state_dict import Parts
from rlbench.ops.types import Metrics, Role, Rollout


class Reinforce(Compilable):
    """https://link.springer.com/article/10.1007/BF00992696, with returns in standard deviations of all returns so far.

    A rollout does not end with its episodes: what is still open is taken to be worth the mean return so far, as
    documented, and the statistics that a rollout is judged by are those from before it.
    """

    steps = 1

    def __init__(
        self,
        actor: GaussianActor | DiscreteActor,
        *,
        optimizer: torch.optim.Optimizer,
        gamma: float,
        normalize_returns: bool,
        greedy: bool,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(compiler)
        self.actor, self.optimizer, self.gamma = actor, optimizer, gamma
        self.normalize_returns, self.greedy = normalize_returns, greedy
        self.moments = fresh((), next(actor.parameters()))

    def return_weights(self, rollout: Rollout) -> Tensor:
        """What each action is multiplied with, ``[T, N]``; counts the returns."""
        if not self.normalize_returns:
            return discounted_returns(rollout, torch.zeros_like(self.moments.mean).float(), gamma=self.gamma)
        known = self.moments
        reached = discounted_returns(rollout, known.mean.float(), gamma=self.gamma)
        self.moments = merge_moments(known, reached.flatten(), (~rollout.dead).flatten())
        return (reached - known.mean.float()) / (known.var + EPSILON).sqrt().float()

    def update(self, rollout: Rollout) -> Metrics:
        """One step up the gradient."""
        worth, weight = self.return_weights(rollout).flatten(), (~rollout.dead).flatten().float()
        loss, report = self.loss(rollout.obs[:-1].flatten(0, 1), rollout.action.flatten(0, 1), worth, weight)
        optimize(loss, self.optimizer)
        return report

    @compilable
    def loss(self, obs: Tensor, action: Tensor, worth: Tensor, weight: Tensor) -> tuple[Tensor, Metrics]:
        """Compute the loss, ``[]``, of rows ``[M]``; its gradient is the paper's theorem 1. It compiles whole."""
        policy = self.actor(obs)
        loss = -weighted_mean(policy.log_prob(action) * worth, weight)
        nothing = torch.zeros_like(loss.detach())
        entropy = weighted_mean(policy.entropy(), weight).detach()
        return loss, dict(zip(METRICS, (loss.detach(), nothing, entropy, nothing), strict=True))

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Sampled actions; ``[N]`` numbers or ``[N, A]`` reals, which may lie out of bounds."""
        policy = self.actor(obs)
        action: Tensor = policy.mode() if role == "eval" and self.greedy else policy.draw()
        return action

    def policy(self) -> GaussianActor | DiscreteActor:
        """The actor."""
        return self.actor

    @property
    def parts(self) -> Parts:
        """The actor, its optimizer, and the moments of the returns."""
        return {"actor": self.actor, "optimizer": self.optimizer, "moments": self.moments._asdict()}
