"""The evaluation of a policy by its protocol, online and offline alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from rlbench.assembly.components import OfflineParts, Parts, no_exploration
from rlbench.assembly.environments import environments
from rlbench.buffers.prioritized import PrioritizedSampler
from rlbench.buffers.ring import ArraySpec, RingBuffer
from rlbench.buffers.samplers import UniformSampler
from rlbench.collectors.base import Actor
from rlbench.collectors.evaluate import Evaluation
from rlbench.collectors.explore import Explorer
from rlbench.config.run import Spec
from rlbench.envs.base import EnvInfo
from rlbench.envs.normalize import Scaling
from rlbench.seeds import Seeds

DTYPES = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}


class EvaluationSetup(NamedTuple):
    """The actor, its explorers and its action bounds, in training and in evaluation."""

    actor: Actor
    action: ArraySpec  # how an action lies in the ring
    threads: int  # that step the environments
    eval_explorer: Callable[[torch.Generator], Explorer] = no_exploration
    bound: Callable[[torch.Tensor], torch.Tensor] | None = None  # from a chosen action to the one that is carried out
    scale: Scaling | None = None  # of observations


def evaluation_setup(parts: Parts | OfflineParts, *, threads: int, scale: Scaling | None = None) -> EvaluationSetup:
    """The evaluation setup of an off-policy or offline learner."""
    return EvaluationSetup(parts.learner, parts.action, threads, parts.eval_explorer, scale=scale)


def evaluation(spec: Spec, info: EnvInfo, stage: EvaluationSetup, device: torch.device, epoch: int) -> Evaluation:
    """The ``epoch``-th evaluation of a run."""
    return protocol_evaluation(spec, info, stage, device, Seeds(spec.seed).child("evaluation", epoch))


def protocol_evaluation(
    spec: Spec, info: EnvInfo, stage: EvaluationSetup, device: torch.device, seeds: Seeds
) -> Evaluation:
    """An evaluation by the protocol, with fresh environments and a ring that only stacks frames."""
    protocol = spec.protocol
    env_seeds = seeds.child("env").numbers(protocol.envs)
    torch.manual_seed(seeds.child("noise").number())
    capacity = (spec.task.stack + 2) * protocol.envs
    return Evaluation(
        actor=stage.actor,
        recorder=ring_of(spec, info, stage.action, device, capacity=capacity, num_envs=protocol.envs),
        explorer=stage.eval_explorer(seeds.child("explore").torch(device)),
        envs=environments(spec.task, seeds=env_seeds, training=False, scale=stage.scale, threads=stage.threads),
        seeds=env_seeds,
        episodes=protocol.episodes,
        bound=stage.bound,
    )


def ring_of(
    spec: Spec,
    info: EnvInfo,
    action: ArraySpec,
    device: torch.device,
    *,
    capacity: int,
    num_envs: int,
    sampler: UniformSampler | PrioritizedSampler | None = None,
    n_step: int = 1,
    kind: type[RingBuffer] = RingBuffer,
) -> RingBuffer:
    """An empty ring with the shapes and dtypes of a run's environments; without ``sampler`` it only stacks frames."""
    return kind(
        capacity=capacity,
        num_envs=num_envs,
        obs=ArraySpec(info.obs_shape, DTYPES[np.dtype(info.obs_dtype).name]),
        action=action,
        n_step=n_step,
        gamma=spec.algo.gamma,
        stack=spec.task.stack,
        sampler=sampler or UniformSampler(Seeds(spec.seed).torch(device)),
        device=device,
    )
