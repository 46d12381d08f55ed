"""Where the time of a step goes, for every algorithm at its documented settings, and how long it only waited."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, thread_time
from typing import Final

from benchmarks.cases import Case
from benchmarks.offline import written
from benchmarks.stopwatch import watched
from rlbench import suites
from rlbench.assembly.assemble import build
from rlbench.assembly.environments import describe
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.training.clock import RolloutSchedule
from rlbench.training.offline import Offline
from rlbench.training.online import Online

SECONDS: Final = 5.0  # that are measured at least
STRIDE: Final = 5  # gradient steps on recorded data between two looks at the clock
BEFORE: Final = 10  # gradient steps before the clock starts, or those of one rollout
ENDLESS: Final = ("budget.steps=100_000_000", "budget.epoch=100_000_000", "budget.segment=100_000_000")
STORED: Final = ("algo.learning_starts=1_000", "algo.replay.capacity=20_000")
TASKS: Final = {"atari": "PongNoFrameskip-v4", "mujoco": "HalfCheetah-v4", "offline": "halfcheetah-medium-v2"}


def spent(case: Case) -> dict[str, list[float]]:
    """Steps per second, and milliseconds of each part of a step: of all envs, or of one gradient on recorded data."""
    suite, _, algorithm = case.algorithm.partition("/")
    spec = _settled(suites.spec(suite, algorithm, TASKS[suite]))
    with tempfile.TemporaryDirectory() as folder:
        data = str(written(Path(folder))) if suite == "offline" else None
        run = build(spec, Runtime(device="cpu", threads=case.threads, dataset=data), describe(spec))
    watch, steps = watched(run), _steps(run)
    next(steps)
    watch.reset()
    began, used, done = perf_counter(), thread_time(), 0
    for done in steps:  # noqa: B007 - the last is what counts
        if perf_counter() - began > SECONDS:
            break
    seconds, waited = perf_counter() - began, perf_counter() - began - (thread_time() - used)
    parts = watch.seconds | {"other": seconds - sum(watch.seconds.values()), "idle": max(0.0, waited)}
    return {"rlbench": [done / seconds], **{name: [took / done * 1e3] for name, took in parts.items()}}


def _settled(documented: Spec) -> Spec:
    """Documented settings, without an end, and with a store that is soon there."""
    texts = [*ENDLESS, *(STORED if hasattr(documented.algo, "replay") else ())]
    return apply_settings(documented, [parse(text, "benchmark") for text in texts])


def _steps(run: Online | Offline) -> Iterator[int]:
    """Steps done since the first of these, whenever the clock may be read: between whole rollouts, or anywhere."""
    if isinstance(run, Offline):
        run.updater.run(0, BEFORE)
        for number in range(BEFORE, 10**9, STRIDE):
            yield number - BEFORE
            run.updater.run(number, STRIDE)
        return
    run.clock.epochs = 1  # the untrained policy counts as judged
    whole = run.update_schedule.updates if isinstance(run.update_schedule, RolloutSchedule) else 0
    first, learned = -1, 0
    for progress in run:
        if progress.updates < max(BEFORE, whole) or (whole and progress.updates == learned):
            continue
        learned = progress.updates
        first = run.clock.rows if first < 0 else first
        yield run.clock.rows - first
