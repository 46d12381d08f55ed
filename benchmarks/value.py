"""Updates of the Q-learning family as in a run, and their time over the floor of their arithmetic."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import torch

from benchmarks.arithmetic import update_flop
from benchmarks.cases import Case
from benchmarks.loops import CAPACITY, pong_spec, trainer
from rlbench.assembly.environments import describe
from rlbench.buffers.ring import RingBuffer
from rlbench.config.online import QLearningConfig
from rlbench.envs.base import Discrete
from rlbench.training.updates import EagerUpdater

SIDE = 1024  # of the matrices that measure the speed of the machine
ROUNDS, UPDATES, PRODUCTS = 7, 4, 6  # per round, by turns


def value_updates(case: Case) -> dict[str, list[float]]:
    """Updates/s of the run's own updater on a full buffer, GFLOP/s of large products, and the time over the floor."""
    run, flop = trainer(pong_spec(case), case.threads), case_flop(case)
    updater, ring = run.updater, run.buffer
    if not isinstance(updater, EagerUpdater) or not isinstance(ring, RingBuffer):
        raise TypeError(f"{type(updater).__name__}, {type(ring).__name__}")
    fill(ring, case)
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    seconds, speeds = [], []
    for turn in range(ROUNDS + 1):
        began = perf_counter()
        for _ in range(PRODUCTS):
            a @ b
        updates_began = perf_counter()
        updater.run(turn * UPDATES, UPDATES)
        seconds.append((perf_counter() - updates_began) / UPDATES)
        speeds.append(PRODUCTS * 2 * SIDE**3 / (updates_began - began))
    turns = list(zip(seconds, speeds, strict=True))[1:]  # the first is the warm-up
    return {
        "rlbench": [1 / duration for duration, _ in turns],
        "gemm": [speed / 1e9 for _, speed in turns],
        "arithmetic": [flop / 1e9],
        "time over floor": [duration / (flop / speed) for duration, speed in turns],
    }


def case_flop(case: Case) -> int:
    """FLOP of one update of this case."""
    spec = pong_spec(case)
    actions = describe(spec).actions
    if not isinstance(actions, Discrete):
        raise TypeError(type(actions).__name__)
    if not isinstance(spec.algo, QLearningConfig):
        raise TypeError(spec.algo.family)
    return update_flop(spec.algo, batch=case.batch, actions=actions.n)


def fill(ring: RingBuffer, case: Case) -> None:
    """Fill the buffer with noise; one step in two hundred ends an episode."""
    generator = np.random.default_rng(0)
    num_envs = ring.num_envs
    never = np.zeros(num_envs, np.bool_)
    for _ in range(CAPACITY // num_envs + case.batch):
        ring.add_observations(generator.integers(0, 256, (num_envs, 84, 84), dtype=np.uint8))
        action = torch.from_numpy(generator.integers(0, 6, num_envs))
        reward = generator.integers(-1, 2, num_envs).astype(np.float32)
        ring.add_transitions(action, reward, generator.random(num_envs) < 0.005, never)
