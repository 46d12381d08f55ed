"""``run --until-decided``: seeds in the looks of a group-sequential design, until every cell has a verdict."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlbench.cli.output import print_note
from rlbench.cli.resolve import settings_from_environment
from rlbench.cli.sweep import SweepOptions, sweep
from rlbench.errors import UsageError
from rlbench.records.looks import (
    DESIGN,
    DESIGNS,
    Look,
    Looks,
    design_for,
    read_looks,
    record_looks,
    refuse_other_design,
)  # fmt: skip
from rlbench.records.store import folder_of, read_record
from rlbench.report.cells import Cell, every_cell
from rlbench.report.reference_scores import comparable, is_longer, margin, margin_reaches_random, primary_references
from rlbench.report.reference_table import OPTIMUM, CellKey, cell_of, documented_spec
from rlbench.report.remarks import conflicting_remark, copies_remark
from rlbench.report.run_index import Runs, gather
from rlbench.report.verdict import DECIDED, MIN_SEEDS, power

if TYPE_CHECKING:
    from pathlib import Path

    from rlbench.config.run import Spec
    from rlbench.sweep.events import Ending

SEED_BEYOND_DESIGN = (
    "seed {} has no run of the whole budget, so no verdict can be better than INCONCLUSIVE, "
    "and only {} seeds are trained; move its record away"
)
SEED_IN_OTHER_FOLDER = (
    "seed {} has ended in {} and would be trained again in {}, but a seed with two records has no verdict; "
    "put the ended record there, or move it away"
)
LITTLE_POWER = 0.5  # power of the last look, without a difference, below which a command warns


@dataclass(frozen=True, kw_only=True, slots=True)
class SequentialCell:
    """A cell with the Specs of all seeds of the design."""

    key: CellKey
    specs: tuple[Spec, ...]
    folder: Path  # of its seeds
    design: tuple[Look, ...]

    @property
    def looks(self) -> Looks:
        """The looks taken."""
        return read_looks(self.folder) or Looks(self.design, 0)


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


def seeds_of_design(design: tuple[Look, ...], seeds: str | None, **options: object) -> str:
    """Return the seeds of all looks; refuse options that choose seeds or steps, which the design fixes.

    Without a design they are those of ``--seeds``.
    """
    if not design:
        return "0" if seeds is None else seeds
    for name, value in {"seeds": seeds, **options}.items():
        if value is not None and value is not False:
            variable = f"RLBENCH_{name.upper()}"
            if os.environ.get(variable) == value:
                raise UsageError(f"{variable}={value}: --until-decided chooses the {name}; unset it, or leave that out")
            words = f"--{name}" if value is True else f"--{name} {value}"
            raise UsageError(f"{words}: --until-decided chooses seeds and steps itself; leave one of the two out")
    return f"0-{design[-1].seeds - 1}"


def cells_of(specs: Sequence[Spec], results: Path, design: tuple[Look, ...]) -> tuple[SequentialCell, ...]:
    """Group the Specs of a design by cell; warn of a reference that the last look has little power against.

    Raises:
        UsageError: a cell has other settings than the reference, its reference is a single run or can never be
            reproduced, its looks belong to another design, it was tested before the first look, a seed of it has two
            records or has ended in another folder, or one beyond the design has no run of the whole budget.
        RefusedFile: the record of its looks is damaged.
    """
    groups: dict[Path, list[Spec]] = {}
    for spec in specs:
        groups.setdefault(folder_of(spec, results).parent, []).append(spec)
    cells, runs = [], gather(results)
    for folder, group in groups.items():
        spec = group[0]
        key = cell_of(spec)
        _refuse_undecidable(key, spec, design[-1])
        cell = SequentialCell(key=key, specs=tuple(group), folder=folder, design=design)
        refuse_other_design(spec.name, cell.looks, Looks(design, 0))
        group_runs = runs.get(key, Runs())
        count = len(group_runs.scored)
        if read_looks(folder) is None and count >= MIN_SEEDS:
            raise UsageError(
                f"--until-decided: {spec.name} has {count} ended seeds, whose fixed test has spent the 5 % that looks "
                "share; begin in another folder with --results, or leave --until-decided out"
            )
        if (problem := _problem(cell, group_runs)) and _undecided([cell], results, ()):
            raise UsageError(f"--until-decided: {spec.name}: {problem}")
        cells.append(cell)
    return tuple(cells)


def _problem(cell: SequentialCell, runs: Runs) -> str:
    """The record that would keep the cell INCONCLUSIVE at every look; empty without one."""
    end = cell.design[-1].seeds
    if conflicting := runs.conflicting(runs.complete):
        return conflicting_remark(conflicting)
    copies = [run for run in runs.same_numbers if run.id == cell.specs[0].id and run.seed < end]
    if copies:
        return f"{copies_remark(len(copies))}, so no look counts it; move {copies[0].folder} away"
    for run in runs.unfinished:
        if run.seed >= end:
            return SEED_BEYOND_DESIGN.format(run.seed, end)
    for run in runs.scored:
        own = cell.folder / f"seed={run.seed}"
        is_elsewhere = run.id == cell.specs[0].id and run.seed < end and run.folder != own
        if is_elsewhere and not ((own / "outcome.json").exists() and read_record(own).has_ended()):
            return SEED_IN_OTHER_FOLDER.format(run.seed, run.folder, own)
    return ""


def sweep_until_decided(cells: Sequence[SequentialCell], options: SweepOptions) -> tuple[list[Ending], int | None]:
    """Run the seeds of one look after the other; return the endings and the number of the signal that stopped them.

    The design is recorded before the first seed, and a look when its seeds have ended, so a repeated command goes on
    at the look that it had reached.
    """
    for cell in cells:
        record_looks(cell.folder, cell.looks)
    endings: dict[Path, Ending] = {}
    while open_cells := _undecided(cells, options.results, endings):
        specs = [spec for cell, seeds in open_cells for spec in cell.specs[:seeds]]
        specs = [spec for spec in specs if folder_of(spec, options.results) not in endings]
        new, stopped_by = sweep(specs, options) if specs else ([], None)
        endings |= {ending.job.folder: ending for ending in new}
        if stopped_by is not None or any(ending.status not in {"done", "failed"} for ending in new):
            return list(endings.values()), stopped_by
        _take_looks(open_cells, options.results)
    return list(endings.values()), None


def _take_looks(open_cells: Sequence[tuple[SequentialCell, int]], results: Path) -> None:
    """Record the look of each cell at its seeds; those of the first one choose the levels."""
    rows = _rows([cell for cell, _ in open_cells if not cell.looks.count], results)
    for cell, seeds in open_cells:
        design = cell.looks.design
        if not cell.looks.count and (reference := rows[cell.key].documented) is not None:
            design = design_for(design[-1].seeds, rows[cell.key].scores, reference.std, reference.n)
        record_looks(cell.folder, Looks(design, [look.seeds for look in design].index(seeds) + 1))


def decision_rows(cells: Sequence[SequentialCell], results: Path) -> Iterator[dict[str, object]]:
    """Yield each cell's verdict and its last look."""
    rows = _rows(cells, results)
    for cell in cells:
        looks = cell.looks
        yield {
            **cell.key.document(),
            "verdict": rows[cell.key].verdict.word,
            "look": looks.count,
            "looks": len(cell.design),
            "seeds": looks.current.seeds if looks.count else 0,
        }


def _undecided(
    cells: Sequence[SequentialCell], results: Path, visited: Collection[Path]
) -> list[tuple[SequentialCell, int]]:
    """Cells without a verdict, each with the seeds of its next look, or of the last one where some are lost."""
    rows, open_cells = _rows([cell for cell in cells if cell.looks.count], results), []
    for cell in cells:
        looks, row = cell.looks, rows.get(cell.key)
        refuse_other_design(cell.specs[0].name, looks, Looks(cell.design, 0))  # another process may have begun too
        folders = {folder_of(spec, results) for spec in cell.specs[: looks.current.seeds]}
        if row is not None and row.looks is None and not folders <= set(visited):
            open_cells.append((cell, looks.current.seeds))
        elif looks.following is not None and (row is None or row.verdict.word not in DECIDED):
            open_cells.append((cell, looks.following.seeds))
    return open_cells


def _rows(cells: Sequence[SequentialCell], results: Path) -> dict[CellKey, Cell]:
    suites = list(dict.fromkeys(cell.key.suite for cell in cells))
    return {row.key: row for row in every_cell(suites, results)} if suites else {}


def _refuse_undecidable(key: CellKey, spec: Spec, last: Look) -> None:
    usual = documented_spec(spec.suite, spec.algorithm, spec.task.id, getattr(spec.task, "dataset", ""))
    if usual is None or usual.id != spec.id:
        sources = [setting.source for setting in settings_from_environment(os.environ)]
        remedy = f"leave out {', '.join([*sources, '--set', '--config'])}"
        raise UsageError(f"--until-decided: {spec.name} has other settings than its reference; {remedy}")
    reference = primary_references(key.suite).get(key)
    if reference is None or not comparable(key, reference):
        raise UsageError(f"--until-decided: {spec.name} has no reference score to decide about; name its --seeds")
    if is_longer(reference, spec.budget.steps):
        raise UsageError(
            f"--until-decided: {spec.name} takes {spec.budget.steps:,} steps, its reference {reference.limit:,}, so "
            "they are not compared; choose another with RLBENCH_REFERENCE, or name its --seeds"
        )
    n, std, tolerance = reference.n or 1, reference.std, margin(key, reference)
    if reference.source != OPTIMUM and n < 2:
        raise UsageError(f"--until-decided: {spec.name} has a single run as its reference; name its --seeds, as 0-2")
    if margin_reaches_random(key, reference, tolerance):
        raise UsageError(
            f"--until-decided: {spec.name} can never be REPRODUCED, since its margin reaches the random policy; "
            "name its --seeds, as 0-2"
        )
    if n > 1 and std and (chance := power(std, n, tolerance, last)) < LITTLE_POWER:
        print_note(
            f"{spec.name}: even without a difference {last.seeds} seeds reproduce it with a probability of "
            f"{chance:.0%}, since the reference has {n} seeds with a std of {std:,.6g}"
        )
