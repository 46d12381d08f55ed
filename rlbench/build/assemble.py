"""From a Spec to a run. Only the modules of this package name concrete classes."""

from __future__ import annotations

from typing import assert_never

import numpy as np
import torch

from rlbench.buffers.hindsight import GoalLayout, Hindsight
from rlbench.buffers.prioritized import Prioritized
from rlbench.buffers.ring import Column, Ring
from rlbench.buffers.samplers import Uniform
from rlbench.build import actorcritic, qlearning
from rlbench.build.device import device_of, threads_of
from rlbench.build.environments import environments, wanted
from rlbench.build.parts import Parts
from rlbench.collectors.evaluate import Evaluation
from rlbench.collectors.sync import Collector
from rlbench.envs.base import EnvInfo, VectorEnv
from rlbench.fast.metrics import Metrics
from rlbench.fast.noise import Noise
from rlbench.fast.updater import Eager
from rlbench.seeds import Seeds
from rlbench.spec.algo import ActorCritic, QLearning
from rlbench.spec.run import Runtime, Spec
from rlbench.spec.task import GoalTask
from rlbench.trainers.clock import Pace
from rlbench.trainers.offpolicy import OffPolicy, Schedule

DTYPES = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}


def build(spec: Spec, runtime: Runtime, info: EnvInfo) -> OffPolicy:
    """Everything a run is made of, at its beginning."""
    seeds, device, algo = Seeds(spec.seed), device_of(runtime), spec.algo
    torch.set_num_threads(threads_of(spec, runtime, device))
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False  # equal specs, equal numbers
    torch.backends.cudnn.allow_tf32 = False  # pixels up to 255 in ten bits would move scores
    torch.manual_seed(seeds.child("init").number())
    parts = _parts(spec, info, device)
    torch.manual_seed(seeds.child("noise").number())  # what networks draw while learning
    schedules: list[Schedule] = []
    sampler = _sampler(spec, seeds.child("replay").torch(device), schedules)
    ring = _ring(spec, info, parts.action, device, capacity=algo.replay.capacity, lanes=spec.task.envs, sampler=sampler)
    explorer = parts.training(seeds.child("explore").torch(device))
    schedules.append((parts.exploration, explorer.set))

    def opened(segment: int) -> VectorEnv:
        lanes = seeds.child("env", segment).numbers(spec.task.envs)
        return environments(spec.task, seeds=lanes, training=True)

    learner, source = parts.learner, _source(spec, info, ring, seeds.child("hindsight").torch(device))
    return OffPolicy(
        collector=Collector(actor=learner, recorder=ring, explorer=explorer, open_envs=opened, lanes=spec.task.envs),
        updater=Eager(
            source=source,
            learner=learner,
            batch=algo.batch,
            metrics=Metrics(parts.metrics, device),
            summary=parts.summary,
        ),
        buffer=source,
        learner=learner,
        noise=Noise(device if device.type == "cuda" else None),
        evaluate=lambda epoch: _evaluation(spec, info, parts, device, epoch),
        budget=spec.budget,
        schedules=schedules,
        pace=Pace(algo.warmup, algo.updates_per_step),
    )


def _parts(spec: Spec, info: EnvInfo, device: torch.device) -> Parts:
    match spec.algo:
        case QLearning():
            return qlearning.parts(spec, spec.algo, info, device)
        case ActorCritic():
            return actorcritic.parts(spec, spec.algo, info, device)
        case _:
            assert_never(spec.algo)


def _sampler(spec: Spec, generator: torch.Generator, schedules: list[Schedule]) -> Uniform | Prioritized:
    replay = spec.algo.replay
    if replay.priority is None:
        return Uniform(generator)
    lanes, priority = spec.task.envs, replay.priority
    sampler = Prioritized(
        generator,
        capacity=replay.capacity // lanes * lanes,
        lanes=lanes,
        alpha=priority.alpha,
        beta=priority.beta.start,
    )
    schedules.append((priority.beta.at, sampler.anneal))
    return sampler


def _source(spec: Spec, info: EnvInfo, ring: Ring, generator: torch.Generator) -> Ring | Hindsight:
    hindsight = spec.algo.replay.hindsight
    if hindsight is None or not isinstance(spec.task, GoalTask):
        return ring
    goal, reward = wanted()
    return Hindsight(
        ring=ring,
        layout=GoalLayout(observation=info.obs_shape[0] - 2 * goal, goal=goal),
        reward=reward,
        share=1 - 1 / hindsight.k,
        limit=spec.task.steps,
        generator=generator,
    )


def _evaluation(spec: Spec, info: EnvInfo, parts: Parts, device: torch.device, epoch: int) -> Evaluation:
    seeds, protocol = Seeds(spec.seed).child("evaluation", epoch), spec.protocol
    lanes = seeds.child("env").numbers(protocol.envs)
    torch.manual_seed(seeds.child("noise").number())
    rows = spec.task.stack + spec.algo.replay.horizon + 1
    nobody = Uniform(seeds.torch(device))  # nothing is ever drawn: the ring is there to stack frames
    capacity = rows * protocol.envs
    return Evaluation(
        actor=parts.learner,
        recorder=_ring(spec, info, parts.action, device, capacity=capacity, lanes=protocol.envs, sampler=nobody),
        explorer=parts.judging(seeds.child("explore").torch(device)),
        envs=environments(spec.task, seeds=lanes, training=False),
        seeds=lanes,
        episodes=protocol.episodes,
    )


def _ring(
    spec: Spec,
    info: EnvInfo,
    action: Column,
    device: torch.device,
    *,
    capacity: int,
    lanes: int,
    sampler: Uniform | Prioritized,
) -> Ring:
    return Ring(
        capacity=capacity,
        lanes=lanes,
        obs=Column(info.obs_shape, DTYPES[np.dtype(info.obs_dtype).name]),
        action=action,
        horizon=spec.algo.replay.horizon,
        gamma=spec.algo.gamma,
        stack=spec.task.stack,
        sampler=sampler,
        device=device,
    )
