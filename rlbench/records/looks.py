"""Looks of a group-sequential test at a cell's seeds: the design of ``run --until-decided``, and the looks taken.

The one-sided levels hold the error of all looks at 5 %. They are Kim and DeMets' (1987, doi:10.1093/biomet/74.1.149)
with the spending function 0.8 alpha t^3 and the information t = k/N of k among at most N seeds. Levels are those of
z-tests; the share that is not spent makes up for t-tests of few seeds, as ``results/calibration`` shows by simulation.
Where the reference is a mean of three to ten seeds, its error is the same at every look. The information is then that
of the difference to a mean of ten, (1/N + 1/9) / (1/k + 1/9), and 0.92 alpha t^4 is spent.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from rlbench import faults
from rlbench.config.names import printable
from rlbench.errors import RefusedFile, UsageError
from rlbench.records import files
from rlbench.records.locks import FolderLock, holder

NAME: Final = "looks.json"  # the file beside a cell's seeds
ATTEMPTS: Final = 25  # at the lock of a cell, of 0.2 seconds each


class Look(NamedTuple):
    """One test: the first ``seeds`` seeds of a cell at a one-sided ``level``."""

    seeds: int
    level: float


_SEEDS: Final = (3, 5, 8, 12, 20, 32)
_LEVELS: Final = (
    (0.0086400, 0.037228),
    (0.0021094, 0.0087915, 0.036715),
    (0.00062500, 0.0025439, 0.010520, 0.036086),
    (0.00013500, 0.00053637, 0.0021961, 0.0074196, 0.036950),
    (3.2959e-05, 0.00012866, 0.00052308, 0.0017469, 0.0087143, 0.036670),
)
_SHARED_ERROR_LEVELS: Final = (
    (0.011045, 0.043692),
    (0.0036640, 0.014137, 0.042677),
    (0.0016853, 0.0063975, 0.019149, 0.041378),
    (0.00079431, 0.0029714, 0.0088236, 0.018876, 0.041111),
    (0.00048423, 0.0017951, 0.0053043, 0.011275, 0.024498, 0.039653),
)
DESIGNS, SHARED_ERROR_DESIGNS = (
    {
        _SEEDS[len(levels) - 1]: tuple(Look(seeds, level) for seeds, level in zip(_SEEDS, levels, strict=False))
        for levels in table
    }
    for table in (_LEVELS, _SHARED_ERROR_LEVELS)
)
"""The looks of each design, by the number of seeds at its end: for any reference, and for one with an error."""

REFERENCE_SEEDS: Final = range(3, 11)
MAX_STD_RATIO: Final = 1.75
"""Largest std of our first three seeds, in multiples of the reference's, with which its error counts as shared."""

DESIGN: Final = DESIGNS[20]  # the default design


@dataclass(frozen=True, slots=True)
class Looks:
    """The looks of a cell's design and the number taken; none until the seeds of the first one have ended."""

    design: tuple[Look, ...]
    count: int

    @property
    def current(self) -> Look:
        """The last look taken; the first one where none is."""
        return self.design[max(self.count, 1) - 1]

    @property
    def max_seeds(self) -> int:
        """Seeds of the design's last look."""
        return self.design[-1].seeds

    @property
    def following(self) -> Look | None:
        """The next look; None after the last one of the design."""
        return self.design[self.count] if self.count < len(self.design) else None

    @property
    def inflation(self) -> float:
        """The factor that makes a p-value of the last look one of the whole design, by Bonferroni over its looks."""
        return sum(look.level for look in self.design) / self.current.level

    def __str__(self) -> str:
        seeds, level = self.current
        return f"look {max(self.count, 1)} of {len(self.design)} at {seeds} seeds, level {level:.2g}"


_DESIGN = TypeAdapter(tuple[Look, ...])


def design_for(most: int, scores: Sequence[float], std: float | None, n: int | None) -> tuple[Look, ...]:
    """Return the looks for a cell by its first three ``scores``; ``most`` seeds take the last look.

    ``std`` of the reference's ``n`` seeds is divided by n, as printed; None where it is not known.
    """
    first = scores[: DESIGN[0].seeds]
    if not std or n is None or n not in REFERENCE_SEEDS or len(first) < DESIGN[0].seeds:
        return DESIGNS[most]
    similar = stdev(first) <= MAX_STD_RATIO * std * (n / (n - 1)) ** 0.5
    return (SHARED_ERROR_DESIGNS if similar else DESIGNS)[most]


def read_looks(cell: Path) -> Looks | None:
    """Read the looks of the cell whose seeds are in the folder ``cell``; None where it has none.

    Raises:
        RefusedFile: the file is damaged, newer, of another cell, or holds another design than those above.
    """
    path = cell / NAME
    if not os.path.lexists(path):
        return None
    try:
        content = files.read_sealed(path)
    except RefusedFile as error:
        raise RefusedFile(str(error).replace("start over with --force", "begin in another folder of records")) from None
    if (stated_id := content.get("id")) != cell.absolute().name:
        raise RefusedFile(f"{path}: holds the looks of {printable(str(stated_id))}; move it there")
    try:
        design = _DESIGN.validate_python(content.get("looks"))
    except ValidationError:
        design = ()
    count = content.get("taken")
    if design not in (*DESIGNS.values(), *SHARED_ERROR_DESIGNS.values()):
        raise RefusedFile(f"{path}: holds no design of --until-decided; restore it")
    if type(count) is not int or not 0 <= count <= len(design):
        raise RefusedFile(f"{path}: counts {count} of {len(design)} looks; restore it")
    return Looks(design, count)


def refuse_other_design(name: object, on_disk: Looks | None, looks: Looks) -> None:
    """Raise UsageError for looks that end at another number of seeds than those on disk."""
    if on_disk is not None and (most := on_disk.max_seeds) != looks.max_seeds:
        raise UsageError(
            f"--until-decided: the looks of {name} end at {most} seeds, and a design that changes errs more often; add "
            f"--most-seeds {most}"
        )


def record_looks(cell: Path, looks: Looks) -> None:
    """Record the looks of a cell, unless another process has recorded as many.

    Raises:
        RefusedFile: the present record is damaged.
        UsageError: the present looks end at another number of seeds, the folder cannot be written, or another process
            holds its lock.
    """
    path, lock = cell / NAME, FolderLock(cell)
    with files.writing(path):
        cell.mkdir(parents=True, exist_ok=True)
        faults.point("lock.made")
        if not any(lock.acquire() for _ in range(ATTEMPTS)):  # a process that records looks holds it for a moment
            raise UsageError(f"{cell}: {holder(cell)} holds its lock; end it (if there is none, delete {lock.path})")
        try:
            for temporary in cell.glob(f"{NAME}.*.tmp"):  # of a crashed process
                temporary.unlink()
                faults.point("lock.swept")
            on_disk = read_looks(cell)
            refuse_other_design(cell, on_disk, looks)
            if on_disk is None or on_disk.count < looks.count:
                content = {"id": cell.absolute().name, "taken": looks.count, "looks": looks.design}
                files.replace_sealed(path, content)
        finally:
            lock.release()
