"""Memory, threads and processes of a run, from its Spec: the replay exactly, the rest as estimates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final, assert_never

from rlbench.config import offline_discrete
from rlbench.config.offline import BatchConstrained, Conservative, CriticRegularized, Offline
from rlbench.config.offline_discrete import OfflineQ
from rlbench.config.online import (
    ActorCritic,
    Categorical,
    Curiosity,
    DiscreteSAC,
    Expected,
    Head,
    Implicit,
    Mlp,
    Nature,
    PolicyGradient,
    Proposed,
    QLearning,
    Quantiles,
)
from rlbench.config.run import Algo, Spec
from rlbench.config.tasks import AtariTask, GoalTask, GymnasiumTask, MujocoTask, OfflineTask, Task

SLOT = 4 + 3 * 1 + 4
"""Bytes of one slot of the ring beside observation and action: reward float32, three flags, age int32."""

MASS = 8
"""Bytes of a slot's priority."""

PYTHON = 600_000_000
"""Resident bytes of an interpreter with torch and compiled code; 300 MB were measured without the latter."""

EVAL_WORKER = 360_000_000
"""Resident bytes of an evaluation worker."""

EMULATOR = 900_000
"""Resident bytes of one ALE emulator with its screens."""

COPIES = 5
"""Of the parameters: online, target, gradient and Adam's two moments."""

WORKSPACES = 3
"""Copies of a batch's observations and activations that are alive at once: forward, its target, backward."""

PASSES = 1.7
"""The same of a whole rollout of frames, evaluated at once and learned from in minibatches; measured on PPO."""

PHYSICS = 1_050_000
"""Resident bytes of one MuJoCo env, HalfCheetah's: model and data."""

ROBOT = 10_400_000
"""The same of one Fetch env, with its meshes."""

SCRATCH = 9_000_000
"""Other resident bytes of a run of small networks: kernels loaded on first use, and temporary arrays."""

CONVOLVING = 28_000_000
"""The same where frames are convolved."""

VECTORS = {
    "CartPole-v1": (4, 0),
    "Pendulum-v1": (3, 1),
    "Ant-v4": (27, 8),
    "HalfCheetah-v4": (17, 6),
    "Hopper-v4": (11, 3),
    "Walker2d-v4": (17, 6),
    "Swimmer-v4": (8, 2),
    "Humanoid-v4": (376, 17),
    "Reacher-v4": (11, 2),
    "InvertedPendulum-v4": (4, 1),
    "InvertedDoublePendulum-v4": (11, 1),
    "FetchReach-v4": (16, 4),
}
"""Numbers in an observation and in an action, where the one is a vector and the other is not a number."""

BYTES = {"Catch": 10 * 5, "Doors": 15}
"""Numbers in an observation of bytes."""

PLACE = 24
"""Bytes of a recorded step's flags and of its index."""

MOST_ACTIONS = 18

SMALL_ENV = 5_000
"""Resident bytes of one env of a small task, CartPole's."""

DATASET_STEPS = 1_000_000
"""Steps of a data set that is not here, as nearly every published one has."""


SMOKE = 2_000
"""Steps that a smoke run without a data set records for itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """Bytes of host or device memory, by use."""

    replay_bytes: int = 0  # of the replay, what a checkpoint takes along
    replay: int
    networks: int  # parameters, gradients, moments and the activations of one batch
    emulators: int  # training and evaluation envs
    scratch: int = 0  # kernels, and what passes
    eval_workers: int = 0  # evaluation workers and policies with a pending evaluation
    base: int  # the interpreter and its libraries

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.replay + self.networks + self.emulators + self.scratch + self.eval_workers + self.base

    @property
    def disk(self) -> int:
        """Bytes of disk at most, while a checkpoint and the one that replaces it are both there, and two policies."""
        return 2 * (self.replay_bytes + self.networks) + 2 * self.policies

    @property
    def policies(self) -> int:
        """Bytes of disk that stay when the run has ended, about: the best policy and the last."""
        return 2 * self.networks // COPIES

    def line(self) -> str:
        """For people: ``memory ≈ 1.41 GB (replay 0.71 GB, networks 72.2 MB, …)``."""
        parts = {
            "replay": self.replay,
            "networks": self.networks,
            "environments": self.emulators,
            "scratch": self.scratch,
            "evaluation workers": self.eval_workers,
            "libraries": self.base,
        }
        listing = ", ".join(f"{name} {size(count)}" for name, count in parts.items() if count)
        return f"memory ≈ {size(self.total)} ({listing})"


def footprint(spec: Spec, eval_workers: int = 0, *, steps: int | None = None) -> Footprint:
    """The largest memory of a run of ``spec``, with its ``eval_workers`` processes.

    ``steps``: rows of the data set, if its file is here; else its name or a default gives the number.
    """
    numbers, width, action = _shapes(spec.task)
    algo = spec.algo
    slot = numbers * width + action + SLOT
    match algo:
        case QLearning(replay=replay):
            networks = _networks(spec.task, algo, numbers)
            replay_bytes = replay.capacity * (slot + (MASS if replay.priority else 0))
        case ActorCritic(replay=replay):
            networks = _layers(spec.task, algo)
            replay_bytes = replay.capacity * (slot + (MASS if replay.priority else 0))
        case DiscreteSAC(replay=replay):
            networks = _discrete_actor_critic(spec.task, algo, numbers)
            replay_bytes = replay.capacity * (slot + (MASS if replay.priority else 0))
        case Offline():
            networks = _from_data(spec.task, algo, spec.protocol.envs)
            replay_bytes = (steps or DATASET_STEPS) * (
                2 * (4 * numbers + action + 4) + PLACE
            )  # as read, and as laid for the ring
        case OfflineQ():
            networks = _offline_q(spec.task, algo, numbers)
            replay_bytes = (steps or _dataset_steps(spec)) * slot  # frames lie once: the file's array is the ring's
        case PolicyGradient():
            networks = _rollouts(spec.task, algo, numbers)
            replay_bytes = (algo.rollout_length + spec.task.stack + 2) * spec.task.envs * slot
        case _:
            assert_never(algo)
    return Footprint(
        replay=replay_bytes,
        replay_bytes=0 if isinstance(algo, Offline | OfflineQ) else replay_bytes,  # data come from their file again
        networks=networks + _curious(spec, algo),
        emulators=_environments(spec),
        eval_workers=eval_workers
        * (EVAL_WORKER + _environments(spec) + 3 * networks // COPIES),  # it holds one policy, two wait for it
        scratch=SCRATCH if isinstance(algo, ActorCritic | Offline) or isinstance(algo.torso, Mlp) else CONVOLVING,
        base=PYTHON,
    )


def _environments(spec: Spec) -> int:
    """Bytes of the environments; for MuJoCo twice those of an evaluation, since memory is freed late."""
    training, evaluation = spec.task.envs, spec.protocol.envs
    match world_of(spec.task):
        case AtariTask():
            return (training + evaluation) * EMULATOR
        case MujocoTask():
            return (training + 2 * evaluation) * PHYSICS
        case GoalTask():
            return (training + 2 * evaluation) * ROBOT
        case GymnasiumTask(size=int(size), stack=stack):
            return (training + 2 * evaluation) * (EMULATOR + stack * size * size)
        case _:
            return (training + 2 * evaluation) * SMALL_ENV


def _curious(spec: Spec, algo: Algo) -> int:
    if isinstance(algo, ActorCritic | Offline | OfflineQ) or algo.curiosity is None:
        return 0
    return _icm(spec, algo.curiosity)


def world_of(task: Task) -> Task:
    """The task's environment: for a data set, the environment that evaluates its policies."""
    return task.world if isinstance(task, OfflineTask) else task


def _from_data(task: Task, algo: Offline, envs: int) -> int:
    """Bytes of actor, critics and VAE, their copies, and the sampled actions of a batch or of the ``envs`` that act."""
    numbers, actions = VECTORS.get(world_of(task).id, (64, 8))
    layers = [(numbers, *algo.widths, 2 * actions), *[(numbers + actions, *algo.widths, 1)] * 2]
    rows, acting_rows = algo.batch, 0
    match algo.method:
        case BatchConstrained(vae_widths=widths, n_action_samples=candidates, eval_action_samples=each):
            latent = algo.method.latent_dim or algo.method.latent * actions
            layers += [(numbers + actions, *widths, 2 * latent), (numbers + latent, *widths, actions)]
            rows, acting_rows = rows * candidates, envs * each
        case Conservative(n_action_samples=repeats):
            rows *= 3 * repeats + 1
        case CriticRegularized(n_action_samples=samples):
            rows *= samples
        case _:
            pass
    parameters = sum(a * b + b for layer in layers for a, b in pairwise(layer))
    learning = WORKSPACES * rows * sum(sum(layer) for layer in layers)
    acting = acting_rows * max(a + b for layer in layers for a, b in pairwise(layer))  # without gradients
    return 4 * (COPIES * parameters + max(learning, acting))


def _offline_q(task: Task, algo: OfflineQ, numbers: int) -> int:
    """Bytes of an offline Q-learner: of its Q-network, doubled for a second head with a policy."""
    alike = QLearning(head=algo.head, torso=algo.torso, hidden=algo.hidden, batch=algo.batch)
    heads = (
        1 if isinstance(algo.method, offline_discrete.DiscreteImitation | offline_discrete.DiscreteConservative) else 2
    )
    return heads * _networks(world_of(task), alike, numbers)


def _dataset_steps(spec: Spec) -> int:
    """Steps of the data set by its name, if the name contains them; the data of a smoke run are small."""
    data = spec.task.data if isinstance(spec.task, OfflineTask) else ""
    match = re.search(r"-1e([3-6])$", data)
    if match is not None:
        return int(10 ** int(match[1]))
    return SMOKE if spec.smoke and spec.task.id == data else DATASET_STEPS


def _shapes(task: Task) -> tuple[int, int, int]:
    """Numbers in one stored frame, bytes of each, and bytes of an action; an unknown task counts as a small one."""
    task = world_of(task)
    if isinstance(task, AtariTask | GymnasiumTask) and task.size is not None:
        return task.size * task.size, 1, 8
    if task.id in BYTES:
        return BYTES[task.id], 1, 8
    numbers, actions = VECTORS.get(task.id, (64, 8))
    return numbers, 4, 4 * actions or 8


def _layers(task: Task, algo: ActorCritic) -> int:
    """Bytes of an actor, its critics and their copies, and of one batch passing through them."""
    numbers, actions = VECTORS.get(task.id, (64, 8))
    actor, critic = (numbers, *algo.widths, 2 * actions), (numbers + actions, *algo.widths, 1)
    parameters = sum(a * b + b for a, b in pairwise(actor)) + algo.critics * sum(a * b + b for a, b in pairwise(critic))
    per_row = sum(actor) + algo.critics * sum(critic)
    return 4 * (COPIES * parameters + WORKSPACES * algo.batch * per_row)


def _networks(task: Task, algo: QLearning, numbers: int) -> int:
    """Bytes of parameters in all their copies, and of one batch passing through them."""
    layers, activations = _torso(algo.torso, task, numbers)
    features = activations[-1] if activations else numbers
    width, fractions, cosines = _head(algo.head)
    streams = [(features, algo.hidden), (algo.hidden, MOST_ACTIONS * width)]
    if algo.dueling:
        streams += [(features, algo.hidden), (algo.hidden, width)]
    layers += streams * (1 if algo.noisy is None else 2) + ([(cosines, features)] if cosines else [])
    parameters = sum(prod(layer) + layer[-1] for layer in layers)
    beyond = fractions * (features * bool(cosines) + algo.hidden * (1 + algo.dueling) + MOST_ACTIONS * width)
    per_row = numbers * task.stack + sum(activations) + beyond
    return 4 * (COPIES * parameters + WORKSPACES * algo.batch * per_row)


def _discrete_actor_critic(task: Task, algo: DiscreteSAC, numbers: int) -> int:
    """Bytes of torso, actor and critics in all their copies, and of one batch passing through them."""
    layers, activations = _torso(algo.torso, task, numbers)
    layers = [*layers, (activations[-1] if activations else numbers, algo.hidden)]
    heads = (1 + algo.critics) * (algo.hidden + 1) * MOST_ACTIONS
    parameters = sum(prod(layer) + layer[-1] for layer in layers) + heads
    moments = 2 * algo.critics  # of a torso that as many optimizers more move
    per_row = numbers * task.stack + sum(activations) + algo.hidden
    return 4 * ((COPIES + moments) * parameters + WORKSPACES * algo.batch * per_row)


def _icm(spec: Spec, curiosity: Curiosity) -> int:
    """Bytes of the ICM, and of the steps passing through it at once."""
    numbers, _, _ = _shapes(spec.task)
    layers, activations = _torso(curiosity.torso, spec.task, numbers)
    width = activations[-1] if activations else numbers
    ahead = [(width + MOST_ACTIONS, curiosity.hidden), (curiosity.hidden, width)]
    layers += [*ahead, (2 * width, curiosity.hidden), (curiosity.hidden, MOST_ACTIONS)]
    parameters = sum(prod(layer) + layer[-1] for layer in layers)
    per_row = numbers * spec.task.stack + sum(activations) + 4 * width + 2 * curiosity.hidden
    match spec.algo:
        case PolicyGradient(rollout_length=rows):
            read = (rows + 1) * spec.task.envs
        case Offline() | OfflineQ():
            read = 0
        case _:
            read = spec.algo.batch * (spec.algo.replay.n_step + 1)
    return 4 * (COPIES * parameters + WORKSPACES * read * per_row)


def _rollouts(task: Task, algo: PolicyGradient, numbers: int) -> int:
    """Bytes of actor and critic in their copies, and of a whole rollout passing through them."""
    layers, activations = _torso(algo.torso, task, numbers)
    features = activations[-1] if activations else numbers
    if isinstance(algo.torso, Nature):
        layers, activations, features = [*layers, (features, algo.hidden)], [*activations, algo.hidden], algo.hidden
    parameters = sum(prod(layer) + layer[-1] for layer in layers) + features * MOST_ACTIONS
    twice = 1 if isinstance(algo.torso, Nature) else 2
    rows, copies = (algo.rollout_length + 1) * task.envs, PASSES if isinstance(algo.torso, Nature) else WORKSPACES
    return 4 * twice * (COPIES * parameters + round(copies * rows * (numbers * task.stack + sum(activations))))


def _head(head: Head) -> tuple[int, int, int]:
    """Numbers per action, states a row becomes, and cosines of its embedding."""
    match head:
        case Expected():
            return 1, 1, 0
        case Categorical(n_atoms=atoms):
            return atoms, 1, 0
        case Quantiles(n_quantiles=count):
            return count, 1, 0
        case Implicit(n_taus=learn, n_target_taus=target, cosines=cosines):
            return 1, max(learn, target), cosines
        case Proposed(n_quantiles=count, cosines=cosines):
            return 1, count, cosines
        case _:
            assert_never(head)


def _torso(torso: Nature | Mlp, task: Task, numbers: int) -> tuple[list[tuple[int, ...]], list[int]]:
    """Shapes of the weights, inputs first and outputs last, and the number of outputs of each layer."""
    layers: list[tuple[int, ...]] = []
    activations: list[int] = []
    if isinstance(torso, Mlp):
        for width in torso.widths:
            layers.append((activations[-1] if activations else numbers, width))
            activations.append(width)
        return layers, activations
    channels, side = task.stack, (task.size if isinstance(task, AtariTask | GymnasiumTask) else None) or 84
    for out, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        side = (side - kernel) // stride + 1
        layers.append((channels, kernel, kernel, out))
        activations.append(out * side * side)
        channels = out
    return layers, activations


def size(count: int) -> str:
    """Bytes for people: ``0.71 GB`` from a tenth of a gigabyte on, ``1.4 MB`` below."""
    return f"{count / 1e9:.2f} GB" if count >= 100_000_000 else f"{count / 1e6:.1f} MB"


MOST_THREADS: Final = 4  # a batch of 32 to 64 frames, or of 256 rows through 256 units, gains nothing from more
MOST_EVAL_WORKERS: Final = 8  # TD3+BC on a GPU trains half a minute an epoch; one core evaluates it in four


def eval_worker_count(spec: Spec, *, requested: int | None, cores: int, threads: int) -> int:
    """Number of evaluation workers for a run with ``cores`` of its own and ``threads`` of training; 0: none.

    A run that may stop at any evaluation waits for each, and an online run evaluates itself.
    """
    if spec.protocol.stop is not None or spec.algo.learns_from != "data":
        return 0
    most = min(MOST_EVAL_WORKERS, 1 + spec.budget.steps // spec.budget.epoch)
    if requested is not None:
        return min(requested, most)
    return 0 if spec.smoke else min(most, max(0, cores - threads))  # a worker on a core of the training gains nothing


def useful_threads(spec: Spec, *, gpu: bool, cores: int) -> int:
    """Number of torch threads from which ``spec`` gains on ``cores``; one if a GPU computes."""
    return min(MOST_THREADS, cores) if spec.algo.wide and not gpu else 1
