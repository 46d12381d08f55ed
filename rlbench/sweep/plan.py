"""Which runs of a sweep go where, and when: pure functions of what was asked for and of the machine.

Nothing here depends on what is finished already, so that a sweep that is started again gives every run the threads
it had before, and with them the same numbers to the bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from rlbench.config.footprint import Footprint, footprint, size
from rlbench.config.resources import eval_worker_count, paying
from rlbench.config.run import Spec
from rlbench.errors import DoesNotFit, UsageError
from rlbench.records.store import folder_of

CONTEXT = 600_000_000
"""Bytes that CUDA itself holds on a card for each process; 500 MB are usual."""

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run of a sweep and what it takes."""

    spec: Spec
    folder: Path
    threads: int  # of torch
    memory: int  # bytes of the host
    card: int = 0  # bytes of a GPU; 0 where none is used
    eval_workers: int = 0  # processes that judge beside it

    @property
    def name(self) -> str:
        """``suite/algorithm/task seed n``."""
        return f"{self.spec.name} seed {self.spec.seed}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What a machine has for a sweep."""

    cores: int  # that the process may use
    memory: int  # bytes that are free
    cards: tuple[int, ...] = ()  # bytes that are free on each GPU


class Share(NamedTuple):
    """The ``number``-th of so many equal shares, counted from 1."""

    number: int
    total: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A job and the card it computes on, by its place in ``Machine.cards``; None: on the processor."""

    job: Job
    card: int | None = None


class Order(NamedTuple):
    """One start of a job."""

    job: Job
    device: str | None = None  # None: as was asked for
    force: bool = False  # start over


def parse_share(text: str) -> Share:
    """``2/8`` as ``--shard`` takes it.

    Raises:
        UsageError: it is no share.
    """
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {text}: not a share; write i/n with i from 1 to n, for example 1/8")
    return Share(int(match[1]), int(match[2]))


def shared(items: Sequence[ItemT], share: Share) -> list[ItemT]:
    """Every ``total``-th item from the ``number``-th on: all shares together hold every item once."""
    return list(items[share.number - 1 :: share.total])


def at_once(asked: int | None, cores: int, pairs: int) -> int:
    """Processes that run side by side: as many as were asked for, or one a core, and never more than there are runs."""
    return max(1, min(asked or cores, pairs))


def jobs_of(
    specs: Iterable[Spec],
    results: Path,
    machine: Machine,
    processes: int,
    threads: int | None,
    eval_workers: int | None = None,
    steps: Callable[[Spec], int | None] = lambda _: None,
) -> list[Job]:
    """Every run with its share of the cores, or with ``threads`` and ``eval_workers`` where somebody said how many.

    ``steps`` tells how long the recorded experience of a run is, where its file is there.

    Raises:
        DoesNotFit: one needs more than the whole machine has.
    """
    share = threads or max(1, machine.cores // processes)
    found: list[Job] = []
    for spec in specs:
        learning = threads or min(paying(spec, card=bool(machine.cards), cores=machine.cores), share)
        judging = eval_worker_count(spec, asked=eval_workers, cores=share, threads=learning)
        need = footprint(spec, judging, steps=steps(spec))
        job = _job(spec, results, machine, learning, judging, need)
        found.append(job)
        for bytes_needed, free, place in (
            (job.memory, machine.memory, "this machine"),
            (job.card, max(machine.cards, default=0), "a GPU"),
        ):
            if bytes_needed > free:
                raise DoesNotFit(
                    f"{job.name}: {need.line()}; {size(bytes_needed)} of it on {place}, which has "
                    f"{size(free)} free; lower algo.replay.capacity with --set, or use a larger machine"
                )
    return found


def place(job: Job, running: Sequence[Placed], machine: Machine, processes: int) -> Placed | None:
    """Where a job can start beside those that run; None while there is no room."""
    taken = sum(placed.job.threads for placed in running)
    held = sum(placed.job.memory for placed in running)
    if len(running) >= processes or (running and taken + job.threads > max(machine.cores, processes)):
        return None
    if held + job.memory > machine.memory:
        return None
    if not job.card:
        return Placed(job)
    free = list(machine.cards)
    for placed in running:
        if placed.card is not None:
            free[placed.card] -= placed.job.card
    card = max(range(len(free)), key=lambda number: free[number])
    return Placed(job, card) if free[card] >= job.card else None


def fewer_threads(jobs: Iterable[Job], machine: Machine) -> str:
    """Why runs of a sweep give other numbers than each alone on ``machine``; nothing if they do not."""
    for job in jobs:
        alone = paying(job.spec, card=bool(machine.cards), cores=machine.cores)
        if job.threads != alone:
            return (
                f"{job.name}: computes with {_counted(job.threads)} of torch here and with {alone} alone, so its "
                f"numbers differ by rounding; OMP_NUM_THREADS={job.threads} gives the same ones alone"
            )
    return ""


def _counted(threads: int) -> str:
    return f"{threads} thread{'' if threads == 1 else 's'}"


def _job(spec: Spec, results: Path, machine: Machine, learning: int, judging: int, need: Footprint) -> Job:
    cards = bool(machine.cards)
    computed = need.replay + need.networks  # lies on the card, where there is one
    return Job(
        spec=spec,
        folder=folder_of(spec, results),
        threads=learning,
        eval_workers=judging,
        memory=need.total - (computed if cards else 0),
        card=computed + CONTEXT if cards else 0,
    )
