"""Memory, threads and processes of a run, from its Spec: the replay exactly, the rest as estimates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final, assert_never

from rlbench.config import online
from rlbench.config.offline import (
    BCQConfig,
    CQLConfig,
    CRRConfig,
    DiscreteBCConfig,
    DiscreteCQLConfig,
    DiscreteOfflineConfig,
    OfflineConfig,
)
from rlbench.config.run import Spec
from rlbench.config.tasks import AtariTask, GoalTask, GymnasiumTask, MujocoTask, OfflineTask, Task, ToyTask, env_task_of

# Sizes in bytes; all but the first four were measured as resident memory.
SLOT: Final = 4 + 3 * 1 + 4  # of the ring beside observation and action: reward float32, three flags, age int32
PRIORITY: Final = 8  # of a slot
ROW_INDEX: Final = 24  # a recorded step's flags and its index
ACTIONS: Final = 18  # discrete actions at most
PYTHON: Final = 600_000_000  # an interpreter with torch and compiled code; 300 MB without the latter
EVAL_WORKER: Final = 360_000_000
EMULATOR: Final = 900_000  # one ALE emulator with its screens
MUJOCO_ENV: Final = 1_050_000  # HalfCheetah: model and data
FETCH_ENV: Final = 10_400_000  # with its meshes
SMALL_ENV: Final = 5_000  # CartPole
SCRATCH: Final = 9_000_000  # kernels loaded on first use, and temporary arrays, of small networks
CONV_SCRATCH: Final = 28_000_000  # the same where frames are convolved

PARAMETER_COPIES: Final = 5  # online, target, gradient and Adam's two moments
ACTIVATION_COPIES: Final = 3  # of a batch at once: forward, its target, backward
NATURAL_COPIES: Final = 6.3  # the same where a Fisher-vector product differentiates a gradient
FQF_COPIES: Final = 0.91  # of a batch's fractions: at the taus, at their midpoints, and the target's
ROLLOUT_COPIES: Final = 1.7  # of a rollout of frames, evaluated at once and learned from in minibatches

SHAPES: Final = {
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
"""Numbers in an observation vector and in an action, 0 of a discrete one."""

BYTE_OBS: Final = {"Catch": 10 * 5, "Doors": 15}
"""Numbers in an observation of bytes."""

DATASET_STEPS: Final = 1_000_000  # of a data set that is not here, as nearly every published one has
SMOKE: Final = 2_000  # steps that a smoke run without a data set records for itself


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """Bytes of host or device memory, by use."""

    replay_bytes: int = 0  # of the replay, what a checkpoint takes along
    replay: int
    networks: int  # parameters, gradients, moments and the activations of one batch
    activations: int = 0  # those of the networks alone, which no checkpoint holds
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
        return 2 * self.checkpoint + 2 * self.policies

    @property
    def checkpoint(self) -> int:
        """Bytes of a checkpoint at most."""
        return self.replay_bytes + self.networks - self.activations

    @property
    def policies(self) -> int:
        """Bytes of disk that stay when the run has ended, about: the best policy and the last."""
        return 2 * (self.networks - self.activations) // PARAMETER_COPIES

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
        listing = ", ".join(f"{name} {size_text(count)}" for name, count in parts.items() if count)
        return f"memory ≈ {size_text(self.total)} ({listing})"


def footprint(spec: Spec, eval_workers: int = 0, *, steps: int | None = None) -> Footprint:
    """The largest memory of a run of ``spec``, with its ``eval_workers`` processes.

    ``steps``: rows of the data set, if its file is here; else its name or a default gives the number.
    """
    algo, replay, environments = spec.algo, _replay(spec, steps), _environments(spec)
    parameters, activations = (4 * sum(counts) for counts in zip(_networks(spec), _icm(spec), strict=True))
    networks = parameters + activations
    dense = isinstance(algo, online.ActorCriticConfig | OfflineConfig) or isinstance(algo.torso, online.MLPConfig)
    worker = EVAL_WORKER + environments + 3 * networks // PARAMETER_COPIES  # it holds one policy, two wait for it
    return Footprint(
        replay=replay,
        replay_bytes=0 if algo.learns_from == "data" else replay,  # data come from their file again
        networks=networks,
        activations=activations,
        emulators=environments,
        eval_workers=eval_workers * worker,
        scratch=SCRATCH if dense else CONV_SCRATCH,
        base=PYTHON,
    )


def _replay(spec: Spec, steps: int | None) -> int:
    """Bytes of the ring, and of a data set as read."""
    numbers, width, action = _shapes(spec.task)
    slot = numbers * width + action + SLOT
    match spec.algo:
        case OfflineConfig():
            return (steps or DATASET_STEPS) * (2 * (4 * numbers + action + 4) + ROW_INDEX)  # as read, and in the ring
        case DiscreteOfflineConfig():
            return (steps or _dataset_steps(spec)) * slot  # frames lie once: the file's array is the ring's
        case online.PolicyGradientConfig(rollout_length=length):
            return (length + spec.task.stack + 2) * spec.task.envs * slot
        case _:
            return spec.algo.replay.capacity * (slot + PRIORITY * (spec.algo.replay.priority is not None))


def _dataset_steps(spec: Spec) -> int:
    """Steps of the data set by its name, if the name contains them; the data of a smoke run are small."""
    data = spec.task.data if isinstance(spec.task, OfflineTask) else ""
    match = re.search(r"-1e([3-6])$", data)
    if match is not None:
        return int(10 ** int(match[1]))
    return SMOKE if spec.smoke and spec.task.id == data else DATASET_STEPS


def _shapes(task: Task) -> tuple[int, int, int]:
    """Numbers in one stored frame, bytes of each, and bytes of an action; an unknown task counts as a small one."""
    task = env_task_of(task)
    if isinstance(task, AtariTask | GymnasiumTask) and task.size is not None:
        return task.size * task.size, 1, 8
    if isinstance(task, ToyTask) and task.id in BYTE_OBS:
        return BYTE_OBS[task.id], 1, 8
    numbers, actions = SHAPES.get(task.id, (64, 8))
    return numbers, 4, 4 * actions or 8


def _environments(spec: Spec) -> int:
    """Bytes of the environments; for MuJoCo twice those of an evaluation, since memory is freed late."""
    training, evaluation = spec.task.envs, spec.protocol.envs
    match env_task_of(spec.task):
        case AtariTask():
            return (training + evaluation) * EMULATOR
        case MujocoTask():
            return (training + 2 * evaluation) * MUJOCO_ENV
        case GoalTask():
            return (training + 2 * evaluation) * FETCH_ENV
        case GymnasiumTask(size=int(size), stack=stack):
            return (training + 2 * evaluation) * (EMULATOR + stack * size * size)
        case _:
            return (training + 2 * evaluation) * SMALL_ENV


def _networks(spec: Spec) -> tuple[int, int]:
    """Parameters in all their copies, and the numbers of the rows that pass through the networks at once."""
    task, algo = spec.task, spec.algo
    match algo:
        case online.ActorCriticConfig() | OfflineConfig():
            return _dense(spec, algo)
        case online.QLearningConfig(dueling=dueling, noisy=noisy):
            return _q_network(spec, algo, dueling=dueling, noisy=noisy is not None)
        case DiscreteOfflineConfig(method=method):  # doubled for a second head with a policy
            heads = 1 if isinstance(method, DiscreteBCConfig | DiscreteCQLConfig) else 2
            parameters, activations = _q_network(spec, algo)
            return heads * parameters, heads * activations
        case online.DiscreteSACConfig(torso=torso, hidden=hidden, critics=critics):
            layers, features, per_row = _torso(torso, task)
            layers += [(features, hidden), *[(hidden, ACTIONS)] * (1 + critics)]
            # each critic's optimizer holds moments of the torso as well
            parameters = (PARAMETER_COPIES + 2 * critics) * _parameters(layers)
            return parameters, ACTIVATION_COPIES * algo.batch * (per_row + hidden)
        case online.PolicyGradientConfig(torso=online.NatureConfig() as torso, hidden=hidden):
            layers, features, per_row = _torso(torso, task)
            parameters = _parameters([*layers, (features, hidden)]) + hidden * ACTIONS
            rows = (algo.rollout_length + 1) * task.envs
            return PARAMETER_COPIES * parameters, round(ROLLOUT_COPIES * rows * (per_row + hidden))
        case online.PolicyGradientConfig(torso=torso):
            layers, features, per_row = _torso(torso, task)
            parameters, rows = _parameters(layers) + features * ACTIONS, (algo.rollout_length + 1) * task.envs
            networks = 2  # actor and critic
            copies = NATURAL_COPIES if isinstance(algo.method, online.TRPOConfig) else ACTIVATION_COPIES
            return networks * PARAMETER_COPIES * parameters, networks * round(copies * rows * per_row)
        case _:
            assert_never(algo)


def _dense(spec: Spec, algo: online.ActorCriticConfig | OfflineConfig) -> tuple[int, int]:
    """Parameters of actor, critics and VAE, and numbers of the sampled actions of a batch, or of the envs that act."""
    numbers, actions = SHAPES.get(env_task_of(spec.task).id, (64, 8))
    critics: int = getattr(getattr(algo, "method", algo), "critics", 2)
    networks = [(numbers, *algo.widths, 2 * actions), *[(numbers + actions, *algo.widths, 1)] * critics]
    rows, acting_rows = algo.batch, 0
    match algo:
        case OfflineConfig(method=BCQConfig() as bcq):
            latent = bcq.latent_dim or bcq.latent * actions
            networks += [(numbers + actions, *bcq.vae_widths, 2 * latent), (numbers + latent, *bcq.vae_widths, actions)]
            rows, acting_rows = rows * bcq.n_action_samples, spec.protocol.envs * bcq.eval_action_samples
        case OfflineConfig(method=CQLConfig(n_action_samples=samples)):
            rows *= 3 * samples + 1
        case OfflineConfig(method=CRRConfig(n_action_samples=samples)):
            rows *= samples
        case _:
            pass
    layers = [layer for network in networks for layer in pairwise(network)]
    acting = acting_rows * max(map(sum, layers))  # without gradients
    return PARAMETER_COPIES * _parameters(layers), max(ACTIVATION_COPIES * rows * sum(map(sum, networks)), acting)


def _q_network(
    spec: Spec, algo: online.QLearningConfig | DiscreteOfflineConfig, *, dueling: bool = False, noisy: bool = False
) -> tuple[int, int]:
    """Parameters of a Q-network, and numbers of one batch or the acting envs passing through it."""
    layers, features, per_row = _torso(algo.torso, spec.task)
    width, fractions, acting, cosines, pairs = _head(algo.head)
    streams = [(features, algo.hidden), (algo.hidden, ACTIONS * width)]
    if dueling:
        streams += [(features, algo.hidden), (algo.hidden, width)]
    layers += [*streams * (1 + noisy), *([(cosines, features)] if cosines else [])]
    # of a fraction its cosines, its embedding and the product, which pass through the hidden layer: fitted to runs
    embedding = cosines + 2 * features + 3 * algo.hidden if cosines else 0
    state = embedding + algo.hidden * (1 + dueling) + ACTIONS * width
    batch_values = ACTIVATION_COPIES * algo.batch * (per_row + fractions * state + pairs)
    env_values = max(spec.task.envs, spec.protocol.envs) * acting * state  # without gradients
    return PARAMETER_COPIES * _parameters(layers), max(batch_values, env_values)


def _icm(spec: Spec) -> tuple[int, int]:
    """Parameters of the ICM, if there is one, and numbers of the steps passing through it at once."""
    match spec.algo:
        case online.PolicyGradientConfig(curiosity=online.CuriosityConfig() as curiosity, rollout_length=length):
            rows = (length + 1) * spec.task.envs
        case (
            online.QLearningConfig(curiosity=online.CuriosityConfig() as curiosity, batch=batch, replay=replay)
            | online.DiscreteSACConfig(curiosity=online.CuriosityConfig() as curiosity, batch=batch, replay=replay)
        ):
            rows = batch * (replay.n_step + 1)
        case _:
            return 0, 0
    layers, features, per_row = _torso(curiosity.torso, spec.task)
    layers += [(features + ACTIONS, curiosity.hidden), (curiosity.hidden, features)]
    layers += [(2 * features, curiosity.hidden), (curiosity.hidden, ACTIONS)]
    per_row += 4 * features + 2 * curiosity.hidden
    return PARAMETER_COPIES * _parameters(layers), ACTIVATION_COPIES * rows * per_row


def _parameters(layers: Sequence[tuple[int, ...]]) -> int:
    """Weights and biases of layers, whose shapes have the inputs first and the outputs last."""
    return sum(prod(layer) + layer[-1] for layer in layers)


def _head(head: online.HeadConfig) -> tuple[int, int, int, int, int]:
    """Numbers per action, states a row becomes in learning and in acting, cosines of its embedding, pairs of a loss."""
    match head:
        case online.DQNHeadConfig():
            return 1, 1, 1, 0, 0
        case online.C51HeadConfig(n_atoms=atoms):
            return atoms, 1, 1, 0, atoms**2
        case online.QRDQNHeadConfig(n_quantiles=count):
            return count, 1, 1, 0, count**2
        case online.IQNHeadConfig(cosines=cosines) as iqn:
            learning, acting = max(iqn.n_taus, iqn.n_target_taus), max(iqn.n_policy_taus, iqn.n_eval_taus)
            return 1, learning, acting, cosines, iqn.n_taus * iqn.n_target_taus
        case online.FQFHeadConfig(n_quantiles=count, cosines=cosines):
            return 1, round(FQF_COPIES * count), count, cosines, count**2
        case _:
            assert_never(head)


def _torso(torso: online.TorsoConfig, task: Task) -> tuple[list[tuple[int, ...]], int, int]:
    """Shapes of the weights, the number of features, and the numbers of a row in all layers, its input included."""
    task, (numbers, _, _) = env_task_of(task), _shapes(task)
    layers: list[tuple[int, ...]] = []
    if isinstance(torso, online.MLPConfig):
        layers += pairwise((numbers, *torso.widths))
        return layers, (numbers, *torso.widths)[-1], numbers * task.stack + sum(torso.widths)
    channels, side = task.stack, (task.size if isinstance(task, AtariTask | GymnasiumTask) else None) or 84
    features, per_row = 0, numbers * task.stack
    for out, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        side = (side - kernel) // stride + 1
        layers.append((channels, kernel, kernel, out))
        channels, features = out, out * side * side
        per_row += features
    return layers, features, per_row


def size_text(count: int) -> str:
    """Bytes for people: ``0.71 GB`` from a tenth of a gigabyte on, ``1.4 MB`` below."""
    return f"{count / 1e9:.2f} GB" if count >= 100_000_000 else f"{count / 1e6:.1f} MB"


MAX_THREADS: Final = 4  # a batch of 32 to 64 frames, or of 256 rows through 256 units, gains nothing from more
MAX_EVAL_WORKERS: Final = 8  # TD3+BC on a GPU trains half a minute an epoch; one core evaluates it in four


def eval_worker_count(spec: Spec, *, requested: int | None, cores: int, threads: int, gpu: bool) -> int:
    """Number of evaluation workers for a run with ``cores`` of its own and ``threads`` of training; 0: none.

    A run that may stop at any evaluation waits for each, and an online run evaluates itself. A run on a GPU has one at
    least: in its own process the policy would act by the rounding and random numbers of the GPU.
    """
    if spec.protocol.stop is not None or spec.algo.learns_from != "data":
        return 0
    most = min(MAX_EVAL_WORKERS, 1 + spec.budget.steps // spec.budget.epoch)
    least = int(gpu)
    if requested is not None:
        return min(max(least, requested), most)
    idle = 0 if spec.smoke else max(0, cores - threads)  # a worker on a core of the training gains nothing
    return min(max(least, idle), most)


def useful_threads(spec: Spec, *, gpu: bool, cores: int) -> int:
    """Number of torch threads from which ``spec`` gains on ``cores``; one if a GPU computes."""
    return min(MAX_THREADS, cores) if spec.algo.gains_from_threads and not gpu else 1
