"""Whether an engine computes what eager updates do: the same run twice, and how far apart they end."""

from __future__ import annotations

from time import perf_counter
from typing import Final, NamedTuple, TypedDict

import torch
from torch import Tensor

from benchmarks.rigs import learned, rig, spec_of
from rlbench.assembly.device import device_of
from rlbench.assembly.engine import engine_of, refusals
from rlbench.config.run import Runtime
from rlbench.training.offline import Offline
from rlbench.training.online import Online

STRIDES: Final = (1, 2, 3, 7, 1, 1, 16, 4, 15)
"""Fifty updates, asked for in as many as a run may ask for at once."""


class Tolerance(NamedTuple):
    """What may be off."""

    way: float  # of the way that a tensor goes
    size: float  # and of its size


TOLERANCES: Final = {"cuda-graph": Tolerance(1e-3, 1e-5), "compiled": Tolerance(0.05, 1e-4)}
"""A graph launches the eager updates' kernels; a compiler adds in another order, which Adam's first steps stretch."""


class ParityRow(TypedDict):
    """One cell on one engine."""

    cell: str
    engine: str  # that was asked for
    ran: str  # that was taken, and why not the one asked for
    updates: int
    worst: float  # of all tensors, how far off in shares of what is tolerated; within below 1
    tensor: str  # which
    within: bool
    seconds: float


def parity(cell: str, runtime: Runtime, *, cycles: int = 1) -> ParityRow:
    """The updates of ``cell`` eagerly and as ``runtime`` says; ``cycles`` times fifty of them."""
    began = perf_counter()
    plain, quick = (
        rig(cell, runtime.model_copy(update={"update_engine": e})) for e in ("eager", runtime.update_engine)
    )
    before = learned(plain)
    for run in (plain, quick):
        torch.manual_seed(3)
        strides(run, cycles)
    name, worst = apart(before, learned(quick), learned(plain), TOLERANCES[runtime.update_engine])
    refused = refusals(quick.updater, quick.learner)
    ran = f"eager: {refused[0]}" if refused else engine_of(spec_of(cell), runtime, device_of(runtime)).description
    return {
        "cell": cell,
        "engine": runtime.update_engine,
        "ran": ran,
        "updates": sum(STRIDES) * cycles,
        "worst": worst,
        "tensor": name,
        "within": worst <= 1 and (ran == runtime.update_engine or runtime.device == "cpu"),
        "seconds": round(perf_counter() - began, 1),
    }


def strides(run: Online | Offline, cycles: int = 1) -> None:
    """That many updates."""
    first = 0
    for count in STRIDES * cycles:
        run.updater.run(first, count)
        first += count


def apart(
    before: dict[str, Tensor], found: dict[str, Tensor], wanted: dict[str, Tensor], allowed: Tolerance
) -> tuple[str, float]:
    """The tensor that is furthest off, and how far, in shares of what is allowed; no number is infinitely far."""
    worst = ("", 0.0)
    for name, goal in wanted.items():
        off, size = (x.double().norm().item() for x in (found[name].double() - goal, goal))
        start = before[name] if name in before and before[name].shape == goal.shape else torch.zeros_like(goal)
        way = (goal.double() - start).norm().item()
        room = allowed.way * way + allowed.size * size
        share = 0.0 if off == 0 else off / room if room > 0 and off == off else float("inf")  # noqa: PLR0124 - NaN
        worst = max(worst, (name, share), key=lambda pair: pair[1])
    return worst
