"""One measurement in its own process: ``python -m benchmarks.measure WORKLOAD --threads N`` prints one JSON line.

The thread policy must be set before torch is imported, and no measurement disturbs the next.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np
import torch

from benchmarks import importing, loops, offline, offline_evaluation, profile, recording
from benchmarks.cases import BATCH, Case
from benchmarks.loops import pong_spec, trainer
from benchmarks.plain import Plain
from benchmarks.value import SIDE, value_updates
from rlbench.algorithms.dqn import QLearner
from rlbench.buffers.ring import RingBuffer
from rlbench.ops.types import Transition

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
    learner, plain, batch = trainer(pong_spec(case), case.threads).learner, Plain(ACTIONS), _batch()
    if not isinstance(learner, QLearner):
        raise TypeError(type(learner).__name__)
    calls: dict[str, Callable[[], object]] = {
        "rlbench": lambda: learner.update(batch),
        "plain": lambda: plain.update(batch),
    }
    return _scaled(_interleaved(calls, rounds=7, repeats=8), 1e3)


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
    "dqn-pong": loops.dqn_pong,
    "storage": storage,
    "value-update": value_updates,
    "value-pong": loops.value_pong,
    "halfcheetah": loops.halfcheetah,
    "ppo-halfcheetah": loops.ppo_halfcheetah,
    "ppo-pong": loops.ppo_pong,
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
    ring = trainer(pong_spec(case, capacity=MANY + 10 * NUM_ENVS), case.threads).buffer
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
