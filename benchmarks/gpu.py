"""``python -m benchmarks.gpu``: compare the update engines of a CUDA GPU with eager updates, and measure their speed.

The checks stop at a time limit, the most important ones come first, and those without time are named. ``--parity``
measures no speed, so other programs may use the GPU meanwhile. ``--rehearse`` does the same, small, on the host, where
captured updates run eagerly: it only tests this script.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import torch

from benchmarks import offline
from benchmarks.figures import Figures
from benchmarks.parity import ParityRow, parity
from benchmarks.report import Report, report, save
from benchmarks.rigs import CELLS, fill, ring_of, spec_with
from rlbench.accel.graph_capture import GraphUpdater
from rlbench.assembly.assemble import build
from rlbench.assembly.engine import refusals
from rlbench.assembly.environments import describe
from rlbench.config.run import Runtime
from rlbench.training.offline import OfflineTrainer
from rlbench.training.online import OnlineTrainer

ENDLESS: Final = ("budget.steps=1_000_000_000", "budget.epoch=1_000_000_000", "budget.segment=1_000_000_000")
COMPILED: Final = ("toy/dqn/Catch", "toy/td3/Pendulum-v1", "offline/iql/halfcheetah-medium-v2")
LOOPS: Final = {"atari/dqn": 60.0, "mujoco/sac": 20.0, "mujoco/td3": 20.0, "atari/rainbow": 20.0, "mujoco/ddpg": 10.0}
"""Whole training loops and the seconds of each measurement, from which the minutes of a table's run follow."""

LEARN: Final = ("td3bc", "iql", "il", "bcq", "crr", "cql")
VALUES: Final = ("dqn", "c51", "qrdqn", "rainbow", "iqn", "fqf")
TASKS: Final = {"atari": "PongNoFrameskip-v4", "mujoco": "HalfCheetah-v4", "offline": "halfcheetah-medium-v2"}
MILLION_STEPS: Final = {"atari": 10, "mujoco": 1, "offline": 1}
"""Millions of env steps, offline of updates, in a run of a table."""


class Sizes(NamedTuple):
    """The size of the checks."""

    device: str
    cells: tuple[str, ...]
    compiled: tuple[str, ...]
    share: float  # of the seconds in LOOPS
    store: int  # transitions
    warmup: int  # agent steps before the first update of a loop
    settling: int  # updates before a clock starts


REAL: Final = Sizes("cuda", CELLS, COMPILED, share=1.0, store=100_000, warmup=2_000, settling=200)
TINY: Final = Sizes("cpu", CELLS[:2], (), share=0.01, store=1_000, warmup=200, settling=5)


class Speed(NamedTuple):
    """A rate and its unit."""

    rate: float
    unit: str


class GpuReport(Report):
    """The benchmark's JSON with the checks of a GPU."""

    card: str
    parity: list[ParityRow]
    minutes: dict[str, float]  # of a run of a table at this speed, without evaluations
    skipped: dict[str, str]  # checks that did not run, and the reason
    broken: list[str]  # of these, the checks that raised an error


class Checks:
    """The results so far, and the time limit."""

    def __init__(self, seconds: float) -> None:
        self.deadline = perf_counter() + seconds
        self.figures, self.parity = Figures(), list[ParityRow]()
        self.minutes: dict[str, float] = {}
        self.reasons: dict[str, str] = {}
        self.broken: list[str] = []

    def attempt(self, name: str, need: float, work: Callable[[], None]) -> None:
        """Do a check of about ``need`` seconds; if it fails or has no time left, the others go on."""
        if perf_counter() + need > self.deadline:
            self.reasons[name] = "no time left"
            return
        sys.stderr.write(f"{name}\n")
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other checks go on
            reason = str(error).partition("\n")[0]
            if isinstance(error.__cause__ or error, ModuleNotFoundError):
                self.reasons[name] = f"not installed here: {reason}"
            else:
                self.broken.append(name)
                self.reasons[name] = f"{type(error).__name__}: {reason}"


def check(sizes: Sizes, seconds: float, *, speeds: bool = True) -> GpuReport:
    """Do every check that fits into ``seconds``."""
    checks = Checks(seconds)
    _parities(checks, sizes, "cuda-graph", sizes.cells, need=10.0)
    if speeds:
        _speeds(checks, sizes)
    _parities(checks, sizes, "compiled", sizes.compiled, need=60.0)
    settings: dict[str, object] = {"seconds": seconds, **sizes._asdict()}
    gpu = torch.cuda.get_device_name() if sizes.device == "cuda" else "none: a rehearsal on the host"
    figures = report(checks.figures, settings)
    return {
        **figures,
        "card": gpu,
        "parity": checks.parity,
        "minutes": checks.minutes,
        "skipped": checks.reasons,
        "broken": checks.broken,
    }


def _speeds(checks: Checks, sizes: Sizes) -> None:
    for name, full_seconds in LOOPS.items():
        for engine, part in (("cuda-graph", 1.0), ("eager", 0.25)):
            limit = full_seconds * sizes.share * part
            checks.attempt(f"loop {engine} {name}", limit + 10, partial(_loop, checks, sizes, name, engine, limit))
    for suite, algorithms in (("offline", LEARN), ("atari", VALUES)):
        for algorithm in algorithms:
            for engine in ("cuda-graph", "eager"):
                work = partial(_updates, checks, sizes, suite, algorithm, engine)
                checks.attempt(f"updates {engine} {suite}/{algorithm}", 8.0, work)


def _parities(checks: Checks, sizes: Sizes, engine: str, cells: tuple[str, ...], *, need: float) -> None:
    runtime = Runtime.model_validate({"device": sizes.device, "update_engine": engine})
    for cell in cells:
        checks.attempt(f"parity {engine} {cell}", need, partial(_parity, checks, cell, runtime))


def _parity(checks: Checks, cell: str, runtime: Runtime) -> None:
    checks.parity.append(parity(cell, runtime))


def _loop(checks: Checks, sizes: Sizes, name: str, engine: str, seconds: float) -> None:
    """Measure the env steps per second of a whole run: environments, acting, learning."""
    suite, algorithm = name.split("/")
    texts = (*ENDLESS, f"algo.learning_starts={sizes.warmup}", f"algo.replay.capacity={sizes.store}")
    run = _run(suite, algorithm, texts, Runtime.model_validate({"device": sizes.device, "update_engine": engine}))
    if not isinstance(run, OnlineTrainer):
        raise TypeError(type(run).__name__)
    run.clock.epochs = 1  # the untrained policy counts as evaluated
    rate = _rate(run, iter(run), sizes, seconds)
    run.close()
    if _add_speed(checks, f"loop {name}", run, engine, Speed(rate, "env steps/s")):
        checks.minutes[name] = round(MILLION_STEPS[suite] * 1e6 / rate / 60, 2)


def _rate(run: OnlineTrainer, records: Iterator[object], sizes: Sizes, seconds: float) -> float:
    """Steps per second after ``settling`` updates, all of them finished on the device."""
    while run.clock.updates < sizes.settling:
        next(records)
    _wait(sizes)
    began, first = perf_counter(), run.clock.env_steps
    while perf_counter() < began + seconds or run.clock.env_steps == first:
        next(records)
    _wait(sizes)
    return (run.clock.env_steps - first) / (perf_counter() - began)


def _updates(checks: Checks, sizes: Sizes, suite: str, algorithm: str, engine: str) -> None:
    """Measure the updates per second alone, on a data set or a full ring buffer."""
    with tempfile.TemporaryDirectory() as folder:
        path = offline.write_dataset(Path(folder)) if suite == "offline" else None
        runtime = {"device": sizes.device, "update_engine": engine, "dataset": None if path is None else str(path)}
        texts = ENDLESS if path else (*ENDLESS, f"algo.replay.capacity={min(sizes.store, 20_000)}")
        run = _run(suite, algorithm, texts, Runtime.model_validate(runtime))
    if isinstance(run, OnlineTrainer):
        fill(ring_of(run), describe(spec_with(suite, algorithm, TASKS[suite], *texts)))
    run.updater.run(0, sizes.settling)
    _wait(sizes)
    began, number = perf_counter(), sizes.settling
    while perf_counter() < began + 3 * sizes.share or number == sizes.settling:
        run.updater.run(number, sizes.settling)
        number += sizes.settling
        _wait(sizes)
    rate = (number - sizes.settling) / (perf_counter() - began)
    if _add_speed(checks, f"updates {suite}/{algorithm}", run, engine, Speed(rate, "updates/s")) and suite == "offline":
        checks.minutes[f"{suite}/{algorithm}"] = round(MILLION_STEPS[suite] * 1e6 / rate / 60, 2)


def _add_speed(checks: Checks, workload: str, run: OnlineTrainer | OfflineTrainer, engine: str, speed: Speed) -> bool:
    """Add a figure under the name of the engine that ran; True if that engine captures updates."""
    ran = "cuda-graph" if isinstance(run.updater, GraphUpdater) else "eager"
    reason = next(iter(refusals(run.updater, run.learner)), "")
    if reason or ran != engine:
        checks.reasons[f"{workload} {engine}"] = f"ran eagerly: {reason or 'no CUDA GPU'}"
        ran = "eager"
    checks.figures.add(workload, ran, torch.get_num_threads(), speed.unit, [speed.rate])
    return ran == "cuda-graph"


def _run(suite: str, algorithm: str, texts: tuple[str, ...], runtime: Runtime) -> OnlineTrainer | OfflineTrainer:
    spec = spec_with(suite, algorithm, TASKS[suite], *texts)
    return build(spec, runtime, describe(spec))


def _wait(sizes: Sizes) -> None:
    if sizes.device == "cuda":
        torch.cuda.synchronize()


def main() -> int:
    """Check the GPU and write the JSON; 1 if an engine differs or a check failed, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="scripts/gpu_check", description=__doc__)
    parser.add_argument("--rehearse", action="store_true", help="small checks on the host, to test this script")
    parser.add_argument("--parity", action="store_true", help="compare the engines only")
    parser.add_argument("--seconds", type=float, default=510.0, help="time limit; later checks are left out")
    parser.add_argument("--output", type=Path, default=Path("gpu_check.json"), help="default: $OUT/gpu_check.json")
    options = parser.parse_args()
    if not options.rehearse and not torch.cuda.is_available():
        sys.stderr.write("scripts/gpu_check: no CUDA GPU is visible; --rehearse tests the script on the host\n")
        return 2
    checks = check(TINY if options.rehearse else REAL, options.seconds, speeds=not options.parity)
    save(checks, options.output)
    differing = [f"{row['engine']} {row['cell']}: {row['ran']}" for row in checks["parity"] if not row["within"]]
    for line in (*differing, *(f"skipped {name}: {reason}" for name, reason in checks["skipped"].items())):
        sys.stderr.write(f"{line}\n")
    summary = f"{len(checks['parity'])} parities, {len(differing)} differ, {len(checks['broken'])} checks failed, "
    summary += f"{len(checks['skipped']) - len(checks['broken'])} left out"
    sys.stdout.write(f"{options.output}: {summary}\n")
    return 1 if differing or checks["broken"] or not checks["parity"] else 0


if __name__ == "__main__":
    sys.exit(main())
