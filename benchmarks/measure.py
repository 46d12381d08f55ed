"""One measurement in a process of its own: ``python -m benchmarks.measure WORKLOAD --threads N`` prints one JSON line.

The thread policy must stand before torch is imported, and a process that measured one thing does not disturb the next.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from time import perf_counter, process_time

import numpy as np
import torch

from benchmarks import importing, judging, offline, onpolicy, profile, recording
from benchmarks.cases import BATCH, Case
from benchmarks.halfcheetah import loop
from benchmarks.ours import WARMUP, trainer
from benchmarks.plain import Plain
from benchmarks.stopwatch import watched
from benchmarks.value import SIDE, value_updates
from rlbench.algorithms.dqn import QLearner
from rlbench.buffers.ring import Ring
from rlbench.ops.types import Transition

SETTLING = 500  # environment steps after the first update before the clock starts, here and in every peer
SHORT_SETTLING = 100  # the same for the slow loops of the whole family, here and in tianshou
FEW, MANY = 10_000, 1_000_000  # stored transitions between which a step must not grow dearer
NUM_ENVS, ACTIONS = 10, 6

Samples = dict[str, list[float]]


def gemm(case: Case) -> Samples:
    """GFLOP/s of one large product of matrices: the floor of everything below."""
    torch.set_num_threads(case.threads)
    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    seconds = _interleaved({"gemm": lambda: left @ right}, rounds=3, calls=20)["gemm"]
    return {"gemm": [2 * SIDE**3 / s / 1e9 for s in seconds]}


def update(case: Case) -> Samples:
    """Milliseconds of one gradient step on one batch of frames, ours and the plain compiled one by turns."""
    learner, plain, batch = trainer(case).learner, Plain(ACTIONS), _batch()
    if not isinstance(learner, QLearner):
        raise TypeError(type(learner).__name__)
    contest: dict[str, Callable[[], object]] = {
        "rlbench": lambda: learner.update(batch),
        "plain": lambda: plain.update(batch),
    }
    return _scaled(_interleaved(contest, rounds=7, calls=8), 1e3)


def pong(case: Case, settling: int = SETTLING) -> Samples:
    """Environment steps per second and per CPU second of the whole loop, and milliseconds of each part of a step."""
    run = trainer(case)
    watch, first, began, busy = watched(run), 0, 0.0, 0.0
    for progress in run:
        if first == 0 and progress.env_steps >= WARMUP + settling:
            watch.reset()
            first, began, busy = progress.env_steps, perf_counter(), process_time()
        if first and progress.env_steps >= first + case.steps:
            seconds, done, used = perf_counter() - began, progress.env_steps - first, process_time() - busy
            parts = watch.seconds | {"other": seconds - sum(watch.seconds.values())}
            found = {name: [spent / done * NUM_ENVS * 1e3] for name, spent in parts.items()}
            return {"rlbench": [done / seconds], "rlbench, CPU": [done / used], **found}
    raise RuntimeError("the budget ended before the measurement")


def value_pong(case: Case) -> Samples:
    """The whole loop of any algorithm of the family, for as few steps as the peer's; no parts."""
    found = pong(case, SHORT_SETTLING)
    return {name: found[name] for name in ("rlbench", "rlbench, CPU")}


def storage(case: Case) -> Samples:
    """Microseconds that writing a vector step and drawing one batch cost, with few and with many stored transitions."""
    rings = {f"{stored} stored": _filled(case, stored) for stored in (FEW, MANY)}
    contest = {name: lambda ring=ring: _turn(ring) for name, ring in rings.items()}
    return _scaled(_interleaved(contest, rounds=15, calls=50), 1e6)


WORKLOADS: dict[str, Callable[[Case], Samples]] = {
    "offline-update": offline.updates,
    "offline-evaluation": judging.seconds,
    "gemm": gemm,
    "dqn-update": update,
    "dqn-pong": pong,
    "storage": storage,
    "value-update": value_updates,
    "value-pong": value_pong,
    "halfcheetah": loop,
    "ppo-halfcheetah": onpolicy.halfcheetah,
    "ppo-pong": onpolicy.pong,
    "recording": recording.written,
    "reading": recording.read,
    "import": importing.imported,
    "profile": profile.spent,
}


def _interleaved(contest: Mapping[str, Callable[[], object]], *, rounds: int, calls: int) -> Samples:
    """Seconds a call, ``rounds`` times by turns, after a warm-up of each."""
    for call in contest.values():
        for _ in range(calls):
            call()
    seconds: Samples = {name: [] for name in contest}
    for _ in range(rounds):
        for name, call in contest.items():
            began = perf_counter()
            for _ in range(calls):
                call()
            seconds[name].append((perf_counter() - began) / calls)
    return seconds


def _scaled(samples: Samples, factor: float) -> Samples:
    return {name: [sample * factor for sample in found] for name, found in samples.items()}


def _batch() -> Transition:
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (2, BATCH, 4, 84, 84), dtype=torch.uint8, generator=generator)
    action = torch.randint(0, ACTIONS, (BATCH,), generator=generator)
    ones = torch.ones(BATCH)
    return Transition(frames[0], action, ones * 0.1, ones * 0.97, frames[1], ones, torch.arange(BATCH))


def _filled(case: Case, stored: int) -> Ring:
    """A ring with room for ``MANY`` that holds ``stored`` transitions."""
    ring = trainer(case, capacity=MANY + 10 * NUM_ENVS).buffer
    if not isinstance(ring, Ring):
        raise TypeError(type(ring).__name__)
    for _ in range(stored // NUM_ENVS):
        _write(ring)
    return ring


FRAMES = np.random.default_rng(0).integers(0, 256, (NUM_ENVS, 84, 84), dtype=np.uint8)
ACTION, REWARD, NOT = (
    torch.zeros(NUM_ENVS, dtype=torch.int64),
    np.zeros(NUM_ENVS, np.float32),
    np.zeros(NUM_ENVS, np.bool_),
)
PRIORITY = torch.linspace(0.1, 2, BATCH)


def _write(ring: Ring) -> None:
    ring.observe(FRAMES)
    ring.record(ACTION, REWARD, NOT, NOT)


def _turn(ring: Ring) -> None:
    """What one vector step asks of the ring."""
    _write(ring)
    drawn = ring.sample(BATCH)
    ring.reprioritize(drawn.slot, PRIORITY)


def main() -> None:
    """Measure one workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--algorithm", default="dqn")
    parser.add_argument("--batch", type=int, default=BATCH)
    given = parser.parse_args()
    samples = WORKLOADS[given.workload](Case(given.threads, given.steps, given.algorithm, given.batch))
    sys.stdout.write(json.dumps(samples) + "\n")


if __name__ == "__main__":
    main()
