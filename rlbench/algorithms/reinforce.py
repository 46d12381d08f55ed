"""REINFORCE: the gradient of the log-probability of each action, times its return."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.algorithms.base import ActorLearner, Compiler, compilable
from rlbench.algorithms.onpolicy import EPSILON, METRICS
from rlbench.algorithms.steps import optimize
from rlbench.nets.actor_critic import DiscreteActor, GaussianActor
from rlbench.ops.losses import weighted_mean
from rlbench.ops.returns import discounted_returns, initial_moments, update_moments
from rlbench.ops.state_dict import Parts
from rlbench.ops.types import Metrics, Rollout


class REINFORCE(ActorLearner):
    """https://link.springer.com/article/10.1007/BF00992696, with returns normalized by the mean and std of all so far.

    A rollout may end within an episode: its return is then bootstrapped from the mean return so far, as in the
    reference code. A rollout is normalized by the statistics from before it.
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
        self.moments = initial_moments((), next(actor.parameters()))

    def return_weights(self, rollout: Rollout) -> Tensor:
        """The normalized return of each action, ``[T, N]``; it updates the running moments."""
        if not self.normalize_returns:
            return discounted_returns(rollout, torch.zeros_like(self.moments.mean).float(), gamma=self.gamma)
        moments = self.moments
        returns = discounted_returns(rollout, moments.mean.float(), gamma=self.gamma)
        self.moments = update_moments(moments, returns.flatten(), (~rollout.final).flatten())
        return (returns - moments.mean.float()) / (moments.var + EPSILON).sqrt().float()

    def update(self, rollout: Rollout) -> Metrics:
        """One gradient step on a rollout."""
        returns, weight = self.return_weights(rollout).flatten(), (~rollout.final).flatten().float()
        loss, report = self.loss(rollout.obs[:-1].flatten(0, 1), rollout.action.flatten(0, 1), returns, weight)
        optimize(loss, self.optimizer)
        return report

    @compilable
    def loss(self, obs: Tensor, action: Tensor, returns: Tensor, weight: Tensor) -> tuple[Tensor, Metrics]:
        """Compute the loss, ``[]``, of rows ``[M]``; its gradient is the paper's theorem 1."""
        policy = self.actor(obs)
        loss = -weighted_mean(policy.log_prob(action) * returns, weight)
        zero = torch.zeros_like(loss.detach())
        entropy = weighted_mean(policy.entropy(), weight).detach()
        return loss, dict(zip(METRICS, (loss.detach(), zero, entropy, zero), strict=True))

    @property
    def parts(self) -> Parts:
        """The actor, its optimizer, and the moments of the returns."""
        return {"actor": self.actor, "optimizer": self.optimizer, "moments": self.moments._asdict()}
