"""Workloads and their settings; imports no torch."""

from __future__ import annotations

from typing import NamedTuple

from rlbench.suites.atari import BATCH_ON_PONG, VALUE_BASED

BATCH = 32
UNITS = {
    "gemm": "GFLOP/s",
    "dqn-update": "ms",
    "dqn-pong": "env steps/s",
    "storage": "µs",
    "value-update": "updates/s",
    "value-pong": "env steps/s",
    "halfcheetah": "env steps/s",
    "ppo-halfcheetah": "env steps/s",
    "ppo-pong": "env steps/s",
    "offline-update": "updates/s",
    "offline-evaluation": "s",
    "recording": "steps/s",
    "reading": "transitions/s",
    "import": "lines/s",
    "profile": "steps/s",
}
"""The workloads and their units."""

OTHER_UNITS = {
    "gemm": "GFLOP/s",
    "arithmetic": "GFLOP",
    "time over floor": "×",
    **{f"{way}, own CPU": "CPU s" for way in ("not evaluated", "evaluated in process", "evaluated by a worker")},
    **{f"evaluated {way}, {what}": "%" for way in ("in process", "by a worker") for what in ("more", "more own CPU")},
}
"""Units of further figures of ``value-update`` and ``offline-evaluation``."""

PEER_SHARES = {"il": 0.3, "td3bc": 0.15, "iql": 0.15, "cql": 0.02, "bcq": 0.04}
"""Offline algorithms that d3rlpy has too, and their updates as a share of the requested steps."""

EPOCH_STEPS = 600  # requested steps for one epoch of offline-evaluation; at least three epochs, so that they overlap

TIANSHOU_DIVISOR = 10  # tianshou scans its whole buffer after every collect, so it takes a tenth of the steps

PROFILED = (
    *(f"atari/{name}" for name in (*VALUE_BASED, "sac", "ppo")),
    *(f"mujoco/{name}" for name in ("ddpg", "td3", "sac", "redq", "reinforce", "a2c", "ppo", "npg", "trpo")),
    *(f"offline/{name}" for name in (*PEER_SHARES, "crr")),
)
"""Suite and algorithm of every profile, each at its documented settings."""


class Case(NamedTuple):
    """One measurement."""

    threads: int
    steps: int  # measured environment steps of a whole loop
    algorithm: str = "dqn"
    batch: int = BATCH


def cases(workload: str, threads: int, steps: int) -> dict[str, Case]:
    """The measurements of a workload, by name: one, or one for each algorithm of the family at its documented batch."""
    family = [(algorithm, BATCH_ON_PONG) for algorithm in VALUE_BASED]
    match workload:
        case "value-update":
            measurements = [Case(threads, steps, a, b) for a, b in [("dqn", BATCH), *family]]
            return {f"{workload} {case.algorithm} {case.batch}": case for case in measurements}
        case "value-pong":
            measurements = [Case(threads, steps // TIANSHOU_DIVISOR, a, b) for a, b in family]
            return {f"{workload} {case.algorithm} {case.batch}": case for case in measurements}
        case "halfcheetah":
            measurements = [Case(threads, min(steps, 1_000), a, 256) for a in ("sac", "td3")]
        case "storage":
            measurements = [Case(threads, steps, a) for a in ("dqn", "rainbow")]  # sampled uniformly, and by priority
        case "profile":
            measurements = [Case(threads, steps, a) for a in PROFILED]
        case "offline-update":
            measurements = [Case(threads, max(20, round(steps * share)), a, 256) for a, share in PEER_SHARES.items()]
        case "offline-evaluation":
            measurements = [Case(threads, max(3, steps // EPOCH_STEPS), a, 256) for a in ("il", "td3bc")]
        case _:
            return {workload: Case(threads, steps)}
    return {f"{workload} {case.algorithm}": case for case in measurements}
