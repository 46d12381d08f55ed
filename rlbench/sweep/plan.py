"""Which runs of a sweep go where, and when: pure functions of what was asked for and of the machine.

Nothing here depends on what is finished already, so that a sweep that is started again gives every run the threads
it had before, and with them the same numbers to the bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from rlbench.errors import DoesNotFit, UsageError
from rlbench.record.store import folder_of
from rlbench.spec.footprint import footprint, size
from rlbench.spec.run import Spec
from rlbench.spec.threads import beside, paying

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
    card: int = 0  # bytes of a graphics card; 0 where none is used
    judges: int = 0  # processes that judge beside it

    @property
    def name(self) -> str:
        """``suite/algorithm/task seed n``."""
        return f"{self.spec.name} seed {self.spec.seed}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What a machine has for a sweep."""

    cores: int  # that the process may use
    memory: int  # bytes that are free
    cards: tuple[int, ...] = ()  # bytes that are free on each graphics card


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
    judges: int | None = None,
) -> list[Job]:
    """Every run with its share of the cores, or with ``threads`` and ``judges`` where somebody said how many.

    Raises:
        DoesNotFit: one needs more than the whole machine has.
    """
    found = [_job(spec, results, machine, processes, threads, judges) for spec in specs]
    for job in found:
        for need, free, place in (
            (job.memory, machine.memory, "this machine"),
            (job.card, max(machine.cards, default=0), "a graphics card"),
        ):
            if need > free:
                raise DoesNotFit(
                    f"{job.name}: {footprint(job.spec, job.judges).line()}; {size(need)} of it on {place}, which has "
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


def _job(spec: Spec, results: Path, machine: Machine, processes: int, threads: int | None, judges: int | None) -> Job:
    share = threads or max(1, machine.cores // processes)
    cards = bool(machine.cards)
    learning = threads or min(paying(spec, card=cards, cores=machine.cores), share)
    judging = beside(spec, asked=judges, cores=share, threads=learning)
    need = footprint(spec, judging)
    computed = need.replay + need.networks  # lies on the card, where there is one
    return Job(
        spec=spec,
        folder=folder_of(spec, results),
        threads=learning,
        judges=judging,
        memory=need.total - (computed if cards else 0),
        card=computed + CONTEXT if cards else 0,
    )
