"""``python -m benchmarks.gpu``: on a machine with a CUDA GPU, whether its engines agree and how fast they are.

Everything within a limit of seconds, the most telling first; what there was no time for is named. ``--rehearse`` does
the same, tiny, on the host, where captured updates are eager ones: it tells whether this script works, nothing else.
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
from benchmarks.rigs import CELLS, fill, ring_of
from rlbench import suites
from rlbench.accel.graph_capture import GraphUpdater
from rlbench.assembly.assemble import build
from rlbench.assembly.engine import refusals
from rlbench.assembly.environments import describe
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.training.offline import Offline
from rlbench.training.online import Online

ENDLESS: Final = ("budget.steps=1_000_000_000", "budget.epoch=1_000_000_000", "budget.segment=1_000_000_000")
COMPILED: Final = ("toy/dqn/Catch", "toy/td3/Pendulum-v1", "offline/iql/halfcheetah-medium-v2")
LOOPS: Final = {"atari/dqn": 60.0, "mujoco/sac": 20.0, "mujoco/td3": 20.0, "atari/rainbow": 20.0, "mujoco/ddpg": 10.0}
"""Whole loops, and seconds each is watched; what a table's run takes follows from them."""

LEARN: Final = ("td3bc", "iql", "il", "bcq", "crr", "cql")
VALUES: Final = ("dqn", "c51", "qrdqn", "rainbow", "iqn", "fqf")
TASKS: Final = {"atari": "PongNoFrameskip-v4", "mujoco": "HalfCheetah-v4", "offline": "halfcheetah-medium-v2"}
MILLIONS: Final = {"atari": 10, "mujoco": 1, "offline": 1}
"""Of steps, or of updates, in a run of a table."""


class Sizes(NamedTuple):
    """How much is done."""

    device: str
    cells: tuple[str, ...]
    compiled: tuple[str, ...]
    share: float  # of the seconds above
    store: int  # transitions
    warmup: int  # agent steps before the first update of a loop
    settling: int  # updates before a clock starts


REAL: Final = Sizes("cuda", CELLS, COMPILED, share=1.0, store=100_000, warmup=2_000, settling=200)
TINY: Final = Sizes("cpu", CELLS[:2], (), share=0.01, store=1_000, warmup=200, settling=5)


class Speed(NamedTuple):
    """How fast something went."""

    rate: float
    unit: str


class GpuReport(Report):
    """What the benchmark's JSON says, and what is asked of a card alone."""

    card: str
    parity: list[ParityRow]
    minutes: dict[str, float]  # that a run of a table would take at the speed found, evaluations left out
    skipped: dict[str, str]  # what was not done, and why
    broken: list[str]  # of that, what ended with an error


class Findings:
    """What was found so far, and until when more may be."""

    def __init__(self, seconds: float) -> None:
        self.until = perf_counter() + seconds
        self.figures, self.parity = Figures(), list[ParityRow]()
        self.minutes: dict[str, float] = {}
        self.skipped: dict[str, str] = {}
        self.broken: list[str] = []

    def attempt(self, name: str, need: float, work: Callable[[], None]) -> None:
        """One piece of work of about ``need`` seconds; that it fails or finds no time ends nothing else."""
        if perf_counter() + need > self.until:
            self.skipped[name] = "no time left"
            return
        sys.stderr.write(f"{name}\n")
        try:
            work()
        except ImportError as error:
            self.skipped[name] = f"not installed here: {error}"
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest is still worth knowing
            self.broken.append(name)
            self.skipped[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def check(sizes: Sizes, seconds: float) -> GpuReport:
    """Everything, in ``seconds``."""
    found = Findings(seconds)
    _parities(found, sizes, "cuda-graph", sizes.cells, need=10.0)
    for name, watched in LOOPS.items():
        for engine, part in (("cuda-graph", 1.0), ("eager", 0.25)):
            limit = watched * sizes.share * part
            found.attempt(f"loop {engine} {name}", limit + 10, partial(_loop, found, sizes, name, engine, limit))
    for suite, algorithms in (("offline", LEARN), ("atari", VALUES)):
        for algorithm in algorithms:
            for engine in ("cuda-graph", "eager"):
                work = partial(_updates, found, sizes, suite, algorithm, engine)
                found.attempt(f"updates {engine} {suite}/{algorithm}", 8.0, work)
    _parities(found, sizes, "compiled", sizes.compiled, need=60.0)
    settings: dict[str, object] = {"seconds": seconds, **sizes._asdict()}
    card = torch.cuda.get_device_name() if sizes.device == "cuda" else "none: a rehearsal on the host"
    told = report(found.figures, settings)
    return {
        **told,
        "card": card,
        "parity": found.parity,
        "minutes": found.minutes,
        "skipped": found.skipped,
        "broken": found.broken,
    }


def _parities(found: Findings, sizes: Sizes, engine: str, cells: tuple[str, ...], *, need: float) -> None:
    runtime = Runtime.model_validate({"device": sizes.device, "update_engine": engine})
    for cell in cells:
        found.attempt(f"parity {engine} {cell}", need, partial(_parity, found, cell, runtime))


def _parity(found: Findings, cell: str, runtime: Runtime) -> None:
    found.parity.append(parity(cell, runtime))


def _loop(found: Findings, sizes: Sizes, name: str, engine: str, seconds: float) -> None:
    """Steps per second of a whole run: environments, acting, learning."""
    suite, algorithm = name.split("/")
    texts = (*ENDLESS, f"algo.learning_starts={sizes.warmup}", f"algo.replay.capacity={sizes.store}")
    run = _made(suite, algorithm, texts, Runtime.model_validate({"device": sizes.device, "update_engine": engine}))
    if not isinstance(run, Online):
        raise TypeError(type(run).__name__)
    run.clock.epochs = 1  # the untrained policy counts as judged
    rate = _rate(run, iter(run), sizes, seconds)
    run.close()
    if _noted(found, f"loop {name}", run, engine, Speed(rate, "env steps/s")):
        found.minutes[name] = round(MILLIONS[suite] * 1e6 / rate / 60, 2)


def _rate(run: Online, records: Iterator[object], sizes: Sizes, seconds: float) -> float:
    """Steps per second, once enough updates were made; the device has done all of them."""
    while run.clock.updates < sizes.settling:
        next(records)
    _wait(sizes)
    began, first = perf_counter(), run.clock.env_steps
    while perf_counter() < began + seconds or run.clock.env_steps == first:
        next(records)
    _wait(sizes)
    return (run.clock.env_steps - first) / (perf_counter() - began)


def _updates(found: Findings, sizes: Sizes, suite: str, algorithm: str, engine: str) -> None:
    """Updates per second alone, of what is recorded or of a full store."""
    with tempfile.TemporaryDirectory() as folder:
        path = offline.written(Path(folder)) if suite == "offline" else None
        asked = {"device": sizes.device, "update_engine": engine, "dataset": None if path is None else str(path)}
        texts = ENDLESS if path else (*ENDLESS, f"algo.replay.capacity={min(sizes.store, 20_000)}")
        run = _made(suite, algorithm, texts, Runtime.model_validate(asked))
    if isinstance(run, Online):
        fill(ring_of(run), describe(_spec(suite, algorithm, texts)))
    run.updater.run(0, sizes.settling)
    _wait(sizes)
    began, number = perf_counter(), sizes.settling
    while perf_counter() < began + 3 * sizes.share or number == sizes.settling:
        run.updater.run(number, sizes.settling)
        number += sizes.settling
        _wait(sizes)
    rate = (number - sizes.settling) / (perf_counter() - began)
    if _noted(found, f"updates {suite}/{algorithm}", run, engine, Speed(rate, "updates/s")) and suite == "offline":
        found.minutes[f"{suite}/{algorithm}"] = round(MILLIONS[suite] * 1e6 / rate / 60, 2)


def _noted(found: Findings, workload: str, run: Online | Offline, engine: str, speed: Speed) -> bool:
    """Keep a figure under the name of the engine that ran; whether it is one of captured updates."""
    ran = "cuda-graph" if isinstance(run.updater, GraphUpdater) else "eager"
    reason = next(iter(refusals(run.updater, run.learner)), "")
    if reason or ran != engine:
        found.skipped[f"{workload} {engine}"] = f"ran eagerly: {reason or 'no CUDA GPU'}"
        ran = "eager"
    found.figures.add(workload, ran, torch.get_num_threads(), speed.unit, [speed.rate])
    return ran == "cuda-graph"


def _made(suite: str, algorithm: str, texts: tuple[str, ...], runtime: Runtime) -> Online | Offline:
    spec = _spec(suite, algorithm, texts)
    return build(spec, runtime, describe(spec))


def _spec(suite: str, algorithm: str, texts: tuple[str, ...]) -> Spec:
    return apply_settings(suites.spec(suite, algorithm, TASKS[suite]), [parse(text, "benchmark") for text in texts])


def _wait(sizes: Sizes) -> None:
    if sizes.device == "cuda":
        torch.cuda.synchronize()


def main() -> int:
    """Check the card, write the JSON; 1 if an engine disagrees or anything broke, 2 without a card."""
    parser = argparse.ArgumentParser(prog="scripts/gpu_check", description=__doc__)
    parser.add_argument("--rehearse", action="store_true", help="the same, tiny, on the host")
    parser.add_argument("--seconds", type=float, default=510.0, help="what is not done by then is left out")
    parser.add_argument("--output", type=Path, default=Path("gpu_check.json"), help="default: $OUT/gpu_check.json")
    given = parser.parse_args()
    if not given.rehearse and not torch.cuda.is_available():
        sys.stderr.write("scripts/gpu_check: no CUDA GPU is to be seen; --rehearse tries the script on the host\n")
        return 2
    found = check(TINY if given.rehearse else REAL, given.seconds)
    save(found, given.output)
    differing = [f"{row['engine']} {row['cell']}: {row['ran']}" for row in found["parity"] if not row["within"]]
    for line in (*differing, *(f"skipped {name}: {why}" for name, why in found["skipped"].items())):
        sys.stderr.write(f"{line}\n")
    told = f"{len(found['parity'])} parities, {len(differing)} differ, {len(found['broken'])} attempts broke"
    sys.stdout.write(f"{given.output}: {told}\n")
    return 1 if differing or found["broken"] or not found["parity"] else 0


if __name__ == "__main__":
    sys.exit(main())
