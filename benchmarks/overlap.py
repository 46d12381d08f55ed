"""The whole loop with learning while the environments step (``algo.lag=1``) and in strict order, by turns."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from benchmarks.cases import Case
from benchmarks.rigs import online
from rlbench import suites
from rlbench.assembly.environments import describe
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime
from rlbench.records.types import Epoch, Progress

ROUNDS = 5
SETTLING = 1_200  # steps before the clock starts; the first 1,000 are without updates
SETTINGS = (
    "algo.learning_starts=1_000",
    "algo.replay.capacity=20_000",
    "budget.epoch=10_000_000",
    "budget.segment=10_000_000",
)
TASKS = {"dqn": ("atari", "PongNoFrameskip-v4"), "sac": ("mujoco", "HalfCheetah-v4")}
LAGS = {"in strict order": 0, "rlbench": 1}


def loops(case: Case) -> dict[str, list[float]]:
    """Environment steps per second of both loops, one figure a round."""
    runs = {name: _start_loop(case, lag) for name, lag in LAGS.items()}
    rates: dict[str, list[float]] = {name: [] for name in LAGS}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = perf_counter()
            done = _advance(run, case.steps // ROUNDS)
            rates[name].append(done / (perf_counter() - began))
    return rates


def _start_loop(case: Case, lag: int) -> Iterator[Progress | Epoch]:
    """Start a loop and step it until its updates have begun."""
    suite, task = TASKS[case.algorithm]
    texts = (*SETTINGS, f"algo.lag={lag}")
    spec = apply_settings(suites.spec(suite, case.algorithm, task), [parse(text, "benchmark") for text in texts])
    run = online(spec, Runtime(device="cpu", threads=case.threads), describe(spec))
    run.clock.epochs = 1  # the untrained policy counts as evaluated
    loop = iter(run)
    _advance(loop, SETTLING)
    return loop


def _advance(run: Iterator[Progress | Epoch], steps: int) -> int:
    """Take at least ``steps`` steps; return their exact number."""
    first = next(run).env_steps
    while (now := next(run).env_steps) < first + steps:
        pass
    return now - first
