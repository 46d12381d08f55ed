"""Imported curves as runs of a report: a cell has them only without a run of rlbench.

A training return is no evaluation: it is compared only with a reference of its own kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from rlbench.config.names import count_text
from rlbench.records import imported
from rlbench.records.imported import ImportedCurve
from rlbench.report.estimate import within
from rlbench.report.reference_scores import primary_references
from rlbench.report.reference_table import CellKey, protocol_of
from rlbench.report.run_index import Runs, budget_of, key_of
from rlbench.report.runs import Evaluation, Run, origin_texts

FULL = 0.99  # share of the budget that a complete curve reaches: the last training episode ends before it
LATE = 0.9  # share of the budget after which a complete curve has a point: evaluations may be a tenth apart


def with_imported(runs: Mapping[CellKey, Runs], results: Path) -> dict[CellKey, Runs]:
    """Runs by cell; a cell without a run of rlbench has the imported curves in their place.

    Raises:
        RefusedFile: a curve is damaged or newer than this version; the message names the file.
    """
    cells = dict(runs)
    curves: dict[CellKey, list[Run]] = {}
    for folder in imported.curve_folders(results):
        run = _run(folder, imported.read_curve(folder))
        curves.setdefault(key_of(run), []).append(run)
    for key, group in curves.items():
        group.sort(key=lambda run: run.seed)
        own = cells.get(key, Runs())
        cells[key] = _as_runs(key, group) if not own.all else own
        cells[key].curves = group
    return cells


def imported_remarks(runs: Runs, parity: str = "") -> Iterator[str]:
    """The origin of the curves of a cell, and the parts of the protocol that nobody states.

    ``parity`` is the cell's comparison with the curves, where it has runs of rlbench as well.
    """
    if not runs.curves:
        return
    origins = [run.origin for run in runs.curves]
    if not runs.of_imported:
        yield parity or f"{len(origins)} imported curves are not counted"
        return
    formats = sorted({str(origin["format"]) for origin in origins})
    files = {origin["sha256"] for origin in origins}
    unknown = origin_texts(origins, "unknown")
    yield f"imported ({', '.join(formats)}, {count_text(len(files), 'file')})"
    if unknown:
        yield f"not stated: {', '.join(unknown)}"
    if runs.other_protocol:
        kinds = sorted({str(run.origin["kind"]) for run in runs.other_protocol})
        yield f"{' and '.join(kinds)} returns, the reference's are of the other kind"


def _as_runs(key: CellKey, curves: list[Run]) -> Runs:
    """Imported curves of one cell, sorted as runs are."""
    reference = primary_references(key.suite).get(key)
    cells = Runs(of_imported=True, budget=budget_of(curves[0]))
    limit, kind = reference.limit if reference else None, "evaluation"  # of the returns that the reference gives
    if reference and (reference.kind == "training" or "training return" in protocol_of(key, reference).text):
        kind = "training"
    first = {run.digest: run for run in reversed(curves)}
    late = LATE * min(cells.budget, limit or cells.budget)
    for curve in curves:
        run = replace(curve, evaluations=tuple(within(curve.evaluations, cells.budget)))  # later ones never count
        points = within(run.evaluations, limit)
        if run.digest and first[run.digest] is not curve:
            cells.copies.append(run)
        elif run.origin["kind"] != kind:
            cells.other_protocol.append(run)
        elif run.env_steps >= FULL * cells.budget and points and points[-1].env_steps >= late:
            cells.complete.append(run)
        else:  # to its last point that counts, whatever later steps it states
            end = points[-1].env_steps if points else 0
            cells.short.append(replace(run, budget=end, env_steps=end))
    cells.unfinished = [*cells.short, *cells.other_protocol] if cells.complete else cells.short
    return cells


def _run(folder: Path, curve: ImportedCurve) -> Run:
    origin = {**asdict(curve.origin), "kind": curve.kind}
    data = {"data": {"sha256": curve.origin.data}} if curve.origin.data else {}
    return Run(
        folder=folder,
        suite=curve.suite,
        algorithm=curve.algorithm,
        task=curve.task,
        dataset=curve.dataset,
        seed=curve.seed,
        id="imported",
        smoke=False,
        budget=curve.steps[-1],
        settings={},
        environment={"env": {"env": curve.origin.env_id}, "origin": origin} | data,
        evaluations=tuple(Evaluation(s, 0.0, r) for s, r in zip(curve.steps, curve.returns, strict=True)),
        speeds=(),
        env_steps=curve.steps[-1],
        seconds=0.0,
        status="done",
        reason="",
        digest=curve.digest,
    )
