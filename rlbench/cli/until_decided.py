"""``run --until-decided``: seeds in the looks of a group-sequential design, until every cell has a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlbench.errors import UsageError
from rlbench.records.looks import DESIGN, DESIGNS, Look, Looks, design_for, read_looks, take_look, write_looks
from rlbench.records.store import folder_of

if TYPE_CHECKING:
    from pathlib import Path

    from rlbench.cli.sweep import SweepOptions
    from rlbench.config.run import Spec
    from rlbench.report.cells import Cell
    from rlbench.report.reference_table import CellKey
    from rlbench.sweep.events import Ending

DECIDED = ("REPRODUCED", "BELOW", "ABOVE")


@dataclass(frozen=True, kw_only=True, slots=True)
class SequentialCell:
    """A cell with the Specs of all seeds of the design."""

    key: CellKey
    specs: tuple[Spec, ...]
    folder: Path  # of its seeds
    design: tuple[Look, ...]

    @property
    def most_seeds(self) -> int:
        """Seeds of the last look."""
        return self.design[-1].seeds

    @property
    def looks(self) -> Looks | None:
        """The looks taken; None before the first one."""
        return read_looks(self.folder)


def design_of(most_seeds: int | None, *, until_decided: bool) -> tuple[Look, ...]:
    """Return the looks of the design that ends at ``most_seeds``; none without ``--until-decided``.

    Raises:
        UsageError: no design ends there, or ``--most-seeds`` stands alone.
    """
    if most_seeds is None:
        return DESIGN if until_decided else ()
    if not until_decided:
        raise UsageError(f"--most-seeds {most_seeds}: belongs to --until-decided; add it")
    if most_seeds not in DESIGNS:
        *ends, last = DESIGNS
        raise UsageError(f"--most-seeds {most_seeds}: write {', '.join(map(str, ends))} or {last}")
    return DESIGNS[most_seeds]


def seeds_of_design(design: tuple[Look, ...], seeds: str, **options: object) -> str:
    """Return the seeds of all looks; refuse options that choose seeds or steps, which the design fixes.

    Raises:
        UsageError: one of them is given.
    """
    for name, value in {"seeds": seeds if seeds != "0" else None, **options}.items():
        if value:
            raise UsageError(f"--{name} {value}: --until-decided fixes it; leave one of the two out")
    return f"0-{design[-1].seeds - 1}"


def cells_of(specs: Sequence[Spec], results: Path, design: tuple[Look, ...]) -> tuple[SequentialCell, ...]:
    """Group the Specs of a design by cell.

    Raises:
        UsageError: a cell has other settings than the reference, its reference is a single run, or its looks belong to
            another design.
        RefusedFile: the record of its looks is damaged.
    """
    from rlbench.report.reference_table import CellKey, row_of

    groups: dict[Path, list[Spec]] = {}
    for spec in specs:
        groups.setdefault(folder_of(spec, results).parent, []).append(spec)
    cells = []
    for folder, group in groups.items():
        spec = group[0]
        key = CellKey(spec.suite, spec.algorithm, *row_of(spec.suite, spec.task.id, getattr(spec.task, "dataset", "")))
        _refuse_undecidable(key, spec)
        cell = SequentialCell(key=key, specs=tuple(group), folder=folder, design=design)
        if cell.looks is not None and cell.looks.last_seeds != cell.most_seeds:
            most = cell.looks.last_seeds
            raise UsageError(
                f"--until-decided: the looks of {spec.name} end at {most} seeds, and a design that changes errs more "
                f"often; add --most-seeds {most}"
            )
        cells.append(cell)
    return tuple(cells)


def sweep_until_decided(cells: Sequence[SequentialCell], options: SweepOptions) -> tuple[list[Ending], int | None]:
    """Run the seeds of one look after the other; return the endings and the number of the signal that stopped them.

    A look is recorded when its seeds have ended, so a repeated command goes on at the look that it had reached.
    """
    from rlbench.cli.sweep import sweep

    endings: dict[Path, Ending] = {}
    while going := _undecided(cells, options.results):
        specs = [spec for cell, seeds in going for spec in cell.specs[:seeds]]
        specs = [spec for spec in specs if folder_of(spec, options.results) not in endings]
        new, stopped_by = sweep(specs, options) if specs else ([], None)
        endings |= {ending.job.folder: ending for ending in new}
        if stopped_by is not None or any(ending.status not in {"done", "failed"} for ending in new):
            return list(endings.values()), stopped_by
        first = [cell for cell, _ in going if cell.looks is None]
        for cell, seeds in going:
            take_look(cell.folder, cell.design, seeds)
        _choose_levels(first, options.results)
    return list(endings.values()), None


def _choose_levels(cells: Sequence[SequentialCell], results: Path) -> None:
    """Choose the levels of cells at their first look, which the table limits to its seeds."""
    rows = _rows(cells, results)
    for cell in cells:
        row, looks = rows[cell.key], cell.looks
        if row.documented is not None and looks is not None and looks.count == 1:
            design = design_for(cell.most_seeds, row.tested, row.documented.std, row.documented.n)
            if design != looks.design:
                write_looks(cell.folder, Looks(design, 1))


def decision_rows(cells: Sequence[SequentialCell], results: Path) -> Iterator[dict[str, object]]:
    """Yield each cell's verdict and its last look."""
    rows = _rows(cells, results)
    for cell in cells:
        looks = cell.looks
        yield {
            "suite": cell.key.suite,
            "algorithm": cell.key.algorithm,
            "task": cell.key.task,
            "dataset": cell.key.dataset or None,
            "verdict": rows[cell.key].verdict.word,
            "look": looks.count if looks else 0,
            "looks": len(cell.design),
            "seeds": looks.last.seeds if looks else 0,
        }


def decision_sentence(row: dict[str, object]) -> str:
    """Format a row: ``mujoco/sac/HalfCheetah-v4: REPRODUCED at look 2 of 5, 5 seeds``."""
    place = f"{row['suite']}/{row['algorithm']}/{row['dataset'] or row['task']}"
    return f"{place}: {row['verdict']} at look {row['look']} of {row['looks']}, {row['seeds']} seeds"


def _undecided(cells: Sequence[SequentialCell], results: Path) -> list[tuple[SequentialCell, int]]:
    """Cells without a verdict, each with the seeds of its next look."""
    rows = _rows([cell for cell in cells if cell.looks], results)
    undecided = []
    for cell in cells:
        looks = cell.looks
        following = cell.design[0] if looks is None else looks.following
        if following is not None and (looks is None or rows[cell.key].verdict.word not in DECIDED):
            undecided.append((cell, following.seeds))
    return undecided


def _rows(cells: Sequence[SequentialCell], results: Path) -> dict[CellKey, Cell]:
    """Rows of the table, in which Holm's correction covers the whole suite."""
    from rlbench.report.cells import every_cell

    suites = list(dict.fromkeys(cell.key.suite for cell in cells))
    return {row.key: row for row in every_cell(suites, results)} if suites else {}


def _refuse_undecidable(key: CellKey, spec: Spec) -> None:
    from rlbench.report.reference_scores import comparable, documented
    from rlbench.report.reference_table import OPTIMUM
    from rlbench.report.run_index import reference_spec

    usual = reference_spec(spec.suite, spec.algorithm, spec.task.id, getattr(spec.task, "dataset", ""), None)
    if usual is None or usual.id != spec.id:
        raise UsageError(
            f"--until-decided: {spec.name} has other settings than its reference; leave out --set, --config"
        )
    reference = next((cell.primary for cell in documented(key.suite) if cell.key == key), None)
    if reference is None or not comparable(key):
        raise UsageError(f"--until-decided: {spec.name} has no reference score to decide about; name its --seeds")
    if reference.source != OPTIMUM and (reference.n or 1) < 2:
        raise UsageError(f"--until-decided: {spec.name} has a single run as its reference; name its --seeds, as 0-2")
