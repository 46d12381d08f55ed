"""The time of each part of a step, and the idle time, of every algorithm at its documented settings."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, thread_time
from typing import Final

from benchmarks.cases import Case
from benchmarks.loops import ENDLESS
from benchmarks.offline import write_dataset
from benchmarks.rigs import spec_with
from benchmarks.stopwatch import attach_stopwatch
from rlbench import suites
from rlbench.assembly.assemble import build
from rlbench.assembly.environments import describe
from rlbench.config.run import Runtime
from rlbench.training.clock import RolloutSchedule
from rlbench.training.offline import OfflineTrainer
from rlbench.training.online import OnlineTrainer

SECONDS: Final = 5.0  # least duration of a measurement
STRIDE: Final = 5  # gradient steps on recorded data between two readings of the clock
SETTLING: Final = 10  # gradient steps before the clock starts, or those of one rollout
SMALL_BUFFER: Final = ("algo.learning_starts=1_000", "algo.replay.capacity=20_000")
TASKS: Final = {"atari": "PongNoFrameskip-v4", "mujoco": "HalfCheetah-v4", "offline": "halfcheetah-medium-v2"}


def step_parts(case: Case) -> dict[str, list[float]]:
    """Steps per second, and milliseconds of each part of a step: a vector step, or a gradient step on recorded data."""
    suite, _, algorithm = case.algorithm.partition("/")
    small_buffer = SMALL_BUFFER if hasattr(suites.spec(suite, algorithm, TASKS[suite]).algo, "replay") else ()
    spec = spec_with(suite, algorithm, TASKS[suite], *ENDLESS, *small_buffer)
    with tempfile.TemporaryDirectory() as folder:
        data = str(write_dataset(Path(folder))) if suite == "offline" else None
        run = build(spec, Runtime(device="cpu", threads=case.threads, dataset=data), describe(spec))
    watch, steps = attach_stopwatch(run), _steps(run)
    next(steps)
    watch.reset()
    began, thread_start, done = perf_counter(), thread_time(), 0
    for done in steps:  # noqa: B007 - the last value is the result
        if perf_counter() - began > SECONDS:
            break
    seconds, idle = perf_counter() - began, perf_counter() - began - (thread_time() - thread_start)
    parts = watch.seconds | {"other": seconds - sum(watch.seconds.values()), "idle": max(0.0, idle)}
    return {"rlbench": [done / seconds], **{name: [spent / done * 1e3] for name, spent in parts.items()}}


def _steps(run: OnlineTrainer | OfflineTrainer) -> Iterator[int]:
    """Yield the steps since the clock started, whenever it may be read: on-policy only between whole rollouts."""
    if isinstance(run, OfflineTrainer):
        run.updater.run(0, SETTLING)
        for number in range(SETTLING, 10**9, STRIDE):
            yield number - SETTLING
            run.updater.run(number, STRIDE)
        return
    run.clock.epochs = 1  # the untrained policy counts as evaluated
    updates_per_rollout = run.update_schedule.updates if isinstance(run.update_schedule, RolloutSchedule) else 0
    first, updates = -1, 0
    for progress in run:
        if progress.updates < max(SETTLING, updates_per_rollout):
            continue
        if updates_per_rollout and progress.updates == updates:
            continue
        updates = progress.updates
        first = run.clock.rows if first < 0 else first
        yield run.clock.rows - first
