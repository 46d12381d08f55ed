"""The whole loop of SAC and TD3 on HalfCheetah, one update a step, and the time of its parts."""

from __future__ import annotations

from time import perf_counter, process_time

from benchmarks.cases import Case
from benchmarks.rigs import online
from benchmarks.stopwatch import attach_stopwatch
from rlbench import suites
from rlbench.assembly.environments import describe
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime

WARMUP, SETTLING = 1_000, 100  # steps before the first update, and then before the clock starts, here and in the peer
SETTINGS = (f"algo.learning_starts={WARMUP}", "budget.epoch=10_000_000", "budget.segment=10_000_000")


def loop(case: Case) -> dict[str, list[float]]:
    """Environment steps per second and per CPU second, and milliseconds of each part of a step."""
    spec = apply_settings(
        suites.spec("mujoco", case.algorithm, "HalfCheetah-v4"), [parse(t, "benchmark") for t in SETTINGS]
    )
    run = online(spec, Runtime(device="cpu", threads=case.threads), describe(spec))
    run.clock.epochs = 1  # the untrained policy counts as evaluated
    watch, first, began, busy = attach_stopwatch(run), 0, 0.0, 0.0
    for progress in run:
        if first == 0 and progress.env_steps >= WARMUP + SETTLING:
            watch.reset()
            first, began, busy = progress.env_steps, perf_counter(), process_time()
        if first and progress.env_steps >= first + case.steps:
            seconds, done, cpu_seconds = perf_counter() - began, progress.env_steps - first, process_time() - busy
            parts = watch.seconds | {"other": seconds - sum(watch.seconds.values())}
            milliseconds = {name: [spent / done * 1e3] for name, spent in parts.items()}
            return {"rlbench": [done / seconds], "rlbench, CPU": [done / cpu_seconds], **milliseconds}
    raise RuntimeError("the budget ended before the measurement")
