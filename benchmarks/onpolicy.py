"""The whole loop of PPO at its documented settings, and the time of its parts.

HalfCheetah has 64 envs of 32 steps and ten epochs in minibatches of 64, Pong ten envs of 100 steps and four epochs in
minibatches of 250.
"""

from __future__ import annotations

from time import perf_counter, process_time

from benchmarks.cases import Case
from benchmarks.rigs import online
from benchmarks.stopwatch import attach_stopwatch
from rlbench import suites
from rlbench.assembly.environments import describe
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.training.clock import RolloutSchedule

SETTINGS = ("budget.steps=100_000_000", "budget.epoch=100_000_000", "budget.segment=100_000_000")


def halfcheetah(case: Case) -> dict[str, list[float]]:
    """Environment steps per second and per CPU second, and milliseconds of each part of a step of all envs."""
    return _measure(suites.spec("mujoco", "ppo", "HalfCheetah-v4"), case)


def pong(case: Case) -> dict[str, list[float]]:
    """The figures of ``halfcheetah``, on Pong."""
    return _measure(suites.spec("atari", "ppo", "PongNoFrameskip-v4"), case)


def _measure(documented: Spec, case: Case) -> dict[str, list[float]]:
    """Whole rollouts with their updates; the first one is the warm-up, here and in the peer."""
    spec = apply_settings(documented, [parse(text, "benchmark") for text in SETTINGS])
    run = online(spec, Runtime(device="cpu", threads=case.threads), describe(spec))
    if not isinstance(run.update_schedule, RolloutSchedule):
        raise TypeError(type(run.update_schedule).__name__)
    run.clock.epochs = 1  # the untrained policy counts as evaluated
    watch, first, began, busy = attach_stopwatch(run), 0, 0.0, 0.0
    updates_per_rollout, num_envs = run.update_schedule.updates, spec.task.envs
    rollouts = max(2, case.steps // (run.update_schedule.rollout_length * num_envs))
    for progress in run:
        if first == 0 and progress.updates >= updates_per_rollout:
            watch.reset()
            first, began, busy = progress.env_steps, perf_counter(), process_time()
        if first and progress.updates >= updates_per_rollout * (rollouts + 1):
            seconds, done, cpu_seconds = perf_counter() - began, progress.env_steps - first, process_time() - busy
            parts = watch.seconds | {"other": seconds - sum(watch.seconds.values())}
            milliseconds = {name: [spent / done * num_envs * 1e3] for name, spent in parts.items()}
            return {"rlbench": [done / seconds], "rlbench, CPU": [done / cpu_seconds], **milliseconds}
    raise RuntimeError("the budget ended before the measurement")
