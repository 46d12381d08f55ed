"""The parts of a run that depend on the family of its algorithm, and those that families share: torsos and ICM."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, assert_never

import torch
from torch import nn

from rlbench.algorithms.base import OffPolicyLearner
from rlbench.algorithms.icm import Curiosity
from rlbench.buffers.ring import Column
from rlbench.collectors.explore import Explorer, NoExploration
from rlbench.config import online as spec_algo
from rlbench.config.online import Mlp, Nature, Torso
from rlbench.config.run import Spec
from rlbench.envs.base import Discrete, EnvInfo
from rlbench.errors import UsageError
from rlbench.nets.icm import ICM
from rlbench.nets.torsos import MlpTorso, NatureTorso
from rlbench.ops.types import Transition
from rlbench.training.protocols import Schedule


def adam(*networks: nn.Module, lr: float, eps: float = 1e-8) -> torch.optim.Adam:
    """Return a fused Adam on the parameters of ``networks``."""
    return torch.optim.Adam([p for net in networks for p in net.parameters()], lr=lr, eps=eps, fused=True)


class Parts(NamedTuple):
    """One family's share of a run."""

    learner: OffPolicyLearner[Transition]
    action: Column  # how an action lies in the ring
    training: Callable[[torch.Generator], Explorer]
    eval_explorer: Callable[[torch.Generator], Explorer]
    exploration: Callable[[int], float]  # live agent steps to how much is explored


def _as_preferred(generator: torch.Generator) -> Explorer:  # noqa: ARG001 - no coin is thrown
    return NoExploration()


class OfflineParts(NamedTuple):
    """The parts of an algorithm that never explores."""

    learner: OffPolicyLearner[Transition]
    action: Column  # how an action lies in the ring
    schedules: list[Schedule]  # of the number of updates made, not of steps
    eval_explorer: Callable[[torch.Generator], Explorer] = _as_preferred


def torso(chosen: Torso, spec: Spec, info: EnvInfo) -> NatureTorso | MlpTorso:
    """Freshly drawn from torch's own generator."""
    match chosen:
        case Nature(scale=scale):
            return NatureTorso(stack=spec.task.stack, size=info.obs_shape[-1], scale=scale)
        case Mlp(widths=widths, activation=activation):
            shape = (spec.task.stack, *info.obs_shape)
            return MlpTorso(obs_shape=shape, widths=widths, activation=activation)
        case _:
            assert_never(chosen)


def model(spec: Spec, wanted: spec_algo.Curiosity, lr: float, info: EnvInfo, device: torch.device) -> Curiosity:
    """The model, freshly drawn from torch's own generator; ``lr`` is the algorithm's, if it has none of its own.

    Raises:
        UsageError: actions are real vectors.
    """
    net = ICM(torso(wanted.torso, spec, info), hidden=wanted.hidden, actions=count(spec, info)).to(device)
    return Curiosity(
        net,
        optimizer=adam(net, lr=lr if wanted.lr is None else wanted.lr),
        loss_scale=wanted.loss_scale,
        reward_scale=wanted.reward_scale,
        forward_share=wanted.forward_share,
    )


def count(spec: Spec, info: EnvInfo) -> int:
    """Number of discrete actions.

    Raises:
        UsageError: they are real vectors.
    """
    if not isinstance(info.actions, Discrete):
        wanted = f"{spec.algorithm} chooses among discrete actions"
        raise UsageError(f"{spec.name}: {wanted}; {spec.task.id} wants real vectors")
    return info.actions.n
