"""How an on-policy learner computes: eagerly, or for small networks on the host by hand."""

from __future__ import annotations

import torch

from rlbench.errors import UsageError
from rlbench.learners.byhand import Regression, Surrogate
from rlbench.learners.natural import Natural
from rlbench.learners.ppo import PPO
from rlbench.learners.rollouts import OnPolicyLearner
from rlbench.nets.actorvalue import Apart
from rlbench.spec.run import Runtime

SMALL = 2**23  # multiplications of one layer for one batch, beyond which a framework costs nothing beside them


def quicken(learner: OnPolicyLearner, runtime: Runtime, device: torch.device, *, rows: int) -> None:
    """Let ``learner``, which sees ``rows`` steps in a rollout, compute as ``runtime`` says.

    Raises:
        UsageError: by hand was asked for where it is not written out.
    """
    if runtime.engine == "eager":
        return
    match learner:
        case PPO(net=Apart() as net) if device.type == "cpu":
            if runtime.engine == "byhand" or _multiplications(net, rows // learner.passes.batches) <= SMALL:
                learner.through = Surrogate(
                    net, learner.optimizer, learner.objective, max_grad_norm=learner.max_grad_norm
                )
        case Natural(net=Apart() as net) if device.type == "cpu":
            if runtime.engine == "byhand" or _multiplications(net, rows) <= SMALL:
                learner.regress = Regression(net, learner.optimizer, steps=learner.critic_steps)
        case _ if runtime.engine == "byhand":
            raise UsageError("engine=byhand: only PPO, A2C, NPG and TRPO with algo.torso=mlp on a CPU; use auto")
        case _:
            return


def _multiplications(net: Apart, rows: int) -> int:
    """Of the widest layer, forwards."""
    return rows * max(parameter.numel() for parameter in net.parameters())
