"""The whole loop of PPO at its documented settings, and where its time goes.

HalfCheetah is 64 lanes of 32 steps and ten passes in batches of 64, Pong ten lanes of 100 steps and four passes in
batches of 250.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, process_time

from benchmarks.cases import Case
from benchmarks.stopwatch import Stopwatch
from rlbench import suites
from rlbench.build.assemble import online
from rlbench.build.environments import describe
from rlbench.envs.base import VectorEnv
from rlbench.envs.normalize import Normalized
from rlbench.spec.override import applied, parse
from rlbench.spec.run import Runtime, Spec
from rlbench.trainers.clock import Rollouts
from rlbench.trainers.online import Online

SETTINGS = ("budget.steps=100_000_000", "budget.epoch=100_000_000", "budget.segment=100_000_000")


def halfcheetah(case: Case) -> dict[str, list[float]]:
    """Environment steps per second and per CPU second, and milliseconds of each part of a step of all lanes."""
    return _measured(suites.spec("mujoco", "ppo", "HalfCheetah-v4"), case)


def pong(case: Case) -> dict[str, list[float]]:
    """The same on Pong."""
    return _measured(suites.spec("atari", "ppo", "PongNoFrameskip-v4"), case)


def _measured(documented: Spec, case: Case) -> dict[str, list[float]]:
    """Whole rollouts with their updates; the first one is the warm-up, here and in the peer."""
    spec = applied(documented, [parse(text, "benchmark") for text in SETTINGS])
    run = online(spec, Runtime(device="cpu", threads=case.threads), describe(spec))
    if not isinstance(run.rhythm, Rollouts):
        raise TypeError(type(run.rhythm).__name__)
    run.clock.epochs = 1  # the untrained policy counts as judged
    watch, first, began, busy = parts(run), 0, 0.0, 0.0
    each, lanes = run.rhythm.updates, spec.task.envs
    rollouts = max(2, case.steps // (run.rhythm.rows * lanes))
    for progress in run:
        if first == 0 and progress.updates >= each:
            watch.reset()
            first, began, busy = progress.env_steps, perf_counter(), process_time()
        if first and progress.updates >= each * (rollouts + 1):
            seconds, done, used = perf_counter() - began, progress.env_steps - first, process_time() - busy
            spent = watch.seconds | {"other": seconds - sum(watch.seconds.values())}
            found = {name: [took / done * lanes * 1e3] for name, took in spent.items()}
            return {"rlbench": [done / seconds], "rlbench, CPU": [done / used], **found}
    raise RuntimeError("the budget ended before the measurement")


def parts(run: Online) -> Stopwatch:
    """A stopwatch on every part of an on-policy run whose environments are not open yet."""
    watch, collector = Stopwatch(), run.collector

    def opened(segment: int) -> VectorEnv:
        envs = open_envs(segment)
        if isinstance(envs, Normalized):
            watch.attach("normalise", envs, "recv")
            watch.attach("physics", envs.envs, "send", "recv")
        else:
            watch.attach("emulator", envs, "send", "recv")
        return envs

    open_envs: Callable[[int], VectorEnv] = getattr(collector, "open_envs")  # noqa: B009 - not in the trainer's protocol
    setattr(collector, "open_envs", opened)  # noqa: B010 - as above
    watch.attach("act", run.learner, "act")
    watch.attach("write", run.buffer, "observe", "newest", "record")
    watch.attach("update", run.updater, "run")
    return watch
