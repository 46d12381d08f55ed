"""Placement of a sweep's runs: pure functions of the request and of the machine.

Nothing here depends on which runs have ended already. A sweep that is started again thus gives every run the same
number of threads as before, and with it the same numbers to the bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlbench.config.footprint import Footprint, eval_worker_count, footprint, size_text, useful_threads
from rlbench.config.names import count_text
from rlbench.config.run import Spec
from rlbench.errors import DoesNotFit, RefusedFile, UsageError
from rlbench.records.store import folder_of, read_outcome

REMEDIES = {
    "replay": "lower algo.replay.capacity with --set",
    "rollouts": "lower algo.rollout_length with --set",
    "data": "learn from fewer recorded games, which rlbench data subset makes",
}
"""Remedies for a run that does not fit into memory, by what it learns from."""

CONTEXT = 600_000_000  # bytes that CUDA itself holds on a GPU for each process; 500 MB are usual


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run of a sweep and the resources it needs."""

    spec: Spec
    folder: Path
    threads: int = 1  # of torch
    memory: int = 0  # bytes of the host
    gpu: int = 0  # bytes of a GPU; 0 where none is used
    eval_workers: int = 0  # processes that evaluate policies while it trains
    until: int | None = None  # steps at which the run pauses; None: it goes on to its end

    @property
    def name(self) -> str:
        """``suite/algorithm/task seed n``."""
        return f"{self.spec.name} seed {self.spec.seed}"

    @property
    def steps(self) -> int:
        """Steps at which the run ends, or pauses: at the first evaluation from ``until`` on."""
        budget = self.spec.budget
        return budget.steps if self.until is None else min(-(-self.until // budget.epoch) * budget.epoch, budget.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Resources of a machine."""

    cores: int  # that this process may use
    memory: int  # free bytes
    gpus: tuple[int, ...] = ()  # free bytes of each GPU


@dataclass(frozen=True, slots=True)
class Placement:
    """A job and its GPU as an index into ``Machine.gpus``; None: on the CPU."""

    job: Job
    gpu: int | None = None


def parse_shard(text: str) -> slice:
    """Parse ``2/8``, the value of ``--shard``: every eighth run from the second on.

    Raises:
        UsageError: the text is no shard.
    """
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {text}: not a shard; write i/n with i from 1 to n, for example 1/8")
    return slice(int(match[1]) - 1, None, int(match[2]))


def worker_count(requested: int | None, cores: int, runs: int) -> int:
    """Worker processes: as many as requested, else one per core, and never more than there are runs."""
    return max(1, min(requested or cores, runs))


def jobs_of(
    specs: Iterable[Spec],
    results: Path,
    machine: Machine,
    processes: int,
    threads: int | None,
    eval_workers: int | None = None,
    steps: Callable[[Spec], int | None] = lambda _: None,
    *,
    force: bool = False,
) -> list[Job]:
    """Give every run its share of the cores, or the requested ``threads`` and ``eval_workers``.

    ``steps`` returns the number of transitions in a run's data set, where its file is present.

    Raises:
        DoesNotFit: a run that has not ended, or that ``force`` starts again, needs more than the whole machine has.
    """
    share, gpu = threads or max(1, machine.cores // processes), bool(machine.gpus)
    jobs: list[Job] = []
    for spec in specs:
        learning = threads or min(useful_threads(spec, gpu=gpu, cores=machine.cores), share)
        evaluating = eval_worker_count(spec, requested=eval_workers, cores=share, threads=learning, gpu=gpu)
        need = footprint(spec, evaluating, steps=steps(spec))
        on_gpu = need.replay + need.networks if machine.gpus else 0
        job = Job(
            spec=spec,
            folder=folder_of(spec, results),
            threads=learning,
            eval_workers=evaluating,
            memory=need.total - on_gpu,
            gpu=on_gpu + CONTEXT if machine.gpus else 0,
        )
        jobs.append(job)
        if force or is_due(spec, results):
            refuse_too_large(spec, need, "this machine", job.memory, machine.memory)
            refuse_too_large(spec, need, "a GPU", job.gpu, max(machine.gpus, default=0))
    return jobs


def is_due(spec: Spec, results: Path) -> bool:
    """Return whether a run has not ended."""
    with suppress(RefusedFile):  # the run itself reports it
        outcome = read_outcome(folder_of(spec, results))
        return outcome is None or outcome.status == "interrupted"
    return True


def refuse_too_large(spec: Spec, need: Footprint, place: str, memory: int, free: int) -> None:
    """Refuse a run whose ``memory`` bytes of ``need`` on one place are more than are free.

    Raises:
        DoesNotFit: they are; the message has both numbers.
    """
    if memory > free:
        share = f"{size_text(memory)} of it on {place}, which has {size_text(free)} free"
        remedy = REMEDIES[spec.algo.learns_from]
        raise DoesNotFit(f"{spec.name} seed {spec.seed}: {need.line()}; {share}; {remedy}, or use a larger machine")


def place(job: Job, running: Sequence[Placement], machine: Machine, processes: int) -> Placement | None:
    """Place a job beside the running ones; None while there is no room."""
    threads = sum(placement.job.threads for placement in running)
    memory = sum(placement.job.memory for placement in running)
    if len(running) >= processes or (running and threads + job.threads > max(machine.cores, processes)):
        return None
    if memory + job.memory > machine.memory:
        return None
    if not job.gpu:
        return Placement(job)
    free = list(machine.gpus)
    for placement in running:
        if placement.gpu is not None:
            free[placement.gpu] -= placement.job.gpu
    gpu = max(range(len(free)), key=lambda number: free[number])
    return Placement(job, gpu) if free[gpu] >= job.gpu else None


def fewer_threads(jobs: Iterable[Job], machine: Machine) -> str:
    """Explain why a run of a sweep gives other numbers than alone on ``machine``; empty if it does not."""
    for job in jobs:
        alone = useful_threads(job.spec, gpu=bool(machine.gpus), cores=machine.cores)
        if job.threads != alone:
            here = count_text(job.threads, "thread")
            return (
                f"{job.name}: computes with {here} of torch here and with {alone} alone, so its numbers differ by "
                f"rounding; OMP_NUM_THREADS={job.threads} gives the same ones alone"
            )
    return ""
