"""SAC whose actor clones the behavior policy in its first ``bc_steps`` gradient steps, for CQL."""

from __future__ import annotations

import torch
from torch import Tensor

from rlbench.algorithms.base import Compiler
from rlbench.algorithms.sac import SAC, Temperature
from rlbench.nets.actors import SquashedActor
from rlbench.nets.critics import Critics
from rlbench.ops.action_distributions import Squashed
from rlbench.ops.types import Transition

EPSILON = 1e-6
"""``tanh_epsilon`` of robomimic/models/distributions.py, of the same commit."""


class ClonedSAC(SAC):
    """``_train_policy_on_batch`` of ARISE-Initiative/robomimic@d309eae robomimic/algo/cql.py."""

    def __init__(
        self,
        actor: SquashedActor,
        critics: Critics,
        *,
        temperature: Temperature,
        actor_optimizer: torch.optim.Optimizer,
        critic_optimizer: torch.optim.Optimizer,
        tau: float,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(
            actor,
            critics,
            actor_optimizer=actor_optimizer,
            critic_optimizer=critic_optimizer,
            temperature=temperature,
            tau=tau,
            delay=1,
            redq_subset=None,
            compiler=compiler,
        )
        self.cloning = torch.ones_like(
            temperature.log.detach()
        )  # [] 1 while the actor clones, then 0; set by a schedule

    def objective(self, batch: Transition, policy: Squashed, action: Tensor) -> Tensor:
        """The data's log-density while the actor clones, then the minimum value of ``action`` ``[B, A]``; ``[B]``."""
        value = super().objective(batch, policy, action)
        return torch.where(self.cloning > 0, policy.log_prob(atanh(batch.action)), value)


def atanh(action: Tensor) -> Tensor:
    """The inverse of tanh at actions ``[B, A]``, clipped to ``EPSILON`` within ±1, to ``[B, A]``."""
    return 0.5 * ((1 + action).clamp_min(EPSILON).log() - (1 - action).clamp_min(EPSILON).log())
