"""Learning while the environments step (``algo.lag=1``) beside strict order: the whole loop of both, by turns."""

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
SETTLING = 1_200  # steps before the clock starts, of which the first 1,000 are not learned from
SETTINGS = (
    "algo.learning_starts=1_000",
    "algo.replay.capacity=20_000",
    "budget.epoch=10_000_000",
    "budget.segment=10_000_000",
)
TASKS = {"dqn": ("atari", "PongNoFrameskip-v4"), "sac": ("mujoco", "HalfCheetah-v4")}
LAGS = {"in strict order": 0, "rlbench": 1}


def loops(case: Case) -> dict[str, list[float]]:
    """Environment steps per second of each, one figure a round."""
    runs = {name: _begun(case, lag) for name, lag in LAGS.items()}
    found: dict[str, list[float]] = {name: [] for name in LAGS}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = perf_counter()
            done = _advanced(run, case.steps // ROUNDS)
            found[name].append(done / (perf_counter() - began))
    return found


def _begun(case: Case, lag: int) -> Iterator[Progress | Epoch]:
    """A loop that learns."""
    suite, task = TASKS[case.algorithm]
    texts = (*SETTINGS, f"algo.lag={lag}")
    spec = apply_settings(suites.spec(suite, case.algorithm, task), [parse(text, "benchmark") for text in texts])
    run = online(spec, Runtime(device="cpu", threads=case.threads), describe(spec))
    run.clock.epochs = 1  # the untrained policy counts as judged
    going = iter(run)
    _advanced(going, SETTLING)
    return going


def _advanced(run: Iterator[Progress | Epoch], steps: int) -> int:
    """Let it take so many steps, and a few more; says how many."""
    first = next(run).env_steps
    while (now := next(run).env_steps) < first + steps:
        pass
    return now - first
