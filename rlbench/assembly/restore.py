"""Saved policies: evaluated by the protocol of their run, or played with any exploration."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

import torch

from rlbench.assembly import assemble, dqn, offline, policy_gradient
from rlbench.assembly.device import device_of, stepping_threads, threads_of
from rlbench.assembly.environments import describe, environments
from rlbench.assembly.evaluation import EvaluationSetup, protocol_evaluation, ring_of
from rlbench.buffers.ring import RingBuffer
from rlbench.collectors.evaluate import Evaluation
from rlbench.collectors.explore import Actor, EpsilonGreedy
from rlbench.config.offline import OfflineConfig
from rlbench.config.offline_discrete import DiscreteOfflineConfig
from rlbench.config.online import PolicyGradientConfig, QLearningConfig
from rlbench.config.run import Runtime, Spec
from rlbench.datasets import episodes
from rlbench.envs.base import Discrete, EnvInfo, VectorEnv
from rlbench.envs.normalize import ObsNormalizer, ObsTransform
from rlbench.errors import RefusedFile, UsageError
from rlbench.ops.state_dict import State, load_module, subtree, tensor
from rlbench.seeds import Seeds


def restore_evaluation(spec: Spec, state: State, runtime: Runtime, seeds: Seeds) -> Evaluation:
    """Prepare the evaluation by ``spec.protocol`` of the policy in the ``state`` of a run of ``spec``.

    Raises:
        UsageError: the device is missing, or the checkpoint lacks the scale of observations.
        RefusedFile: the checkpoint holds another network.
    """
    device, info = device_of(runtime), describe(spec)
    torch.set_num_threads(threads_of(spec, runtime, device))
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False  # as in training
    torch.backends.cudnn.allow_tf32 = False
    return protocol_evaluation(spec, info, _setup(spec, state, info, device, runtime), device, seeds)


def _setup(spec: Spec, state: State, info: EnvInfo, device: torch.device, runtime: Runtime) -> EvaluationSetup:
    algo, threads, scale = spec.algo, stepping_threads(runtime), _scale(spec, state, info)
    if isinstance(algo, PolicyGradientConfig):
        learner, _ = policy_gradient.build_on_policy(spec, algo, info, device)
        policy, bound = learner.policy(), policy_gradient.action_bound(algo, info)
        setup = EvaluationSetup(learner, threads, bound=bound, scale=scale)
    else:
        if isinstance(algo, OfflineConfig | DiscreteOfflineConfig):
            parts = offline.offline_parts_of(spec, algo, info, device)
        else:
            parts = assemble.parts_of(spec, algo, info, device)
        policy = parts.learner.policy()
        setup = EvaluationSetup(parts.learner, threads, parts.eval_explorer, scale=scale)
    try:
        load_module(policy, subtree(state, "policy"))
    except (RuntimeError, TypeError):
        raise RefusedFile(
            f"{spec.name}: the checkpoint holds another network than the Spec; --force runs it again"
        ) from None
    return setup


def _scale(spec: Spec, state: State, info: EnvInfo) -> ObsTransform | None:
    """The normalization of the training's observations, now constant, if the policy uses one."""
    if not spec.algo.normalizes_obs:
        return None
    saved = subtree(state, "scale")
    if not saved:
        raise UsageError(f"{spec.name}: its checkpoint has no scale of observations; --force runs it again")
    if spec.algo.learns_from == "data":
        return episodes.ObsScaler(*(tensor(saved, part).cpu().numpy() for part in episodes.ObsScaler._fields))
    scale = ObsNormalizer(info.obs_shape)
    scale.load_state_dict(saved)
    return scale


class PolicyPlayer(NamedTuple):
    """A policy, its explorer and the environments on which it plays."""

    actor: Actor
    frame_stacker: RingBuffer  # stacks the frames that the actor observes
    explorer: EpsilonGreedy
    envs: VectorEnv  # whole games with unclipped rewards


def policy_player(spec: Spec, state: State, *, epsilon: float, num_envs: int, seed: int) -> PolicyPlayer:
    """The policy in the ``state`` of a run of ``spec``, on the CPU: equal seeds give equal episodes.

    Raises:
        UsageError: it does not learn the values of discrete actions.
    """
    algo = q_learning_of(spec)
    seeds, device, info = Seeds(seed).child("games"), torch.device("cpu"), describe(spec)
    if not isinstance(info.actions, Discrete):
        raise UsageError(f"{spec.name}: {spec.task.id} takes continuous actions; record it without --epsilon")
    parts = dqn.dqn_parts(spec, algo, info, device)
    load_module(parts.learner.policy(), subtree(state, "policy"))
    torch.manual_seed(seeds.child("noise").number())  # for a network with noise of its own
    generator = seeds.child("explore").torch(device)
    capacity = (spec.task.stack + 2) * num_envs
    return PolicyPlayer(
        actor=parts.learner,
        frame_stacker=ring_of(spec, info, device, capacity=capacity, num_envs=num_envs),
        explorer=EpsilonGreedy(actions=info.actions.n, generator=generator, epsilon=epsilon),
        envs=environments(spec.task, seeds=seeds.child("env").numbers(num_envs), training=False),
    )


def q_learning_of(spec: Spec) -> QLearningConfig:
    """The algorithm of ``spec``, if its games can be recorded.

    Raises:
        UsageError: it does not learn the values of discrete actions.
    """
    if not isinstance(spec.algo, QLearningConfig):
        raise UsageError(f"{spec.name}: is no Q-learning; only dqn, qrdqn and their variants record games")
    return spec.algo


def fingerprint(state: State) -> str:
    """SHA-256 of a saved policy's parameters, as in ``outcome.json``; equal for two runs of equal results."""
    total = sha256()
    for name, value in sorted(subtree(state, "policy").items()):
        if isinstance(value, torch.Tensor):
            total.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
