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


class Playing(NamedTuple):
    """Who plays on what."""

    actor: Actor
    stacked: Ring  # what actor sees of what was shown
    explorer: EpsilonGreedy
    envs: VectorEnv  # freshly made, of whole games and raw points


def playing(spec: Spec, kept: State, *, epsilon: float, lanes: int, seed: int) -> Playing:
    """The policy ``kept`` of a run of ``spec``, on the CPU, where equal seeds give equal games.

    Raises:
        UsageError: it does not learn the values of discrete actions.
    """
    algo = able(spec)
    seeds, device, info = Seeds(seed).child("games"), torch.device("cpu"), describe(spec)
    if not isinstance(info.actions, Discrete):
        raise UsageError(f"{spec.name}: {spec.task.id} takes continuous actions; record it without --epsilon")
    parts = dqn.parts(spec, algo, info, device)
    learner = parts.learner
    into_module(learner.policy(), branch(kept, "policy"))
    torch.manual_seed(seeds.child("noise").number())  # what its network draws while it acts
    numbers = seeds.child("env").numbers(lanes)
    generator = seeds.child("explore").torch(device)
    nobody = Uniform(seeds.torch(device))  # nothing is ever drawn: the ring is there to stack frames
    capacity = (spec.task.stack + algo.replay.n_step + 1) * lanes
    return Playing(
        actor=learner,
        stacked=ring_of(spec, info, parts.action, device, capacity=capacity, lanes=lanes, sampler=nobody),
        explorer=EpsilonGreedy(actions=info.actions.n, generator=generator, epsilon=epsilon),
        envs=environments(spec.task, seeds=numbers, training=False),
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
