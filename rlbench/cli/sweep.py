"""Executor and options of the runs of ``rlbench run``: in this process, in workers, or on a Ray cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rlbench.cli.dataset_option import Data, refuse_other_data, rows_of
from rlbench.cli.inline import Inline
from rlbench.cli.options import pauses
from rlbench.cli.output import print_note
from rlbench.cli.preflight import check_resources
from rlbench.cli.progress_display import Lines, PipeDisplay, display
from rlbench.cli.resolve import settings_from_environment, settings_from_file
from rlbench.cli.run_output import announce
from rlbench.config.overrides import written
from rlbench.config.run import Runtime
from rlbench.errors import UsageError
from rlbench.records import files
from rlbench.records.machine import available_memory, omp_threads
from rlbench.records.store import folder_of
from rlbench.signals import Stop, stop_on_signals
from rlbench.sweep.local import Local
from rlbench.sweep.plan import Job, Machine, fewer_threads, jobs_of, worker_count
from rlbench.sweep.scheduler import Sweep

if TYPE_CHECKING:
    from rlbench.config.run import EngineName, Spec
    from rlbench.sweep.events import Ending
    from rlbench.sweep.scheduler import Executor

GPU_DRIVERS = ("/proc/driver/nvidia", "/dev/kfd", "/dev/dxg")

FREE_GPU_MEMORY = """import torch
print(*(torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())))"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepOptions:
    """Options of ``rlbench run`` beside the specs; workers get the same options again."""

    results: Path
    device: str
    sets: Sequence[str]  # settings of files, environment and options, in order of precedence
    steps: int | None
    dataset: Data
    package: str | None  # that registers the environments with Gymnasium
    env_timeout: float  # seconds
    update_engine: EngineName
    eval_workers: int | None  # processes that evaluate policies of one run while it trains
    until: str | None  # where each run pauses, as typed
    smoke: bool
    force: bool
    quiet: bool
    jobs: str | None  # number of worker processes, or auto; None: no workers
    executor: Literal["local", "ray"]
    address: str | None
    pipe: int | None = None  # to the parent of a worker

    @property
    def runtime(self) -> Runtime:
        """Settings of this process that change no number of a run."""
        return Runtime(
            device=self.device,
            dataset=self.dataset.path,
            dataset_sha256=self.dataset.sha256,
            env_timeout=self.env_timeout,
            eval_workers=self.eval_workers,
            update_engine=self.update_engine,
        )


def parse_jobs(text: str | None) -> int | None:
    """Parse ``--jobs``: a number of processes; None for ``auto`` and without the option.

    Raises:
        UsageError: it is neither.
    """
    if text is None or text == "auto":
        return None
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 500:
        raise UsageError(f"--jobs {text}: not a number of processes; write auto, or a number from 1 to 500")
    return int(text)


def repeated_settings(config: Path | None, environ: Mapping[str, str], sets: Sequence[str]) -> list[str]:
    """Express every setting of file, environment and options as ``--set`` takes it; later ones win."""
    settings = [*(settings_from_file(config) if config else []), *settings_from_environment(environ)]
    plain = ((s.path, tuple(s.value) if isinstance(s.value, list) else s.value) for s in settings)
    return [*(f"{path}={written(value)}" for path, value in plain), *sets]


def sweep(specs: Sequence[Spec], options: SweepOptions) -> tuple[list[Ending], int | None]:
    """Run every spec to its end; return the endings and the number of the signal that stopped the sweep."""
    pause_steps, stop = pauses(options.until, specs), Stop()
    with _jobs_and_executor(specs, options, stop) as (planned_jobs, executor), stop_on_signals(stop):
        jobs = [replace(job, until=steps) for job, steps in zip(planned_jobs, pause_steps, strict=True)]
        with _display(jobs, options) as lines:
            try:
                check = partial(refuse_other_data, runtime=options.runtime)
                endings = Sweep(jobs, executor, lines, stop, force=options.force, check=check).run()
            except BaseException:
                executor.kill()
                raise
    if options.force and any(ending.status in {"interrupted", "halted"} for ending in endings):
        print_note("--force starts over each time; without it the same command resumes what has begun")
    return endings, stop.signal


def _display(jobs: Sequence[Job], options: SweepOptions) -> AbstractContextManager[Lines]:
    if options.pipe is not None:
        return nullcontext(PipeDisplay(options.pipe, jobs))
    announce(jobs, options.results, quiet=options.quiet, force=options.force)  # only after every check has passed
    return display(jobs, quiet=options.quiet)


@contextmanager
def _jobs_and_executor(
    specs: Sequence[Spec], options: SweepOptions, stop: Stop
) -> Iterator[tuple[list[Job], Executor]]:
    limit = parse_jobs(options.jobs)
    threads_per_run = omp_threads()
    if options.executor == "ray":
        with _cluster(specs, options, limit, threads_per_run or 1) as jobs_and_executor:
            yield jobs_and_executor
    elif options.jobs is None:
        check_resources(list(specs), options.runtime, options.results, force=options.force)
        jobs = [Job(spec=spec, folder=folder_of(spec, options.results)) for spec in specs]
        yield jobs, Inline(options.runtime, options.results, stop)
    else:
        machine = Machine(
            cores=len(os.sched_getaffinity(0)), memory=available_memory(), gpus=_free_gpus(options.device)
        )
        processes = worker_count(limit, max(1, machine.cores // (threads_per_run or 1)), len(specs))
        jobs = _jobs(specs, options, options.results, machine, processes, threads_per_run)
        yield jobs, Local(machine, processes, partial(command_line, options))


@contextmanager
def _cluster(
    specs: Sequence[Spec], options: SweepOptions, limit: int | None, threads: int
) -> Iterator[tuple[list[Job], Executor]]:
    """Build the jobs of a Ray cluster, which may use as much as its largest machine has."""
    from rlbench.sweep.ray import Cluster, connect, nodes

    ray = connect(options.address)
    try:
        resources = nodes(ray)
        names = ("CPU", "GPU", "memory")
        most = {name: max((int(node.get(name, 0)) for node in resources), default=0) for name in names}
        free = _free_gpus(options.device)
        gpus = (free or (2**62,)) if most["GPU"] and options.device != "cpu" else ()
        machine = Machine(cores=most["CPU"], memory=most["memory"], gpus=gpus)
        jobs = _jobs(specs, options, options.results.absolute(), machine, len(specs), threads)
        command = partial(command_line, options)
        executor = Cluster(ray, options.results, command, most=limit, gpu=min(free, default=0))
        try:
            yield jobs, executor
        finally:
            executor.close()
    finally:
        ray.shutdown()


def _jobs(
    specs: Sequence[Spec], options: SweepOptions, results: Path, machine: Machine, processes: int, threads: int | None
) -> list[Job]:
    """Plan the jobs; remark where a run alone would give other numbers, which ``OMP_NUM_THREADS`` prevents."""
    steps = rows_of(options.dataset.value)
    jobs = jobs_of(specs, results, machine, processes, threads, options.eval_workers, steps, force=options.force)
    if "OMP_NUM_THREADS" not in os.environ and (reason := fewer_threads(jobs, machine)):
        print_note(reason)
    return jobs


def command_line(options: SweepOptions, job: Job, device: str | None) -> list[str]:
    """Build the command line of one job, on ``device`` or the requested one; executors add ``--force``, ``--pipe``."""
    spec = job.spec
    folder, results = job.folder.absolute(), options.results.absolute()
    files.refuse_links(folder, results)  # another may have linked it since the sweep began
    return [
        *("run", spec.suite, spec.algorithm, "--task", spec.task.id, "--seeds", str(spec.seed)),
        *("--results", str(results), "--device", device or options.device),
        *(word for text in options.sets for word in ("--set", text)),
        *(("--steps", str(options.steps)) if options.steps is not None else ()),
        *("--env-timeout", str(options.env_timeout), "--eval-workers", str(job.eval_workers)),
        *("--update-engine", options.update_engine),
        *(("--dataset", options.dataset.value) if options.dataset.value is not None else ()),
        *(("--sha256", options.dataset.sha256) if options.dataset.sha256 is not None else ()),
        *(("--import", options.package) if options.package is not None else ()),
        *(("--until", options.until) if options.until is not None else ()),
        *(("--smoke",) if options.smoke else ()),
    ]


def _free_gpus(device: str) -> tuple[int, ...]:
    """Free bytes of each GPU that ``device`` allows; a process that ends gives its CUDA context back."""
    if device == "cpu" or not any(Path(place).exists() for place in GPU_DRIVERS):
        return ()
    command = [sys.executable, "-P", "-c", FREE_GPU_MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    free = tuple(int(word) for word in done.stdout.split()) if done.returncode == 0 else ()
    _, _, number = device.partition(":")
    if not number.isdigit():
        return free
    if int(number) >= len(free):
        return ()  # the run refuses the device
    return tuple(bytes_free if gpu == int(number) else 0 for gpu, bytes_free in enumerate(free))
