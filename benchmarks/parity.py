"""Compare an update engine with eager updates: the same run twice, and the distance of their tensors at the end."""

from __future__ import annotations

from time import perf_counter
from typing import Final, NamedTuple, TypedDict

import torch
from torch import Tensor

from benchmarks.rigs import rig, spec_of, trained_tensors
from rlbench.assembly.device import device_of
from rlbench.assembly.engine import engine_of, refusals
from rlbench.config.run import Runtime
from rlbench.training.offline import OfflineTrainer
from rlbench.training.online import OnlineTrainer

STRIDES: Final = (1, 2, 3, 7, 1, 1, 16, 4, 15)
"""Fifty updates, in groups as large as a run may request at once."""


class Tolerance(NamedTuple):
    """The permitted distance of two tensors, the sum of both terms."""

    way: float  # as a share of the distance from the first tensor to the last
    size: float  # as a share of the norm


TOLERANCES: Final = {"cuda-graph": Tolerance(1e-3, 1e-5), "compiled": Tolerance(0.05, 1e-4)}
"""A graph launches the eager kernels. A compiler sums in another order, which Adam's first steps amplify."""


class ParityRow(TypedDict):
    """One cell on one engine."""

    cell: str
    engine: str  # the requested engine
    ran: str  # the engine that ran, with the reason if it is another one
    updates: int
    worst: float  # largest distance of a tensor over its tolerance; at most 1 is within
    tensor: str  # the name of that tensor
    within: bool
    seconds: float


def parity(cell: str, runtime: Runtime, *, cycles: int = 1) -> ParityRow:
    """Compare ``cycles`` times fifty updates of ``cell``, eager and by the engine of ``runtime``."""
    began = perf_counter()
    eager, engine = (
        rig(cell, runtime.model_copy(update={"update_engine": e})) for e in ("eager", runtime.update_engine)
    )
    before = trained_tensors(eager)
    for run in (eager, engine):
        torch.manual_seed(3)
        run_updates(run, cycles)
    name, worst = largest_distance(
        before, trained_tensors(engine), trained_tensors(eager), TOLERANCES[runtime.update_engine]
    )
    reasons = refusals(engine.updater, engine.learner)
    ran = f"eager: {reasons[0]}" if reasons else engine_of(spec_of(cell), runtime, device_of(runtime)).description
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


def run_updates(run: OnlineTrainer | OfflineTrainer, cycles: int = 1) -> None:
    """Run ``cycles`` times fifty updates."""
    first = 0
    for count in STRIDES * cycles:
        run.updater.run(first, count)
        first += count


def largest_distance(
    before: dict[str, Tensor], actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: Tolerance
) -> tuple[str, float]:
    """The name of the tensor with the largest distance, and that distance over its tolerance; NaN is infinitely far."""
    worst = ("", 0.0)
    for name, end in expected.items():
        off, size = (x.double().norm().item() for x in (actual[name].double() - end, end))
        start = before[name] if name in before and before[name].shape == end.shape else torch.zeros_like(end)
        way = (end.double() - start).norm().item()
        room = tolerance.way * way + tolerance.size * size
        share = 0.0 if off == 0 else off / room if room > 0 and off == off else float("inf")  # noqa: PLR0124 - NaN
        worst = max(worst, (name, share), key=lambda pair: pair[1])
    return worst
