"""``rlbench run … --jobs N``: the missing runs in processes of their own, here or over a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rlbench.cli.output import remark
from rlbench.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from rlbench.config.run import Spec
    from rlbench.records.types import Outcome
    from rlbench.sweep.events import Ending
    from rlbench.sweep.plan import Job, Machine, Order
    from rlbench.sweep.scheduler import Executor, Stop
EXECUTORS = ("local", "ray")
GPU_DRIVERS = ("/proc/driver/nvidia", "/dev/kfd", "/dev/dxg")

Row: TypeAlias = "Callable[[Spec, Path, str, Outcome | None], dict[str, object]]"
"""Tells what became of a run."""

CARDS = """import torch
print(*(torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())))"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepOptions:
    """What the command line says of how a sweep is carried out, and what its processes are told again."""

    results: Path
    device: str
    sets: Sequence[str]  # of files, environment and options, in order of precedence
    steps: int | None
    dataset: str | None
    env_timeout: float  # seconds for one answer of the environments
    update_engine: str  # how gradient steps are computed
    eval_workers: int | None  # processes that judge beside each run
    smoke: bool
    force: bool
    quiet: bool
    jobs: int | None  # None: as many as there are cores
    executor: str
    address: str | None


def parse_jobs(text: str | None) -> int | None:
    """``auto``, or how many processes.

    Raises:
        UsageError: it is neither.
    """
    if text is None or text == "auto":
        return None
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 500:
        raise UsageError(f"--jobs {text}: not a number of processes; write auto, or a number from 1 to 500")
    return int(text)


def repeated(config: Path | None, environ: Mapping[str, str], sets: Sequence[str]) -> list[str]:
    """Every field that was set from outside, as ``--set`` takes it; later ones hold."""
    from rlbench.cli.resolve import from_environment, from_file, written

    outside = [*(from_file(config) if config else []), *from_environment(environ)]
    plain = ((s.path, tuple(s.value) if isinstance(s.value, list) else s.value) for s in outside)
    return [*(f"{path}={written(value)}" for path, value in plain), *sets]


def swept(specs: Sequence[Spec], asked: SweepOptions, row: Row) -> tuple[list[dict[str, object]], int]:
    """Carry every run on to its end; what became of each, and the exit code."""
    from rlbench.cli.run import CODES
    from rlbench.cli.sweep_display import display
    from rlbench.sweep.scheduler import Stop, Sweep

    stop = Stop()
    with _executor(specs, asked) as (jobs, engine), display(jobs, quiet=asked.quiet) as shown, _heard(stop):
        try:
            endings = Sweep(jobs, engine, shown, stop, force=asked.force).carry()
        except BaseException:
            engine.kill()
            raise
    if stop.signal is not None:
        remark("stopped; the same command goes on")
    told = [{**row(e.job.spec, e.job.folder, e.status, e.outcome), **_beyond(e)} for e in endings]
    worst = max((CODES.get(ending.status, 0) for ending in endings), default=0)
    return told, worst if stop.signal is None else 128 + stop.signal


def _beyond(ending: Ending) -> dict[str, object]:
    """What is told of a run of a sweep beyond what is told of any."""
    log = {"log": str(ending.log)} if ending.log is not None else {}
    return {"reason": ending.reason, "attempts": ending.attempts, **log}


@contextmanager
def _executor(specs: Sequence[Spec], asked: SweepOptions) -> Iterator[tuple[list[Job], Executor]]:
    """The jobs, and what carries them out."""
    from rlbench.cli.experience import steps_of
    from rlbench.records.machine import available_memory
    from rlbench.sweep.local import Local
    from rlbench.sweep.plan import Machine, at_once, jobs_of

    if asked.executor not in EXECUTORS:
        raise UnknownName("executor", asked.executor, EXECUTORS, where="--executor")
    threads = os.environ.get("OMP_NUM_THREADS", "")
    each = int(threads) if threads.isascii() and threads.isdigit() and int(threads) > 0 else None
    if asked.executor == "ray":
        with _cluster(specs, asked, each or 1) as found:
            yield found
        return
    machine = Machine(cores=len(os.sched_getaffinity(0)), memory=available_memory(), cards=_cards(asked.device))
    processes = at_once(asked.jobs, max(1, machine.cores // (each or 1)), len(specs))
    jobs = jobs_of(specs, asked.results, machine, processes, each, asked.eval_workers, steps_of(asked.dataset))
    _tell_rounding(jobs, machine)
    yield jobs, Local(machine, processes, _words(asked))


@contextmanager
def _cluster(specs: Sequence[Spec], asked: SweepOptions, threads: int) -> Iterator[tuple[list[Job], Executor]]:
    """The jobs as tasks of a Ray cluster, each sized by the largest machine it now has."""
    from rlbench.cli.experience import steps_of
    from rlbench.sweep.plan import Machine, jobs_of
    from rlbench.sweep.ray import Cluster, connect, nodes

    with redirect_stdout(sys.stderr):  # Ray speaks from threads of its own until it is shut down; stdout is for results
        ray = connect(asked.address)
        try:
            has = nodes(ray)
            most = {name: max((int(node.get(name, 0)) for node in has), default=0) for name in ("CPU", "GPU", "memory")}
            cards = _cards(asked.device)
            given = (cards or (2**62,)) if most["GPU"] and asked.device != "cpu" else ()
            machine = Machine(cores=most["CPU"], memory=most["memory"], cards=given)
            steps = steps_of(asked.dataset)
            jobs = jobs_of(specs, asked.results.absolute(), machine, len(specs), threads, asked.eval_workers, steps)
            _tell_rounding(jobs, machine)
            engine = Cluster(ray, asked.results, _words(asked), most=asked.jobs, gpu=min(cards, default=0))
            try:
                yield jobs, engine
            finally:
                engine.close()
        finally:
            ray.shutdown()


def _tell_rounding(jobs: Sequence[Job], machine: Machine) -> None:
    """Say where the numbers are not those of a run alone; ``OMP_NUM_THREADS`` is the number of both."""
    from rlbench.sweep.plan import fewer_threads

    reason = "" if "OMP_NUM_THREADS" in os.environ else fewer_threads(jobs, machine)
    if reason:
        remark(reason)


def _words(asked: SweepOptions) -> Callable[[Order], list[str]]:
    """The command line of one job: what was typed, for one task and one seed."""

    def words(order: Order) -> list[str]:
        spec, given = order.job.spec, asked.dataset
        return [
            *("run", spec.suite, spec.algorithm, "--task", spec.task.id, "--seeds", str(spec.seed)),
            *("--results", str(asked.results.absolute()), "--device", order.device or asked.device),
            *(word for text in asked.sets for word in ("--set", text)),
            *(("--steps", str(asked.steps)) if asked.steps is not None else ()),
            *(
                "--env-timeout",
                str(asked.env_timeout),
                "--eval-workers",
                str(order.job.eval_workers),
                "--update-engine",
                asked.update_engine,
            ),
            *(("--dataset", given) if given is not None else ()),
            *(("--smoke",) if asked.smoke else ()),
            *(("--force",) if order.force else ()),
        ]

    return words


def _cards(device: str) -> tuple[int, ...]:
    """Bytes free on each GPU that may be used; torch is asked in a process that then gives them back."""
    if device == "cpu" or not any(Path(place).exists() for place in GPU_DRIVERS):
        return ()
    asked = [sys.executable, "-P", "-c", CARDS]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)  # noqa: S603 - our own words
    free = tuple(int(word) for word in done.stdout.split()) if done.returncode == 0 else ()
    _, _, number = device.partition(":")
    if not number.isdigit() or int(number) >= len(free):
        return free
    return tuple(bytes_free if place == int(number) else 0 for place, bytes_free in enumerate(free))


@contextmanager
def _heard(stop: Stop) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP let every run save its state, a second one ends them; what is ignored stays so."""

    def ask(number: int, _frame: object) -> None:
        stop.again = stop.signal is not None
        stop.signal = stop.signal or number

    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [name for name in names if name != signal.SIGHUP or signal.getsignal(name) != signal.SIG_IGN]  # nohup
    before = {name: signal.signal(name, ask) for name in heard}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
