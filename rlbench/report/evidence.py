"""The two sources of measured scores: own runs and rlbench's records; a verdict never mixes them.

A checkout has the records in ``results/``; an installed wheel has their scores in ``data/measured.json``, no curves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ConfigDict, TypeAdapter

import rlbench
from rlbench import disk, suites
from rlbench.errors import RefusedFile, suggest
from rlbench.records import imported
from rlbench.records.files import folders
from rlbench.report.cells import Cell, every_cell, select_last_look
from rlbench.report.parity import Parity, parity_rows
from rlbench.report.reference_files import read_references, selected_files
from rlbench.report.reference_table import DATA, SUITES, CellKey, ReferenceScore, published_scores, row_of
from rlbench.report.run_index import Runs, gather, with_imported
from rlbench.report.runs import Run, epoch_numbers, read_run
from rlbench.report.verdict import ALPHA, Verdict

RUNS: Final = Path("runs")  # the folder of own runs, below the current one
SCORES: Final = DATA / "measured.json"


class Evidence(NamedTuple):
    """The folders of measured runs."""

    own: Path  # own runs, or the folder of ``--results``
    rlbench: Path | None = None  # a checkout's records
    own_only: bool = True  # ``--results`` names the only folder

    @property
    def folders(self) -> tuple[Path, ...]:
        """Own runs first."""
        return (self.own,) if self.rlbench is None else (self.own, self.rlbench)

    def runs(self) -> dict[CellKey, Runs]:
        """The runs of each cell from one source: own ones if any measures it; own ones of other settings are added."""
        cells = dict(gather(self.own))
        for key, records in gather(self.rlbench).items() if self.rlbench is not None else ():
            own = cells.get(key, Runs())
            if not (own.scored or own.short or own.other_protocol):
                theirs = {run.id for run in records.variants}
                mine = [run for run in own.variants if run.status != "interrupted" or run.id not in theirs]
                others = [run for run in records.variants if run.id not in {own_run.id for own_run in mine}]
                cells[key] = replace(records, variants=[*mine, *others])
        return cells

    def names(self, pairs: Iterable[tuple[Runs, Runs]]) -> list[str]:
        """The source of both sides of each pair, as ``own runs against records of rlbench``; empty if all agree."""
        sides = [tuple(self._name(runs) for runs in pair) for pair in pairs]
        several = len({name for pair in sides for name in pair}) > 1
        return [" against ".join(dict.fromkeys(pair)) if several else "" for pair in sides]

    def _name(self, runs: Runs) -> str:
        if any(run.origin for run in runs.all):
            return "imported curves"
        return "records of rlbench" if all(self.rlbench in run.folder.parents for run in runs.all) else "own runs"

    def with_imported(self) -> dict[CellKey, Runs]:
        """The runs of each cell, or else its imported curves."""
        return with_imported(self.runs(), self.own)

    def parity(self, suites: Sequence[str]) -> list[Parity]:
        """The rows of parity of each suite, own ones where there are any; a wheel has none."""
        rows: dict[CellKey, Parity] = {}
        for folder in reversed(self.folders):
            cells = with_imported(gather(folder), folder).items()
            runs_by_cell = {key: select_last_look(runs) for key, runs in cells}
            rows |= {row.key: replace(row, source=str(folder)) for row in parity_rows(runs_by_cell, suites)}
        return sorted(rows.values(), key=lambda row: row.key)

    def every_run(self) -> dict[CellKey, Runs]:
        """The runs of both sources together, for speeds; no verdict reads them."""
        cells: dict[CellKey, Runs] = defaultdict(Runs)
        for folder in self.folders:
            for key, runs in gather(folder).items():
                cells[key].complete += runs.complete
                cells[key].short += runs.short
        return cells

    def cells(
        self, suites: Sequence[str], *, alpha: float = ALPHA, margin_share: float | None = None
    ) -> tuple[Cell, ...]:
        """The cells of each suite, with the verdict of own runs where there are any, else of rlbench's.

        Holm's correction is over the cells of one source.
        """
        own = every_cell(suites, self.own, alpha=alpha, margin_share=margin_share)
        if self.own_only:
            return own
        rlbench_cells = {cell.key: cell for cell in self.rlbench_cells(suites, alpha=alpha, margin_share=margin_share)}
        matches = self._matches()
        ours = {cell.key: cell for cell in own}
        if self.rlbench is None:
            is_default = alpha == ALPHA and margin_share is None
            references = {key: cell.documented for key, cell in ours.items()}
            rlbench_cells = {
                key: cell
                if is_default and cell.documented == references.get(key)
                else _not_comparable(cell, references.get(key))
                for key, cell in rlbench_cells.items()
            }
        keys = sorted(dict.fromkeys((*ours, *rlbench_cells)), key=lambda key: list(suites).index(key.suite))
        return tuple(_merge(ours.get(key), rlbench_cells.get(key), matches.get(key, "")) for key in keys)

    def rlbench_cells(
        self, suites: Sequence[str], *, alpha: float = ALPHA, margin_share: float | None = None
    ) -> tuple[Cell, ...]:
        """The cells that rlbench measured; none if ``--results`` names a folder."""
        if self.own_only:
            return ()
        if self.rlbench is not None:
            return every_cell(suites, self.rlbench, alpha=alpha, margin_share=margin_share)
        return tuple(cell for cell in packaged() if cell.key.suite in suites)

    def _matches(self) -> Mapping[CellKey, str]:
        """Compare own runs with rlbench's records of their identity and seed, in a note of each cell."""
        if self.rlbench is None:
            return {}
        texts_by_cell: dict[CellKey, list[str]] = defaultdict(list)
        for key, runs in gather(self.own).items():
            seeds_by_text: dict[str, list[int]] = defaultdict(list)
            for run in runs.all:
                if text := match(run, self.own, self.rlbench):
                    seeds_by_text[text].append(run.seed)
            texts_by_cell[key] = [
                f"seed {seeds[0]} {text}"
                if len(seeds) == 1
                else f"seeds {', '.join(map(str, seeds))} {text.replace('parts from', 'part from')}"
                for text, seeds in seeds_by_text.items()
            ]
        return {key: "; ".join(texts) for key, texts in texts_by_cell.items()}


def evidence_of(results: Path | None) -> Evidence:
    """The folder of ``--results`` alone, or own runs and rlbench's records."""
    return Evidence(RUNS, checkout_records(), own_only=False) if results is None else Evidence(results)


def known_suites(results: Path | None) -> list[str]:
    """Every suite: rlbench's own, those of installed plug-ins, and those of records whose plug-in is missing."""
    own = evidence_of(results).own
    names = {read_run(folder).suite for folder in folders(own)}
    names |= {imported.read_curve(folder).suite for folder in imported.curve_folders(own)}
    return [*suites.names(), *sorted(names - set(suites.names()))]


def unmatched_references(suite: str, results: Path | None) -> Iterator[str]:
    """A line per file of references: its first row of an algorithm or task that neither the suite nor a record has."""
    if not (paths := selected_files()):
        return
    cells, roots = published_scores(suite), [folder / suite for folder in evidence_of(results).folders]
    algorithms = dict.fromkeys([*suites.algorithms(suite), *(key.algorithm for key in cells)])
    tasks = dict.fromkeys([*suites.tasks(suite), *(key.dataset or key.task for key in cells)])
    records = {path.name for root in roots for pattern in ("*", "*/*") for path in root.glob(pattern)}
    for path in paths:
        for reference, row, _ in (score for score in read_references(path) if score.reference.suite == suite):
            name, (task, dataset) = row.dataset or row.task, row_of(suite, row.task, row.dataset)
            fault = ""
            if reference.algorithm not in algorithms and reference.algorithm not in records:
                fault = f"algorithm {reference.algorithm!r}{suggest(reference.algorithm, algorithms)}"
            elif not any(label in tasks or label in records for label in (name, dataset or task)):
                fault = f"task {name!r}{suggest(name, tasks)}"
            if fault:
                yield f"{path}: {reference.name}, {name}: is compared with no run, since {suite} has no {fault}"
                break


def checkout_records() -> Path | None:
    """``results/`` of the checkout that this package is part of; relative where that is below the current folder."""
    root = Path(rlbench.__file__).resolve().parents[1]
    if not (root / "pyproject.toml").is_file() or not (root / "results").is_dir():
        return None
    here = disk.current_folder()
    return (root / "results").relative_to(here) if root.is_relative_to(here) else root / "results"


def match(run: Run, own: Path, rlbench_records: Path) -> str:
    """Compare a run, epoch by epoch, with the record of its identity and seed; empty where there is none."""
    folder = rlbench_records / run.folder.relative_to(own)
    if not (folder / "epochs.jsonl").is_file():
        return ""
    record = read_run(folder)
    if run.digest == record.digest:
        return "equal to the record in results/"
    ours, theirs = epoch_numbers(run.folder), epoch_numbers(folder)
    epoch = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if epoch is None:
        return f"equal to the record in results/ in all of {min(len(ours), len(theirs))} epochs so far"
    return f"parts from the record in results/ at epoch {epoch}"


@cache
def packaged() -> tuple[Cell, ...]:
    """The cells that rlbench measured, as ``package`` wrote them.

    Raises:
        RefusedFile: the file is missing, damaged, or holds a number that is not finite.
    """
    try:
        return _adapter().validate_json(SCORES.read_bytes())
    except (OSError, ValueError):
        raise RefusedFile(f"{SCORES}: missing or damaged; install rlbench again") from None


def package(results: Path) -> bytes:
    """The cells of all suites that have a run, as JSON for ``data/measured.json`` of a wheel."""
    unmeasured = {cell.key: cell for cell in every_cell(SUITES, results / "none")}
    cells = tuple(cell for cell in every_cell(SUITES, results) if cell != unmeasured.get(cell.key))
    return _adapter().dump_json(cells, indent=0, exclude_defaults=True) + b"\n"


@cache
def _adapter() -> TypeAdapter[tuple[Cell, ...]]:
    return TypeAdapter(tuple[Cell, ...], config=ConfigDict(allow_inf_nan=False))


def _not_comparable(cell: Cell, reference: ReferenceScore | None) -> Cell:
    """A packaged cell without its verdict, which is by another reference or another option."""
    return replace(
        cell,
        documented=reference,
        verdict=Verdict("NOT COMPARABLE"),
        note=f"measured by {cell.measured.estimator}; a checkout of rlbench tests it by this reference or option"
        if cell.measured
        else cell.note,
        margin=None,
        test=None,
        scores=(),
        shortfall_percent=None,
        at=None,
    )


def _merge(own: Cell | None, rlbench_cell: Cell | None, comparison: str) -> Cell:
    """Merge a cell of both sources; own runs decide the verdict if there are any."""
    rlbench_score = rlbench_cell.measured if rlbench_cell else None
    if own and own.verdict.word != "NOT RUN" and not (own.measured and own.measured.imported and rlbench_score):
        note = "; ".join(filter(None, (own.note, comparison)))
        return replace(own, note=note, rlbench=rlbench_score, origin="own")
    if own is None or rlbench_cell is None:  # a cell of one source
        cell = own or rlbench_cell
        if cell is None:
            raise ValueError("a cell has a source")
        return replace(cell, rlbench=cell.measured, origin="rlbench")
    own_notes = [part for part in own.note.split("; ") if part and part not in rlbench_cell.note.split("; ")]
    note = "; ".join(filter(None, (rlbench_cell.note, *(f"yours: {part}" for part in own_notes), comparison)))
    return replace(rlbench_cell, note=note, rlbench=rlbench_score, origin="rlbench")
