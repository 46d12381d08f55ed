"""The evaluation of a policy by its protocol, online and offline alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from rlbench.assembly.components import no_exploration
from rlbench.assembly.environments import environments
from rlbench.buffers.prioritized import PrioritizedSampler
from rlbench.buffers.ring import ArraySpec, RingBuffer
from rlbench.buffers.samplers import UniformSampler
from rlbench.collectors.evaluate import Evaluation
from rlbench.collectors.explore import Actor, Explorer
from rlbench.collectors.recording import ShardRecorder
from rlbench.config.run import Spec
from rlbench.envs.base import Box, EnvInfo
from rlbench.envs.normalize import ObsTransform
from rlbench.seeds import Seeds

DTYPES = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}


class EvaluationSetup(NamedTuple):
    """The actor, and the treatment of its actions and observations."""

    actor: Actor
    threads: int  # that step the environments
    eval_explorer: Callable[[torch.Generator], Explorer] = no_exploration
    to_env_action: Callable[[torch.Tensor], torch.Tensor] | None = (
        None  # from a chosen action to the one that is carried out
    )
    obs_transform: ObsTransform | None = None  # of observations


def evaluation(spec: Spec, info: EnvInfo, setup: EvaluationSetup, device: torch.device, epoch: int) -> Evaluation:
    """The ``epoch``-th evaluation of a run."""
    return protocol_evaluation(spec, info, setup, device, Seeds(spec.seed).child("evaluation", epoch))


def protocol_evaluation(
    spec: Spec,
    info: EnvInfo,
    setup: EvaluationSetup,
    device: torch.device,
    seeds: Seeds,
    recorder: ShardRecorder | None = None,
) -> Evaluation:
    """An evaluation by the protocol, with fresh environments and a ring that only stacks frames.

    A ``recorder`` ends it by its steps, in place of the protocol's episodes.
    """
    protocol = spec.protocol
    env_seeds = seeds.child("env").numbers(protocol.envs)
    torch.manual_seed(seeds.child("noise").number())
    capacity = (spec.task.stack + 2) * protocol.envs
    return Evaluation(
        actor=setup.actor,
        buffer=ring_of(spec, info, device, capacity=capacity, num_envs=protocol.envs),
        explorer=setup.eval_explorer(seeds.child("explore").torch(device)),
        envs=environments(
            spec.task, seeds=env_seeds, training=False, obs_transform=setup.obs_transform, threads=setup.threads
        ),
        seeds=env_seeds,
        episodes=protocol.episodes,
        to_env_action=setup.to_env_action,
        recorder=recorder,
    )


def ring_of(
    spec: Spec,
    info: EnvInfo,
    device: torch.device,
    *,
    capacity: int,
    num_envs: int,
    sampler: UniformSampler | PrioritizedSampler | None = None,
    n_step: int = 1,
    kind: type[RingBuffer] = RingBuffer,
) -> RingBuffer:
    """An empty ring with the shapes and dtypes of a run's environments; without ``sampler`` it only stacks frames."""
    actions = info.actions
    return kind(
        capacity=capacity,
        num_envs=num_envs,
        obs=ArraySpec(info.obs_shape, DTYPES[np.dtype(info.obs_dtype).name]),
        action=ArraySpec(actions.low.shape, torch.float32) if isinstance(actions, Box) else ArraySpec((), torch.int64),
        n_step=n_step,
        gamma=spec.algo.gamma,
        stack=spec.task.stack,
        sampler=sampler or UniformSampler(Seeds(spec.seed).torch(device)),
        device=device,
    )
