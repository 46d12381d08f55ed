"""A finished run's policy at play, as when it is judged, with as much chance as is asked for."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

import torch

from rlbench.assembly import dqn
from rlbench.assembly.environments import describe, environments
from rlbench.assembly.evaluation import ring_of
from rlbench.buffers.ring import Ring
from rlbench.buffers.samplers import Uniform
from rlbench.collectors.base import Actor
from rlbench.collectors.explore import EpsilonGreedy
from rlbench.config.online import QLearning
from rlbench.config.run import Spec
from rlbench.envs.base import Discrete, VectorEnv
from rlbench.errors import UsageError
from rlbench.ops.state_dict import State, branch, into_module
from rlbench.seeds import Seeds


class PolicyPlayer(NamedTuple):
    """A policy, its explorer and the environments on which it plays."""

    actor: Actor
    frame_stacker: Ring  # stacks the frames that the actor observes
    explorer: EpsilonGreedy
    envs: VectorEnv  # freshly made, of whole games and raw points


def policy_player(spec: Spec, state: State, *, epsilon: float, num_envs: int, seed: int) -> PolicyPlayer:
    """The policy in the ``state`` of a run of ``spec``, on the CPU: equal seeds give equal episodes.

    Raises:
        UsageError: it does not learn the values of discrete actions.
    """
    algo = able(spec)
    seeds, device, info = Seeds(seed).child("games"), torch.device("cpu"), describe(spec)
    if not isinstance(info.actions, Discrete):
        raise UsageError(f"{spec.name}: {spec.task.id} takes continuous actions; record it without --epsilon")
    parts = dqn.parts(spec, algo, info, device)
    learner = parts.learner
    into_module(learner.policy(), branch(state, "policy"))
    torch.manual_seed(seeds.child("noise").number())  # for a network with noise of its own
    env_seeds = seeds.child("env").numbers(num_envs)
    generator = seeds.child("explore").torch(device)
    nobody = Uniform(seeds.torch(device))  # never drawn from: this ring only stacks frames
    capacity = (spec.task.stack + 2) * num_envs
    return PolicyPlayer(
        actor=learner,
        frame_stacker=ring_of(spec, info, parts.action, device, capacity=capacity, num_envs=num_envs, sampler=nobody),
        explorer=EpsilonGreedy(actions=info.actions.n, generator=generator, epsilon=epsilon),
        envs=environments(spec.task, seeds=env_seeds, training=False),
    )


def able(spec: Spec) -> QLearning:
    """How the policy of a run of ``spec`` learns, if games are recorded of such.

    Raises:
        UsageError: it does not learn the values of discrete actions.
    """
    if not isinstance(spec.algo, QLearning):
        raise UsageError(f"{spec.name}: is no Q-learning; games are recorded of dqn, qrdqn and their kin")
    return spec.algo


def fingerprint(kept: State) -> str:
    """SHA-256 of a kept policy's parameters, as ``outcome.json`` says it of the last one."""
    total = sha256()
    for name, value in sorted(branch(kept, "policy").items()):
        if isinstance(value, torch.Tensor):
            total.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
