"""From a Spec to a run: the only module that names concrete classes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import assert_never

import numpy as np
import torch
from torch import nn

from rlbench.buffers.prioritized import Prioritized
from rlbench.buffers.ring import Column, Ring
from rlbench.buffers.samplers import Uniform
from rlbench.collectors.evaluate import Evaluation
from rlbench.collectors.explore import EpsilonGreedy
from rlbench.collectors.sync import Collector
from rlbench.envs.base import Discrete, EnvInfo, VectorEnv
from rlbench.errors import UsageError
from rlbench.fast.metrics import Metrics
from rlbench.fast.noise import Noise
from rlbench.fast.updater import Eager
from rlbench.learners.qlearning import QLearner
from rlbench.nets import heads
from rlbench.nets.heads import QNet
from rlbench.nets.streams import Streams
from rlbench.nets.torsos import MlpTorso, NatureTorso
from rlbench.ops.types import Role
from rlbench.record.types import QUpdated
from rlbench.seeds import Seeds
from rlbench.spec.algo import Categorical, Expected, Implicit, Linear, Mlp, Nature, Proposed, QLearning, Quantiles
from rlbench.spec.run import Runtime, Spec
from rlbench.spec.task import AtariTask, ToyTask
from rlbench.trainers.clock import Pace
from rlbench.trainers.offpolicy import OffPolicy

DTYPES = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}
MOST_THREADS = 4  # a batch of 32 to 64 frames gains nothing from more


def device_of(runtime: Runtime) -> torch.device:
    """The device a run uses.

    Raises:
        UsageError: it is not a device, or this machine has none such.
    """
    name = runtime.device if runtime.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name}: not a device; use auto, cpu, cuda or cuda:<number>") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices; use cpu")
    if device.type not in {"cpu", "cuda"}:
        raise UsageError(f"--device {name}: only cpu and cuda are supported")
    return device


def free_memory(device: torch.device) -> int:
    """Bytes a CUDA device has free."""
    return int(torch.cuda.mem_get_info(device)[0])


def threads_of(spec: Spec, runtime: Runtime, device: torch.device) -> int:
    """Threads torch computes with: as many as pay, for the shapes of this run; ``OMP_NUM_THREADS`` overrules."""
    if runtime.threads is not None:
        return runtime.threads
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    convolves = isinstance(spec.algo.torso, Nature) and device.type == "cpu"
    return min(MOST_THREADS, cores()) if convolves else 1


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def environments(task: AtariTask | ToyTask, *, seeds: tuple[int, ...], training: bool) -> VectorEnv:
    """One lane per seed, freshly made."""
    match task:
        case AtariTask():
            return _atari(task, seeds, training=training)
        case ToyTask(id="Catch"):
            from rlbench.envs.toy import Catch

            return Catch(seeds=seeds)
        case ToyTask():
            from rlbench.envs.gymnasium import GymnasiumVector, made

            return GymnasiumVector(name=task.id, factory=made(task.id), seeds=seeds)
        case _:
            assert_never(task)


def _atari(task: AtariTask, seeds: tuple[int, ...], *, training: bool) -> VectorEnv:
    match task.env:
        case "ale":
            from rlbench.envs.ale import AleVector

            return AleVector(task=task, seeds=seeds, training=training)
        case "envpool":
            from rlbench.envs.envpool import EnvPoolVector

            return EnvPoolVector(task=task, seeds=seeds, training=training, threads=min(len(seeds), cores()))
        case "gymnasium":
            from rlbench.envs import chain
            from rlbench.envs.gymnasium import GymnasiumVector

            factory = chain.documented(task, training=training)
            return GymnasiumVector(name=task.id, factory=factory, seeds=seeds, versions=chain.versions())
        case _:
            assert_never(task.env)


def describe(spec: Spec) -> EnvInfo:
    """What the environments of a run look like; makes one lane and lets it go."""
    env = environments(spec.task, seeds=(0,), training=True)
    try:
        return env.info
    finally:
        env.close()


def network(spec: Spec, info: EnvInfo) -> QNet:
    """The value network, freshly drawn from torch's own generator."""
    actions, algo = _actions(spec, info), spec.algo
    torso: NatureTorso | MlpTorso
    match algo.torso:
        case Nature(scale=scale):
            torso = NatureTorso(stack=spec.task.stack, size=info.obs_shape[-1], scale=scale)
        case Mlp(widths=widths):
            torso = MlpTorso(obs_shape=(spec.task.stack, *info.obs_shape), widths=widths)
        case _:
            assert_never(algo.torso)
    return QNet(torso, _head(algo, torso.features, actions))


def _head(algo: QLearning, features: int, actions: int) -> heads.Head:
    """The one choice that makes DQN, C51, QR-DQN, IQN or FQF."""

    def streams(width: int) -> Streams:
        return Streams(
            features=features, hidden=algo.hidden, actions=actions, width=width, dueling=algo.dueling, noisy=algo.noisy
        )

    match algo.head:
        case Expected(huber=huber):
            return heads.ExpectedHead(streams(1), huber=huber)
        case Categorical(atoms=atoms, low=low, high=high):
            return heads.CategoricalHead(streams(atoms), low=low, high=high)
        case Quantiles(count=count):
            return heads.QuantileHead(streams(count))
        case Implicit(learn=learn, target=target, act=act, judge=judge, cosines=cosines):
            samples: dict[Role, int] = {"learn": learn, "target": target, "act": act, "eval": judge}
            return heads.ImplicitHead(streams(1), features=features, samples=samples, cosines=cosines)
        case Proposed(count=count, entropy=entropy, cosines=cosines):
            return heads.ProposedHead(streams(1), features=features, count=count, entropy=entropy, cosines=cosines)
        case _:
            assert_never(algo.head)


def _optimizers(algo: QLearning, net: QNet) -> list[torch.optim.Optimizer]:
    """Adam for all but FQF's proposal, which has its own: a far slower RMSprop."""
    proposal = list(net.head.proposal.parameters()) if isinstance(net.head, heads.ProposedHead) else []
    own = {id(p) for p in proposal}
    rest = [p for p in net.parameters() if id(p) not in own]
    adam = torch.optim.Adam(rest, lr=algo.lr, eps=algo.adam_epsilon, fused=True)
    match algo.head:
        case Proposed(lr=lr):
            return [adam, torch.optim.RMSprop(proposal, lr=lr)]
        case _:
            return [adam]


def build(spec: Spec, runtime: Runtime, info: EnvInfo) -> OffPolicy:
    """Everything a run is made of, at its beginning."""
    seeds, device, algo = Seeds(spec.seed), device_of(runtime), spec.algo
    torch.set_num_threads(threads_of(spec, runtime, device))
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False  # equal specs, equal numbers
    torch.backends.cudnn.allow_tf32 = False  # pixels up to 255 in ten bits would move scores
    learner = _learner(spec, info, device, seeds)
    schedules: list[tuple[Linear, Callable[[float], None]]] = []
    sampler = _sampler(spec, seeds.child("replay").torch(device), schedules)
    ring = _ring(spec, info, device, capacity=algo.replay.capacity, lanes=spec.task.envs, sampler=sampler)
    explorer = EpsilonGreedy(actions=_actions(spec, info), generator=seeds.child("explore").torch(device))
    schedules.append((algo.epsilon, explorer.set))

    def opened(segment: int) -> VectorEnv:
        lanes = seeds.child("env", segment).numbers(spec.task.envs)
        return environments(spec.task, seeds=lanes, training=True)

    return OffPolicy(
        collector=Collector(actor=learner, recorder=ring, explorer=explorer, open_envs=opened, lanes=spec.task.envs),
        updater=_updater(algo, ring, learner, device),
        buffer=ring,
        learner=learner,
        noise=Noise(device if device.type == "cuda" else None),
        evaluate=lambda epoch: _evaluation(spec, info, learner, device, epoch),
        budget=spec.budget,
        schedules=schedules,
        pace=Pace(algo.warmup, algo.updates_per_step),
    )


def _learner(spec: Spec, info: EnvInfo, device: torch.device, seeds: Seeds) -> QLearner:
    algo = spec.algo
    torch.manual_seed(seeds.child("init").number())
    net = network(spec, info).to(device)
    torch.manual_seed(seeds.child("noise").number())  # what networks draw while learning
    return QLearner(
        net,
        optimizers=_optimizers(algo, net),
        max_grad_norm=algo.max_grad_norm,
        double=algo.double,
        sync_every=algo.sync_every,
    )


def _updater(algo: QLearning, ring: Ring, learner: QLearner, device: torch.device) -> Eager:
    return Eager(
        source=ring,
        update=learner.update,
        every=learner.every,
        batch=algo.batch,
        metrics=Metrics(("loss", "q"), device),
        summary=lambda count, means: QUpdated(count=count, loss=means[0], q=means[1]),
    )


def _sampler(
    spec: Spec, generator: torch.Generator, schedules: list[tuple[Linear, Callable[[float], None]]]
) -> Uniform | Prioritized:
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
    schedules.append((priority.beta, sampler.anneal))
    return sampler


def policy_of(trainer: OffPolicy) -> nn.Module:
    """The network that acts."""
    learner = trainer.learner
    if not isinstance(learner, QLearner):
        raise TypeError(type(learner).__name__)
    return learner.policy()


def _evaluation(spec: Spec, info: EnvInfo, learner: QLearner, device: torch.device, epoch: int) -> Evaluation:
    seeds, protocol = Seeds(spec.seed).child("evaluation", epoch), spec.protocol
    lanes = seeds.child("env").numbers(protocol.envs)
    torch.manual_seed(seeds.child("noise").number())
    rows = spec.task.stack + spec.algo.replay.horizon + 1
    nobody = Uniform(seeds.torch(device))  # nothing is ever drawn: the ring is there to stack frames
    return Evaluation(
        actor=learner,
        recorder=_ring(spec, info, device, capacity=rows * protocol.envs, lanes=protocol.envs, sampler=nobody),
        explorer=EpsilonGreedy(
            actions=_actions(spec, info), generator=seeds.child("explore").torch(device), epsilon=protocol.epsilon
        ),
        envs=environments(spec.task, seeds=lanes, training=False),
        seeds=lanes,
        episodes=protocol.episodes,
    )


def _ring(
    spec: Spec, info: EnvInfo, device: torch.device, *, capacity: int, lanes: int, sampler: Uniform | Prioritized
) -> Ring:
    return Ring(
        capacity=capacity,
        lanes=lanes,
        obs=Column(info.obs_shape, DTYPES[np.dtype(info.obs_dtype).name]),
        action=Column((), torch.int64),
        horizon=spec.algo.replay.horizon,
        gamma=spec.algo.gamma,
        stack=spec.task.stack,
        sampler=sampler,
        device=device,
    )


def _actions(spec: Spec, info: EnvInfo) -> int:
    if not isinstance(info.actions, Discrete):
        wanted = f"{spec.algorithm} chooses among numbered actions"
        raise UsageError(f"{spec.name}: {wanted}; {spec.task.id} wants real vectors")
    return info.actions.n
