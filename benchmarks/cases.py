"""What can be measured, on what settings; starts without torch."""

from __future__ import annotations

from typing import NamedTuple

from rlbench.suites.atari import BATCH_ON_PONG, VALUES

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
"""The workloads, and in what a contestant is measured."""

ASIDE = {
    "gemm": "GFLOP/s",
    "arithmetic": "GFLOP",
    "time over floor": "×",
    **{f"{way}, own CPU": "CPU s" for way in ("unjudged", "judged within", "judged beside")},
    **{f"judged {way}, {what}": "%" for way in ("within", "beside") for what in ("more", "more own CPU")},
}
"""What ``value-update`` and ``offline-evaluation`` say beside it."""

LIGHT = {"il": 0.3, "td3bc": 0.15, "iql": 0.15, "cql": 0.02, "bcq": 0.04}
"""Offline learners that have a peer, and what share of the steps asked for is enough updates for a figure."""

UPDATES = 600  # asked for, for which an offline run is judged once; three times at least, that judging may overlap

PATIENCE = 10  # tianshou goes through its whole store after every collect: a tenth of the steps


PROFILED = (
    *(f"atari/{name}" for name in (*VALUES, "sac", "ppo")),
    *(f"mujoco/{name}" for name in ("ddpg", "td3", "sac", "redq", "reinforce", "a2c", "ppo", "npg", "trpo")),
    *(f"offline/{name}" for name in (*LIGHT, "crr")),
)
"""Suite and algorithm of every workload that is profiled, each at its documented settings."""


class Case(NamedTuple):
    """One measurement."""

    threads: int
    steps: int  # measured environment steps of a whole loop
    algorithm: str = "dqn"
    batch: int = BATCH


def cases(workload: str, threads: int, steps: int) -> dict[str, Case]:
    """The measurements of a workload, by name: one, or one for each algorithm of the family at its documented batch."""
    family = [(algorithm, BATCH_ON_PONG) for algorithm in VALUES]
    match workload:
        case "value-update":
            found = [Case(threads, steps, a, b) for a, b in [("dqn", BATCH), *family]]
            return {f"{workload} {case.algorithm} {case.batch}": case for case in found}
        case "value-pong":
            found = [Case(threads, steps // PATIENCE, a, b) for a, b in family]
            return {f"{workload} {case.algorithm} {case.batch}": case for case in found}
        case "halfcheetah":
            found = [Case(threads, min(steps, 1_000), a, 256) for a in ("sac", "td3")]
        case "storage":
            found = [Case(threads, steps, a) for a in ("dqn", "rainbow")]  # drawn uniformly, and by priority
        case "profile":
            found = [Case(threads, steps, a) for a in PROFILED]
        case "offline-update":
            found = [Case(threads, max(20, round(steps * share)), a, 256) for a, share in LIGHT.items()]
        case "offline-evaluation":
            found = [Case(threads, max(3, steps // UPDATES), a, 256) for a in ("il", "td3bc")]
        case _:
            return {workload: Case(threads, steps)}
    return {f"{workload} {case.algorithm}": case for case in found}
