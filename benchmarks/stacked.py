"""Ten seeds learning side by side (``run --stack``) and one of them alone: environment steps per second, by turns.

The target is that ten take at most 2.5 times as long as one, on a card; there and on a host the ratio is told.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

import torch

from benchmarks.cases import Case
from benchmarks.rigs import online
from rlbench import suites
from rlbench.build.device import device_of
from rlbench.build.environments import describe
from rlbench.build.stacked import Company, Member
from rlbench.spec.override import applied, parse
from rlbench.spec.run import Runtime, Spec
from rlbench.trainers.online import Online

SEEDS: Final = 10
ROUNDS: Final = 5
SETTLING: Final = 100  # updates before the clock starts
SETTINGS: Final = (
    "algo.warmup=1_000",
    "algo.replay.capacity=20_000",
    "budget.epoch=10_000_000",
    "budget.segment=10_000_000",
)
TIME: Final = "time of ten seeds over one"


def loops(case: Case) -> dict[str, list[float]]:
    """Environment steps per second of one seed, of ten together, and the ratio of their times, a figure a round."""
    return by_turns(case.algorithm, Runtime(device="cpu", threads=case.threads), case.steps // ROUNDS)


def by_turns(algorithm: str, runtime: Runtime, updates: int) -> dict[str, list[float]]:
    """The same on any device, with so many updates a round."""
    one, ten = _alone(algorithm, runtime), _together(algorithm, runtime)
    found: dict[str, list[float]] = {"one seed": [], "rlbench": [], TIME: []}
    for party in (one, ten):
        party(SETTLING)
    for _ in range(ROUNDS):
        alone, together = _rate(one, updates, runtime), _rate(ten, updates, runtime)
        found["one seed"].append(alone)
        found["rlbench"].append(together)
        found[TIME].append(SEEDS * alone / together)
    return found


Party = Callable[[int], int]
"""Makes so many updates more in every run, and gives the environment steps of all of them meanwhile."""


def _rate(party: Party, updates: int, runtime: Runtime) -> float:
    began = perf_counter()
    done = party(updates)
    if device_of(runtime).type == "cuda":
        torch.cuda.synchronize()
    return done / (perf_counter() - began)


def _alone(algorithm: str, runtime: Runtime) -> Party:
    run = _begun(algorithm, 0, runtime)
    records = iter(run)

    def party(updates: int) -> int:
        first, end = run.clock.env_steps, run.clock.updates + updates
        while run.clock.updates < end:
            next(records)
        return run.clock.env_steps - first

    return party


def _together(algorithm: str, runtime: Runtime) -> Party:
    company, members = Company(), [Member(device_of(runtime)) for _ in range(SEEDS)]
    runs: list[Online] = []
    for seed, member in enumerate(members):
        with member.stream:
            runs.append(_begun(algorithm, seed, runtime))
            member.join(runs[-1])
    records = [iter(run) for run in runs]

    def party(updates: int) -> int:
        first, end = sum(run.clock.env_steps for run in runs), runs[0].clock.updates + updates
        while runs[0].clock.updates < end:
            for member, one in zip(members, records, strict=True):
                while not member.due.count:
                    with member.stream:
                        next(one)
            company.learn(members)
        return sum(run.clock.env_steps for run in runs) - first

    return party


def _begun(algorithm: str, seed: int, runtime: Runtime) -> Online:
    spec = _spec(algorithm, seed)
    run = online(spec, runtime.model_copy(update={"engine": "eager"}), describe(spec))
    run.clock.epochs = 1  # the untrained policy counts as judged
    return run


def _spec(algorithm: str, seed: int) -> Spec:
    found = suites.spec("mujoco", algorithm, "HalfCheetah-v4", seed=seed)
    return applied(found, [parse(text, "benchmark") for text in SETTINGS])
