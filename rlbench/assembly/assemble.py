"""Build a run from its Spec. The modules of this package choose the class of every object."""

from __future__ import annotations

from functools import partial
from typing import assert_never

import numpy as np
import torch

from rlbench.algorithms.base import Compiler, OnPolicyLearner
from rlbench.algorithms.icm import CuriousOffPolicyLearner, CuriousOnPolicyLearner
from rlbench.assembly import components, continuous, discrete, offline, policy_gradient
from rlbench.assembly.components import AlgorithmParts
from rlbench.assembly.device import device_of, keep_memory, stepping_threads, threads_of
from rlbench.assembly.engine import compiler_of, engine_of, select_engine
from rlbench.assembly.environments import async_environments, environments
from rlbench.assembly.evaluation import EvaluationSetup, evaluation, ring_of
from rlbench.buffers.async_ring import AsyncRingBuffer
from rlbench.buffers.hindsight import HindsightReplay
from rlbench.buffers.prioritized import PrioritizedSampler
from rlbench.buffers.ring import RingBuffer
from rlbench.buffers.rollout_view import TrajectoryView, newest_rollout
from rlbench.buffers.samplers import UniformSampler
from rlbench.collectors.asynchronous import AsyncCollector
from rlbench.collectors.explore import Explorer, NoExploration
from rlbench.collectors.sync import Collector
from rlbench.config import online
from rlbench.config.offline import DiscreteOfflineConfig, OfflineConfig
from rlbench.config.run import Runtime, Spec
from rlbench.config.tasks import AtariTask, GoalTask, MujocoTask
from rlbench.datasets.checksums import Seal
from rlbench.envs.base import AsyncVectorEnv, EnvInfo, VectorEnv
from rlbench.envs.normalize import ObsNormalizer
from rlbench.errors import UsageError
from rlbench.ops.types import NStepTrajectory, Transition
from rlbench.seeds import Seeds
from rlbench.training.clock import ReplayRatio, RngState, RolloutSchedule
from rlbench.training.offline import OfflineTrainer
from rlbench.training.online import OnlineTrainer
from rlbench.training.protocols import Schedule
from rlbench.training.updates import EagerUpdater, MeanMetrics, RolloutUpdater


def build(spec: Spec, runtime: Runtime, info: EnvInfo, seal: Seal | None = None) -> OnlineTrainer | OfflineTrainer:
    """Build the training of a run before its first step; ``seal`` is the checksum of data that was just verified."""
    device = device_of(runtime)
    keep_memory()
    torch.set_num_threads(threads_of(spec, runtime, device))
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False  # equal specs, equal numbers
    torch.backends.cudnn.allow_tf32 = False  # ten bits of a pixel up to 255 would change scores
    torch.manual_seed(Seeds(spec.seed).child("init").number())
    training: OnlineTrainer | OfflineTrainer
    match spec.algo:
        case OfflineConfig() | DiscreteOfflineConfig():
            parts = parts_of(spec, spec.algo, info, device, compiler_of(spec, runtime, device))
            training = offline.build_offline(spec, spec.algo, parts, info, device, runtime, seal)
        case online.PolicyGradientConfig():
            training = _on_policy(spec, spec.algo, info, device, runtime)
        case online.QLearningConfig() | online.ActorCriticConfig() | online.DiscreteSACConfig():
            training = _off_policy(spec, spec.algo, info, device, runtime)
        case _:
            assert_never(spec.algo)
    torch.manual_seed(Seeds(spec.seed).child("noise").number())  # what networks draw while learning
    return training


def _off_policy(
    spec: Spec, algo: online.OffPolicyConfig, info: EnvInfo, device: torch.device, runtime: Runtime
) -> OnlineTrainer:
    seeds = Seeds(spec.seed)
    parts = parts_of(spec, algo, info, device, compiler_of(spec, runtime, device))
    schedules: list[Schedule] = []
    sampler = _sampler(algo.replay, spec.task.envs, seeds.child("replay").torch(device), schedules)
    ring = ring_of(
        spec,
        info,
        device,
        capacity=algo.replay.capacity,
        num_envs=spec.task.envs,
        sampler=sampler,
        n_step=algo.replay.n_step,
        kind=RingBuffer if spec.async_batch is None else AsyncRingBuffer,
    )
    explorer = parts.explorer(seeds.child("explore").torch(device))
    schedules.append((parts.exploration, explorer.set_exploration_rate))
    source = _source(spec, algo.replay, ring, seeds.child("hindsight").torch(device))
    eager = _off_policy_updater(spec, algo, parts, source, info, device)
    updater = select_engine(
        eager,
        engine_of(spec, runtime, device),
        learner=eager.learner,
        sampler=sampler,
        generators=(sampler.generator, *([source.generator] if isinstance(source, HindsightReplay) else [])),
    )
    setup = EvaluationSetup(parts.learner, stepping_threads(runtime), parts.eval_explorer)
    return OnlineTrainer(
        collector=_collector(spec, setup, ring, explorer),
        updater=updater,
        buffer=source,
        learner=eager.learner,
        rng=RngState(device if device.type == "cuda" else None),
        evaluate=lambda epoch: evaluation(spec, info, setup, device, epoch),
        budget=spec.budget,
        schedules=schedules,
        update_schedule=ReplayRatio(algo.learning_starts, algo.updates_per_step),
    )


def _off_policy_updater(
    spec: Spec,
    algo: online.OffPolicyConfig,
    parts: AlgorithmParts,
    source: RingBuffer | HindsightReplay,
    info: EnvInfo,
    device: torch.device,
) -> EagerUpdater[Transition] | EagerUpdater[NStepTrajectory]:
    """The updater of an off-policy learner, with curiosity if ``algo`` has it; no task has goals and curiosity."""
    metrics = MeanMetrics(device)
    if isinstance(algo, online.ActorCriticConfig) or algo.curiosity is None or isinstance(source, HindsightReplay):
        return EagerUpdater(source=source, learner=parts.learner, batch=algo.batch, metrics=metrics)
    lr = algo.lr if isinstance(algo, online.QLearningConfig) else algo.actor_lr
    learner = CuriousOffPolicyLearner(parts.learner, components.icm_module(spec, algo.curiosity, lr, info, device))
    return EagerUpdater(source=TrajectoryView(source), learner=learner, batch=algo.batch, metrics=metrics)


def _on_policy(
    spec: Spec, algo: online.PolicyGradientConfig, info: EnvInfo, device: torch.device, runtime: Runtime
) -> OnlineTrainer:
    if algo.normalize_obs and info.obs_dtype == np.uint8:  # the ring would cast normalized ones to bytes
        raise UsageError(f"algo.normalize_obs: {spec.task.id} shows bytes, which stay as they are; set it to false")
    compiler, engine = compiler_of(spec, runtime, device), runtime.update_engine
    inner, optimizer = policy_gradient.build_on_policy(spec, algo, info, device, engine, compiler)
    learner: OnPolicyLearner = inner
    if algo.curiosity is not None:
        learner = CuriousOnPolicyLearner(inner, components.icm_module(spec, algo.curiosity, algo.lr, info, device))
    num_envs, obs_transform = spec.task.envs, ObsNormalizer(info.obs_shape) if algo.normalize_obs else None
    capacity = (algo.rollout_length + spec.task.stack + 2) * num_envs
    ring = ring_of(spec, info, device, capacity=capacity, num_envs=num_envs)
    to_env_action = policy_gradient.env_action_map(algo, info)
    setup = EvaluationSetup(inner, stepping_threads(runtime), to_env_action=to_env_action, obs_transform=obs_transform)
    return OnlineTrainer(
        collector=_collector(spec, setup, ring, NoExploration()),
        updater=RolloutUpdater(
            rollout=partial(newest_rollout, ring, algo.rollout_length), learner=learner, metrics=MeanMetrics(device)
        ),
        buffer=ring,
        learner=learner,
        rng=RngState(device if device.type == "cuda" else None),
        evaluate=lambda epoch: evaluation(spec, info, setup, device, epoch),
        budget=spec.budget,
        schedules=policy_gradient.schedules(algo, optimizer),
        update_schedule=RolloutSchedule(algo.rollout_length, learner.steps),
    )


def _collector(spec: Spec, setup: EvaluationSetup, ring: RingBuffer, explorer: Explorer) -> Collector | AsyncCollector:
    if isinstance(ring, AsyncRingBuffer) and isinstance(spec.task, AtariTask | MujocoTask):
        return _async_collector(spec, spec.task, setup, ring, explorer)

    def open_envs(segment: int) -> VectorEnv:
        env_seeds = Seeds(spec.seed).child("env", segment).numbers(spec.task.envs)
        return environments(
            spec.task, seeds=env_seeds, training=True, obs_transform=setup.obs_transform, threads=setup.threads
        )

    return Collector(
        actor=setup.actor,
        buffer=ring,
        explorer=explorer,
        open_envs=open_envs,
        num_envs=spec.task.envs,
        to_env_action=setup.to_env_action,
        obs_normalizer=setup.obs_transform if isinstance(setup.obs_transform, ObsNormalizer) else None,
    )


def _async_collector(
    spec: Spec, task: AtariTask | MujocoTask, setup: EvaluationSetup, ring: AsyncRingBuffer, explorer: Explorer
) -> AsyncCollector:
    def open_envs(segment: int) -> AsyncVectorEnv:
        env_seeds = Seeds(spec.seed).child("env", segment).numbers(task.envs)
        return async_environments(task, seeds=env_seeds, async_batch=task.async_batch or task.envs)

    return AsyncCollector(
        actor=setup.actor, buffer=ring, explorer=explorer, open_envs=open_envs, num_envs=spec.task.envs
    )


def parts_of(
    spec: Spec,
    algo: online.OffPolicyConfig | OfflineConfig | DiscreteOfflineConfig,
    info: EnvInfo,
    device: torch.device,
    compiler: Compiler | None = None,
) -> AlgorithmParts:
    """The parts of a family that learns from a replay or from data."""
    match algo:
        case online.QLearningConfig():
            return discrete.q_learning_parts(spec, algo, info, device, compiler)
        case online.ActorCriticConfig():
            return continuous.actor_critic_parts(spec, algo, info, device, compiler)
        case online.DiscreteSACConfig():
            return discrete.discrete_sac_parts(spec, algo, info, device, compiler)
        case OfflineConfig():
            return continuous.continuous_offline_parts(spec.name, algo, info, device, compiler)
        case DiscreteOfflineConfig():
            return discrete.discrete_offline_parts(spec, algo, info, device, compiler)
        case _:
            assert_never(algo)


def _sampler(
    replay: online.ReplayConfig, num_envs: int, generator: torch.Generator, schedules: list[Schedule]
) -> UniformSampler | PrioritizedSampler:
    if replay.priority is None:
        return UniformSampler(generator)
    sampler = PrioritizedSampler(
        generator,
        capacity=replay.capacity // num_envs * num_envs,
        num_envs=num_envs,
        alpha=replay.priority.alpha,
        beta=replay.priority.beta.start,
    )
    schedules.append((replay.priority.beta.at, sampler.set_beta))
    return sampler


def _source(
    spec: Spec, replay: online.ReplayConfig, ring: RingBuffer, generator: torch.Generator
) -> RingBuffer | HindsightReplay:
    if replay.hindsight is None or not isinstance(spec.task, GoalTask):
        return ring
    from rlbench.envs.mujoco import GOAL_WIDTH, compute_reward  # noqa: PLC0415 - it imports the simulator

    return HindsightReplay(
        ring=ring,
        goal=GOAL_WIDTH,
        reward=compute_reward,
        her_ratio=1 - 1 / replay.hindsight.k,
        max_episode_steps=min(spec.task.steps, ring.length - 1),
        generator=generator,
    )
