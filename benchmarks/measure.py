"""One measurement in its own process: ``python -m benchmarks.measure WORKLOAD --threads N`` prints one JSON line.

The thread policy must be set before torch is imported, and no measurement disturbs the next.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from time import perf_counter, process_time

import numpy as np
import torch

from benchmarks import importing, offline, offline_evaluation, onpolicy, profile, recording
from benchmarks.cases import BATCH, Case
from benchmarks.halfcheetah import loop
from benchmarks.ours import WARMUP, trainer
from benchmarks.plain import Plain
from benchmarks.stopwatch import attach_stopwatch
from benchmarks.value import SIDE, value_updates
from rlbench.algorithms.dqn import QLearner
from rlbench.buffers.ring import RingBuffer
from rlbench.ops.types import Transition

SETTLING = 500  # environment steps after the first update before the clock starts, here and in every peer
SHORT_SETTLING = 100  # the same for the slow loops of the whole family, here and in tianshou
FEW, MANY = 10_000, 1_000_000  # stored transitions; a step should cost the same with both
NUM_ENVS, ACTIONS = 10, 6

Samples = dict[str, list[float]]


def gemm(case: Case) -> Samples:
    """GFLOP/s of one large matrix product, from which the floors of the other workloads follow."""
    torch.set_num_threads(case.threads)
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    seconds = _interleaved({"gemm": lambda: a @ b}, rounds=3, repeats=20)["gemm"]
    return {"gemm": [2 * SIDE**3 / s / 1e9 for s in seconds]}


def update(case: Case) -> Samples:
    """Milliseconds of one gradient step on one batch of frames, by rlbench and by ``plain.py``, in turn."""
    learner, plain, batch = trainer(case).learner, Plain(ACTIONS), _batch()
    if not isinstance(learner, QLearner):
        raise TypeError(type(learner).__name__)
    calls: dict[str, Callable[[], object]] = {
        "rlbench": lambda: learner.update(batch),
        "plain": lambda: plain.update(batch),
    }
    return _scaled(_interleaved(calls, rounds=7, repeats=8), 1e3)


def pong(case: Case, settling: int = SETTLING) -> Samples:
    """Environment steps per second and per CPU second of the whole loop, and milliseconds of each part of a step."""
    run = trainer(case)
    watch, first, began, busy = attach_stopwatch(run), 0, 0.0, 0.0
    for progress in run:
        if first == 0 and progress.env_steps >= WARMUP + settling:
            watch.reset()
            first, began, busy = progress.env_steps, perf_counter(), process_time()
        if first and progress.env_steps >= first + case.steps:
            seconds, done, cpu_seconds = perf_counter() - began, progress.env_steps - first, process_time() - busy
            parts = watch.seconds | {"other": seconds - sum(watch.seconds.values())}
            milliseconds = {name: [spent / done * NUM_ENVS * 1e3] for name, spent in parts.items()}
            return {"rlbench": [done / seconds], "rlbench, CPU": [done / cpu_seconds], **milliseconds}
    raise RuntimeError("the budget ended before the measurement")


def value_pong(case: Case) -> Samples:
    """The whole loop of a value-based algorithm, without the parts of a step, for as few steps as its peer takes."""
    samples = pong(case, SHORT_SETTLING)
    return {name: samples[name] for name in ("rlbench", "rlbench, CPU")}


def storage(case: Case) -> Samples:
    """Microseconds to write a vector step and to sample one batch, with few and with many stored transitions."""
    rings = {f"{size} stored": _filled_ring(case, size) for size in (FEW, MANY)}
    calls = {name: lambda ring=ring: _vector_step(ring) for name, ring in rings.items()}
    return _scaled(_interleaved(calls, rounds=15, repeats=50), 1e6)


WORKLOADS: dict[str, Callable[[Case], Samples]] = {
    "offline-update": offline.updates,
    "offline-evaluation": offline_evaluation.seconds,
    "gemm": gemm,
    "dqn-update": update,
    "dqn-pong": pong,
    "storage": storage,
    "value-update": value_updates,
    "value-pong": value_pong,
    "halfcheetah": loop,
    "ppo-halfcheetah": onpolicy.halfcheetah,
    "ppo-pong": onpolicy.pong,
    "recording": recording.write_speed,
    "reading": recording.read_speed,
    "import": importing.import_speed,
    "profile": profile.step_parts,
}


def _interleaved(calls: Mapping[str, Callable[[], object]], *, rounds: int, repeats: int) -> Samples:
    """Seconds a call, in ``rounds`` turns of ``repeats`` calls each, after a warm-up."""
    for call in calls.values():
        for _ in range(repeats):
            call()
    seconds: Samples = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = perf_counter()
            for _ in range(repeats):
                call()
            seconds[name].append((perf_counter() - began) / repeats)
    return seconds


def _scaled(samples: Samples, factor: float) -> Samples:
    return {name: [sample * factor for sample in values] for name, values in samples.items()}


def _batch() -> Transition:
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (2, BATCH, 4, 84, 84), dtype=torch.uint8, generator=generator)
    action = torch.randint(0, ACTIONS, (BATCH,), generator=generator)
    ones = torch.ones(BATCH)
    return Transition(frames[0], action, ones * 0.1, ones * 0.97, frames[1], ones, torch.arange(BATCH))


def _filled_ring(case: Case, size: int) -> RingBuffer:
    """A ring with room for ``MANY`` that holds ``size`` transitions."""
    ring = trainer(case, capacity=MANY + 10 * NUM_ENVS).buffer
    if not isinstance(ring, RingBuffer):
        raise TypeError(type(ring).__name__)
    for _ in range(size // NUM_ENVS):
        _write(ring)
    return ring


FRAMES = np.random.default_rng(0).integers(0, 256, (NUM_ENVS, 84, 84), dtype=np.uint8)
ACTION, REWARD, NOT = (
    torch.zeros(NUM_ENVS, dtype=torch.int64),
    np.zeros(NUM_ENVS, np.float32),
    np.zeros(NUM_ENVS, np.bool_),
)
PRIORITY = torch.linspace(0.1, 2, BATCH)


def _write(ring: RingBuffer) -> None:
    ring.add_observations(FRAMES)
    ring.add_transitions(ACTION, REWARD, NOT, NOT)


def _vector_step(ring: RingBuffer) -> None:
    """The operations of one vector step on the ring."""
    _write(ring)
    batch = ring.sample(BATCH)
    ring.update_priorities(batch.slot, PRIORITY)


def main() -> None:
    """Measure one workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--algorithm", default="dqn")
    parser.add_argument("--batch", type=int, default=BATCH)
    options = parser.parse_args()
    samples = WORKLOADS[options.workload](Case(options.threads, options.steps, options.algorithm, options.batch))
    sys.stdout.write(json.dumps(samples) + "\n")


if __name__ == "__main__":
    main()
