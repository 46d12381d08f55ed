"""The parts of a run that depend on its algorithm's family, and the parts that families share: torsos and ICM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, assert_never

import torch
from torch import nn

from rlbench.algorithms.base import OffPolicyLearner
from rlbench.algorithms.icm import Curiosity
from rlbench.collectors.explore import Explorer, NoExploration
from rlbench.config.online import CuriosityConfig, MLPConfig, NatureConfig, TorsoConfig
from rlbench.config.run import Spec
from rlbench.envs.base import Box, Discrete, EnvInfo
from rlbench.errors import UsageError
from rlbench.nets.icm import ICM
from rlbench.nets.torsos import MLPTorso, NatureTorso
from rlbench.ops.types import Transition
from rlbench.training.protocols import Schedule


def adam(*networks: nn.Module, lr: float, eps: float = 1e-8) -> torch.optim.Adam:
    """Return a fused Adam on the parameters of ``networks``."""
    return torch.optim.Adam([p for net in networks for p in net.parameters()], lr=lr, eps=eps, fused=True)


def no_exploration(generator: torch.Generator) -> Explorer:  # noqa: ARG001 - it draws no number
    """The explorer of policies whose own actions are taken."""
    return NoExploration()


class AlgorithmParts(NamedTuple):
    """The parts of an off-policy or offline run that depend on its algorithm."""

    learner: OffPolicyLearner[Transition]
    explorer: Callable[[torch.Generator], Explorer] = no_exploration  # in training
    eval_explorer: Callable[[torch.Generator], Explorer] = no_exploration
    exploration: Callable[[int], float] = lambda _: 0.0  # from agent steps to the exploration rate
    schedules: Sequence[Schedule] = ()  # offline, of gradient steps


def build_torso(config: TorsoConfig, spec: Spec, info: EnvInfo) -> NatureTorso | MLPTorso:
    """Build a torso; torch's own generator draws its weights."""
    match config:
        case NatureConfig(scale=scale):
            return NatureTorso(stack=spec.task.stack, size=info.obs_shape[-1], scale=scale)
        case MLPConfig(widths=widths, activation=activation):
            shape = (spec.task.stack, *info.obs_shape)
            return MLPTorso(obs_shape=shape, widths=widths, activation=activation)
        case _:
            assert_never(config)


def icm_module(spec: Spec, config: CuriosityConfig, lr: float, info: EnvInfo, device: torch.device) -> Curiosity:
    """Build an ICM, drawn from torch's own generator; ``lr`` is the algorithm's, used if the ICM's config has none.

    Raises:
        UsageError: actions are continuous.
    """
    net = ICM(
        build_torso(config.torso, spec, info), hidden=config.hidden, actions=discrete_action_count(spec, info)
    ).to(device)
    return Curiosity(
        net,
        optimizer=adam(net, lr=lr if config.lr is None else config.lr),
        loss_scale=config.loss_scale,
        reward_scale=config.reward_scale,
        forward_share=config.forward_share,
    )


def discrete_action_count(spec: Spec, info: EnvInfo) -> int:
    """Number of discrete actions.

    Raises:
        UsageError: they are continuous.
    """
    if not isinstance(info.actions, Discrete):
        choice = f"{spec.algorithm} chooses among discrete actions"
        raise UsageError(f"{spec.name}: {choice}; {spec.task.id} has continuous actions")
    return info.actions.n


def vector_dims(name: str, info: EnvInfo) -> tuple[int, int]:
    """Dimensions of observations and actions, both vectors.

    Raises:
        UsageError: actions are discrete, or observations are no vectors; ``name`` is the run's.
    """
    if not isinstance(info.actions, Box):
        raise UsageError(f"{name}: needs continuous actions; the task has discrete ones")
    if len(info.obs_shape) != 1:
        raise UsageError(f"{name}: needs vector observations; the task's have shape {info.obs_shape}")
    return info.obs_shape[0], int(info.actions.low.shape[0])
