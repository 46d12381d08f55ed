"""Measured curves and scores for other programs: one tidy table, and matrices of scores as rliable takes them.

``rlbench import`` reads both back.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rlbench.records import imported, store
from rlbench.report.aggregate import scores_of
from rlbench.report.reference_table import CellKey, task_name
from rlbench.report.run_index import Runs
from rlbench.report.runs import Run

HEADER = ("suite", "algo", "task", "dataset", "seed", "step", "return", "length", "kind", "origin")


def curves_csv(runs_by_cell: Mapping[CellKey, Runs]) -> tuple[bytes, int]:
    """One row an evaluation of the runs with documented settings, and the number of curves.

    Raises:
        RefusedFile: a record is damaged.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEADER)
    runs = [run for key in sorted(runs_by_cell) for run in _counted(runs_by_cell[key])]
    for run in runs:
        kind, origin = run.origin.get("kind", "evaluation"), "imported" if run.origin else "rlbench"
        names = (run.suite, run.algorithm, run.task, run.dataset, run.seed)
        writer.writerows((*names, *point, kind, origin) for point in _points(run))
    return file.getvalue().encode(), len(runs)


def to_npz(runs_by_cell: Mapping[CellKey, Runs]) -> tuple[bytes, int]:
    """Matrices ``SUITE/ALGO`` of final scores ``[seeds, tasks]`` in raw points, and their number.

    ``SUITE/tasks`` names the columns, ``SUITE/ALGO/seeds`` the rows; a seed that a task has not is NaN. A score is by
    the reference's estimator, so a failed seed has the random policy's score.
    """
    arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {}
    scores = {key: _scores(key, runs) for key, runs in sorted(runs_by_cell.items()) if runs.scored}
    for suite in dict.fromkeys(key.suite for key in scores):
        tasks = sorted({task_name(key) for key in scores if key.suite == suite})
        arrays[f"{suite}/tasks"] = np.array(tasks)
        for algorithm in dict.fromkeys(key.algorithm for key in scores if key.suite == suite):
            cells = {task_name(key): seeds for key, seeds in scores.items() if key[:2] == (suite, algorithm)}
            seeds = sorted({seed for cell in cells.values() for seed in cell})
            rows = [[cells.get(task, {}).get(seed, np.nan) for task in tasks] for seed in seeds]
            arrays[f"{suite}/{algorithm}"] = np.array(rows)
            arrays[f"{suite}/{algorithm}/seeds"] = np.array(seeds)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue(), sum(not name.endswith(("/tasks", "/seeds")) for name in arrays)


def _counted(runs: Runs) -> Sequence[Run]:
    return (*runs.scored, *runs.short, *(runs.elsewhere if runs.of_others else ()))


def _scores(key: CellKey, runs: Runs) -> dict[int, float]:
    complete = [run for run in runs.complete if run.evaluations]
    seeds = [run.seed for run in (*complete, *runs.failed)]
    return dict(zip(seeds, scores_of(key, Runs(complete=complete, failed=runs.failed)), strict=True))


def _points(run: Run) -> Iterator[tuple[int, float, float | str]]:
    """Step, mean return and mean length of each evaluation; the length is empty if unknown."""
    if run.origin:
        curve = imported.read_curve(run.folder)
        yield from zip(curve.steps, curve.returns, curve.lengths or [""] * len(curve.steps), strict=True)
        return
    for epoch in store.read_record(run.folder).epochs:
        if epoch.evaluated is not None:
            lengths = epoch.evaluated.lengths
            yield epoch.steps, epoch.evaluated.mean, sum(lengths) / len(lengths)
