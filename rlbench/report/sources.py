"""The two sources of measured scores: own runs, and those that rlbench brings; one verdict never mixes them.

A checkout brings records in ``results/``, an installed wheel their scores in ``data/measured.json``, without curves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import TypeAdapter

import rlbench
from rlbench import suites
from rlbench.records.files import folders
from rlbench.report.cells import Cell, every_cell
from rlbench.report.imported_runs import with_imported
from rlbench.report.parity import Parity, parity_rows
from rlbench.report.reference_table import DATA, SUITES, CellKey
from rlbench.report.run_index import Runs, gather
from rlbench.report.runs import Run, epoch_numbers, read_run
from rlbench.report.verdict import ALPHA

RUNS: Final = Path("runs")
"""The folder of own runs, below the current one."""

SCORES: Final = DATA / "measured.json"


class Sources(NamedTuple):
    """The folders that count."""

    own: Path  # own runs, or the one folder that was named
    rlbench: Path | None = None  # a checkout's records
    named: bool = True  # only ``own`` counts

    @property
    def folders(self) -> tuple[Path, ...]:
        """Own runs first."""
        return (self.own,) if self.rlbench is None else (self.own, self.rlbench)

    def runs(self) -> dict[CellKey, Runs]:
        """The runs of each cell, of one source: own ones where there are any."""
        own = gather(self.own)
        return own if self.rlbench is None else gather(self.rlbench) | own

    def with_imported(self) -> dict[CellKey, Runs]:
        """The same, and of a cell without a run the imported curves."""
        return with_imported(self.runs(), self.own)

    def parity(self, suites: Sequence[str]) -> list[Parity]:
        """The rows of parity of each suite, own ones where there are any; a wheel brings none."""
        rows: dict[CellKey, Parity] = {}
        for folder in reversed(self.folders):
            rows |= {row.key: row for row in parity_rows(with_imported(gather(folder), folder), suites)}
        return sorted(rows.values(), key=lambda row: row.key)

    def every_run(self) -> dict[CellKey, Runs]:
        """The runs of both sources together, for speeds; no verdict reads them."""
        found: dict[CellKey, Runs] = defaultdict(Runs)
        for folder in self.folders:
            for key, runs in gather(folder).items():
                found[key].complete += runs.complete
                found[key].short += runs.short
        return found

    def cells(self, suites: Sequence[str], *, alpha: float = ALPHA, share: float | None = None) -> tuple[Cell, ...]:
        """The cells of each suite, with the verdict of own runs where there are any, else of rlbench's.

        Holm's correction is over the cells of one source.
        """
        own = every_cell(suites, self.own, alpha=alpha, share=share)
        if self.named:
            return own
        known = {cell.key: cell for cell in self.brought(suites, alpha=alpha, share=share)}
        matches = self._matches()
        ours = {cell.key: cell for cell in own}
        keys = sorted(dict.fromkeys((*ours, *known)), key=lambda key: list(suites).index(key.suite))
        return tuple(_joined(ours.get(key), known.get(key), matches.get(key, "")) for key in keys)

    def brought(self, suites: Sequence[str], *, alpha: float = ALPHA, share: float | None = None) -> tuple[Cell, ...]:
        """The cells that rlbench measured; none where one folder was named."""
        if self.named:
            return ()
        if self.rlbench is not None:
            return every_cell(suites, self.rlbench, alpha=alpha, share=share)
        return tuple(cell for cell in packaged() if cell.key.suite in suites)

    def _matches(self) -> Mapping[CellKey, str]:
        """Compare own runs with rlbench's records of their identity and seed, in a note of each cell."""
        if self.rlbench is None:
            return {}
        found: dict[CellKey, list[str]] = defaultdict(list)
        for key, runs in gather(self.own).items():
            told: dict[str, list[int]] = defaultdict(list)
            for run in runs.all:
                if text := match(run, self.own, self.rlbench):
                    told[text].append(run.seed)
            found[key] = [
                f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))} {text}"
                for text, seeds in told.items()
            ]
        return {key: "; ".join(texts) for key, texts in found.items()}


def sources(named: Path | None) -> Sources:
    """The folder that ``--results`` names, alone, or own runs and what rlbench brings."""
    return Sources(RUNS, brought_records(), named=False) if named is None else Sources(named)


def known_suites(results: Path | None) -> list[str]:
    """Every suite: rlbench's own, those of installed plug-ins, and those of records whose plug-in is missing."""
    own = sources(results).own
    places = sorted(place.name for place in own.iterdir() if place.is_dir()) if own.is_dir() else []
    others = [name for name in places if name not in suites.names() and next(folders(own / name), None)]
    return [*suites.names(), *others]


def brought_records() -> Path | None:
    """``results/`` of the checkout that this package is part of; relative where that is below the current folder."""
    root = Path(rlbench.__file__).resolve().parents[1]
    if not (root / "pyproject.toml").is_file() or not (root / "results").is_dir():
        return None
    here = Path.cwd()
    return (root / "results").relative_to(here) if root.is_relative_to(here) else root / "results"


def match(run: Run, own: Path, brought: Path) -> str:
    """Compare a run, epoch by epoch, with the record of its identity and seed; empty where there is none."""
    folder = brought / run.folder.relative_to(own)
    if not (folder / "epochs.jsonl").is_file():
        return ""
    record = read_run(folder)
    if run.curve == record.curve:
        return "equal to the record in results/"
    ours, theirs = epoch_numbers(run.folder), epoch_numbers(folder)
    parted = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if parted is None:
        return f"equal to the record in results/ in all of {min(len(ours), len(theirs))} epochs so far"
    return f"parts from the record in results/ at epoch {parted}"


@cache
def packaged() -> tuple[Cell, ...]:
    """The cells that rlbench measured, as ``package`` wrote them."""
    return _adapter().validate_json(SCORES.read_bytes())


def package(results: Path) -> bytes:
    """The cells of all suites that have a run, as a wheel brings them."""
    unmeasured = {cell.key: cell for cell in every_cell(SUITES, results / "none")}
    cells = tuple(cell for cell in every_cell(SUITES, results) if cell != unmeasured.get(cell.key))
    return _adapter().dump_json(cells, indent=0, exclude_defaults=True) + b"\n"


@cache
def _adapter() -> TypeAdapter[tuple[Cell, ...]]:
    return TypeAdapter(tuple[Cell, ...])


def _joined(own: Cell | None, brought: Cell | None, matched: str) -> Cell:
    """A cell of both sources, judged by own runs where there are any."""
    theirs = own is not None and own.measured is not None and own.measured.imported
    if own is not None and own.verdict.word != "NOT RUN" and not (theirs and brought and brought.measured):
        note = "; ".join(filter(None, (own.note, matched)))
        measured = brought.measured if brought else None
        return replace(own, note=note, rlbench=measured, origin="own")
    if own is None or brought is None:  # a cell of one source, without a run where it is not packaged
        cell = own or brought
        if cell is None:
            raise ValueError("a cell has a source")
        return replace(cell, rlbench=cell.measured, origin="rlbench")
    beyond = [part for part in own.note.split("; ") if part and part not in brought.note.split("; ")]
    note = "; ".join(filter(None, (brought.note, *(f"yours: {part}" for part in beyond), matched)))
    return replace(brought, note=note, rlbench=brought.measured, origin="rlbench")
