"""Convert points of learning curves into one curve per seed: sorted, without duplicates, all finite."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import PurePath
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlbench.config.footprint import size_text
from rlbench.config.names import MAX_NAME_LENGTH, printable
from rlbench.errors import DoesNotFit, RefusedFile
from rlbench.records.imported import MAX_POINTS, MAX_STEP, Kind, Origin
from rlbench.records.machine import available_memory

Column: TypeAlias = NDArray[np.float64]
MAX_CURVES: Final = 100_000  # of one import
UNSTATED: Final = Origin(format="", sha256="", env_id="", unknown=())

RUN_NAMES: Final = (
    re.compile(r"(?P<task>.+?)__(?P<experiment>.+)__(?P<seed>\d+)__\d+"),  # CleanRL: env_id__exp_name__seed__time
    re.compile(r"(?P<task>.+-v\d+)_(?P<seed>\d+)"),  # RL Zoo: env_id_number
    re.compile(r"(?P<task>)(?:.*[^a-zA-Z])?seed[=_ :-]?(?P<seed>\d+)"),
)
NUMBER: Final = re.compile(r"(?P<task>)(?P<seed>\d{1,6})")


class Label(NamedTuple):
    """The cell and the seed of a curve, as far as its file names them."""

    suite: str = ""
    algorithm: str = ""
    task: str = ""
    dataset: str = ""
    seed: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Points:
    """One curve of a file; the arrays have shape ``[N]``."""

    label: Label
    kind: Kind
    steps: Column
    returns: Column
    lengths: Column | None = None
    unknown: tuple[str, ...] = ()
    protocol_parts: tuple[str, ...] = ()  # parts of the protocol that the file states
    origin: Origin = UNSTATED  # as far as the file states it
    episodes: bool = False  # a point is one episode, so that several may end at a step


def refuse_beyond_memory(path: PurePath, bytes_needed: int) -> None:
    """Refuse to read what takes ``bytes_needed`` of memory.

    Raises:
        DoesNotFit: fewer are free.
    """
    if bytes_needed > (free := available_memory()):
        sizes = f"{size_text(bytes_needed)} of memory, {size_text(free)} are free"
        raise DoesNotFit(f"{path}: needs up to {sizes}; split the file")


def label_of(path: PurePath | str) -> Label:
    """The task and the seed in the names of a path's folders or of a run; the deepest name wins.

    A name that is a number alone is a seed in the last place: above it may be a year, or a user's number.
    """
    task, seed = "", None
    patterns: tuple[re.Pattern[str], ...] = (*RUN_NAMES, NUMBER)
    for part in reversed([part for part in PurePath(path).parts if len(part) <= MAX_NAME_LENGTH]):
        for pattern in patterns:
            if match := pattern.fullmatch(part):
                task, seed = task or match["task"], int(match["seed"]) if seed is None else seed
                break
        else:
            task = task or (part if re.fullmatch(r"[A-Za-z]\w*-v\d+", part) else "")
        patterns = RUN_NAMES
    return Label(task=task, seed=seed)


def number_seeds(curves: Sequence[Points]) -> list[Points]:
    """Number the curves without a seed in order, cell by cell."""
    curves_with_seeds, numbers = [], defaultdict[Hashable, Iterator[int]](count)
    for curve in curves:
        if curve.label.seed is None:
            label = curve.label._replace(seed=next(numbers[curve.label[:4]]))
            curve = replace(curve, label=label, unknown=(*curve.unknown, "seeds"))  # noqa: PLW2901 - the same with a seed
        curves_with_seeds.append(curve)
    return curves_with_seeds


def sort_points(curve: Points, where: str) -> Points:
    """A curve in order of its steps; episodes that end at one step are averaged.

    Raises:
        RefusedFile: a step is twice there or no whole number, or a return is not finite; the message names it.
    """
    seed = curve.label.seed
    whole = (curve.steps >= 0) & (curve.steps < MAX_STEP) & (curve.steps == np.floor(curve.steps))
    if not whole.all():
        raise RefusedFile(
            f"{where}: step {curve.steps[~whole][0]:g} of seed {seed} is no count of steps; correct the row"
        )
    finite = np.isfinite(curve.returns)
    if not finite.all():
        step = curve.steps[~finite][0]
        raise RefusedFile(f"{where}: the return of seed {seed} at step {step:.0f} is not finite; remove the row")
    order = np.argsort(curve.steps, kind="stable")
    steps, returns = curve.steps[order], curve.returns[order]
    lengths = None if curve.lengths is None else curve.lengths[order]
    twice = np.flatnonzero(np.diff(steps) == 0)
    if twice.size and not curve.episodes:
        raise RefusedFile(
            f"{where}: seed {seed} has step {steps[twice[0]]:.0f} twice; remove one row, or average the episodes first"
        )
    if twice.size:
        starts = np.flatnonzero(np.diff(steps, prepend=-1.0))
        counts = np.diff(np.append(starts, len(steps)))
        steps, returns = steps[starts], np.add.reduceat(returns, starts) / counts
        lengths = None if lengths is None else np.add.reduceat(lengths, starts) / counts
    if len(steps) > MAX_POINTS:
        raise RefusedFile(f"{where}: seed {seed} has {len(steps):,} points, {MAX_POINTS:,} are allowed; thin the file")
    return replace(curve, steps=steps, returns=returns, lengths=lengths)


def listing(names: Iterable[object]) -> str:
    """Some names of a file in one line of a message."""
    every = [printable(str(name), 40) for name in names]
    return ", ".join(every[:8]) + (", …" if len(every) > 8 else "")
