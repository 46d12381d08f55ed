"""The whole loop of PPO at its documented settings, and where its time goes.

HalfCheetah is 64 envs of 32 steps and ten passes in batches of 64, Pong ten envs of 100 steps and four passes in
batches of 250.
"""

from __future__ import annotations

from time import perf_counter, process_time

from benchmarks.cases import Case
from benchmarks.rigs import online
from benchmarks.stopwatch import watched
from rlbench import suites
from rlbench.assembly.environments import describe
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.training.clock import RolloutSchedule

SETTINGS = ("budget.steps=100_000_000", "budget.epoch=100_000_000", "budget.segment=100_000_000")


def halfcheetah(case: Case) -> dict[str, list[float]]:
    """Environment steps per second and per CPU second, and milliseconds of each part of a step of all envs."""
    return _measured(suites.spec("mujoco", "ppo", "HalfCheetah-v4"), case)


def pong(case: Case) -> dict[str, list[float]]:
    """The same on Pong."""
    return _measured(suites.spec("atari", "ppo", "PongNoFrameskip-v4"), case)


def _measured(documented: Spec, case: Case) -> dict[str, list[float]]:
    """Whole rollouts with their updates; the first one is the warm-up, here and in the peer."""
    spec = apply_settings(documented, [parse(text, "benchmark") for text in SETTINGS])
    run = online(spec, Runtime(device="cpu", threads=case.threads), describe(spec))
    if not isinstance(run.update_schedule, RolloutSchedule):
        raise TypeError(type(run.update_schedule).__name__)
    run.clock.epochs = 1  # the untrained policy counts as judged
    watch, first, began, busy = watched(run), 0, 0.0, 0.0
    each, num_envs = run.update_schedule.updates, spec.task.envs
    rollouts = max(2, case.steps // (run.update_schedule.rollout_length * num_envs))
    for progress in run:
        if first == 0 and progress.updates >= each:
            watch.reset()
            first, began, busy = progress.env_steps, perf_counter(), process_time()
        if first and progress.updates >= each * (rollouts + 1):
            seconds, done, used = perf_counter() - began, progress.env_steps - first, process_time() - busy
            spent = watch.seconds | {"other": seconds - sum(watch.seconds.values())}
            found = {name: [took / done * num_envs * 1e3] for name, took in spent.items()}
            return {"rlbench": [done / seconds], "rlbench, CPU": [done / used], **found}
    raise RuntimeError("the budget ended before the measurement")
