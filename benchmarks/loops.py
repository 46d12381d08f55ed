"""Whole training loops of rlbench, with the warm-up and the buffer of the peers, and the time of their parts.

PPO has its documented settings. HalfCheetah has 64 envs of 32 steps and ten epochs in minibatches of 64, Pong ten envs
of 100 steps and four epochs in minibatches of 250.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, process_time

from benchmarks.cases import Case
from benchmarks.rigs import online, spec_with
from benchmarks.stopwatch import attach_stopwatch
from rlbench.assembly.environments import describe
from rlbench.config.run import Runtime, Spec
from rlbench.records.types import Progress
from rlbench.training.clock import RolloutSchedule
from rlbench.training.online import OnlineTrainer

CAPACITY = 20_000  # transitions
WARMUP = {"pong": 2_000, "halfcheetah": 1_000}  # environment steps before the first update, here and in every peer
SETTLING = {"dqn-pong": 500, "value-pong": 100, "halfcheetah": 100}
"""Environment steps after the first update before the clock starts, here and in every peer."""

ENDLESS = ("budget.steps=100_000_000", "budget.epoch=100_000_000", "budget.segment=100_000_000")
Samples = dict[str, list[float]]


def pong_spec(case: Case, *, capacity: int = CAPACITY) -> Spec:
    """The documented settings of a cell of Pong with the peers' batch, buffer and warm-up."""
    changes = f"algo.batch={case.batch}", f"algo.learning_starts={WARMUP['pong']}", f"algo.replay.capacity={capacity}"
    return spec_with("atari", case.algorithm, "PongNoFrameskip-v4", *changes, "budget.epoch=10_000_000")


def trainer(spec: Spec, threads: int) -> OnlineTrainer:
    """The whole run on a CPU, at its beginning; it never evaluates."""
    run = online(spec, Runtime(device="cpu", threads=threads), describe(spec))
    run.clock.epochs = 1  # the untrained policy counts as evaluated
    return run


def dqn_pong(case: Case) -> Samples:
    """Environment steps per second and per CPU second of the whole loop, and milliseconds of each part of a step."""
    return _env_steps(pong_spec(case), case, WARMUP["pong"] + SETTLING["dqn-pong"])


def value_pong(case: Case) -> Samples:
    """The whole loop of a value-based algorithm, without the parts of a step, for as few steps as its peer takes."""
    samples = _env_steps(pong_spec(case), case, WARMUP["pong"] + SETTLING["value-pong"])
    return {name: samples[name] for name in ("rlbench", "rlbench, CPU")}


def halfcheetah(case: Case) -> Samples:
    """The figures of ``dqn_pong``, of SAC and TD3 on HalfCheetah with one update a step."""
    changes = f"algo.learning_starts={WARMUP['halfcheetah']}", "budget.epoch=10_000_000", "budget.segment=10_000_000"
    spec = spec_with("mujoco", case.algorithm, "HalfCheetah-v4", *changes)
    return _env_steps(spec, case, WARMUP["halfcheetah"] + SETTLING["halfcheetah"])


def ppo_halfcheetah(case: Case) -> Samples:
    """The figures of ``dqn_pong``, of PPO on HalfCheetah."""
    return _rollouts(spec_with("mujoco", "ppo", "HalfCheetah-v4", *ENDLESS), case)


def ppo_pong(case: Case) -> Samples:
    """The figures of ``dqn_pong``, of PPO on Pong."""
    return _rollouts(spec_with("atari", "ppo", "PongNoFrameskip-v4", *ENDLESS), case)


def _env_steps(spec: Spec, case: Case, warmup: int) -> Samples:
    """Measure ``case.steps`` environment steps after the first ``warmup``."""
    run = trainer(spec, case.threads)
    return _measure(
        run, spec, lambda now: now.env_steps >= warmup, lambda now, first: now.env_steps >= first + case.steps
    )


def _rollouts(spec: Spec, case: Case) -> Samples:
    """Measure whole rollouts with their updates; the first one is the warm-up, here and in the peer."""
    run = trainer(spec, case.threads)
    schedule = run.update_schedule
    if not isinstance(schedule, RolloutSchedule):
        raise TypeError(type(schedule).__name__)
    updates, rollouts = schedule.updates, max(2, case.steps // (schedule.rollout_length * spec.task.envs))
    return _measure(
        run, spec, lambda now: now.updates >= updates, lambda now, _: now.updates >= updates * (rollouts + 1)
    )


def _measure(
    run: OnlineTrainer, spec: Spec, is_warm: Callable[[Progress], bool], is_done: Callable[[Progress, int], bool]
) -> Samples:
    """Measure from the first record after the warm-up, whose environment steps ``is_done`` gets."""
    watch, first, began, busy = attach_stopwatch(run), 0, 0.0, 0.0
    for progress in run:
        if not isinstance(progress, Progress):
            continue
        if first == 0 and is_warm(progress):
            watch.reset()
            first, began, busy = progress.env_steps, perf_counter(), process_time()
        if first and is_done(progress, first):
            seconds, done, cpu_seconds = perf_counter() - began, progress.env_steps - first, process_time() - busy
            parts = watch.seconds | {"other": seconds - sum(watch.seconds.values())}
            milliseconds = {name: [spent / done * spec.task.envs * 1e3] for name, spent in parts.items()}
            return {"rlbench": [done / seconds], "rlbench, CPU": [done / cpu_seconds], **milliseconds}
    raise RuntimeError("the budget ended before the measurement")
