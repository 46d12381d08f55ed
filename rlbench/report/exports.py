"""Measured curves and scores for other programs: TensorBoard's event files, one tidy table, and rliable's matrices.

An event file is a function of the record alone, so tracking a run means updating its file. Its wall time is in seconds
since the run began, over all attempts. ``rlbench import`` reads all three.
"""

from __future__ import annotations

import csv
import io
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np

from rlbench import disk
from rlbench.records import imported, store
from rlbench.records.types import Epoch
from rlbench.report.aggregate import scores_of
from rlbench.report.reference_table import CellKey, task_name
from rlbench.report.run_index import Runs
from rlbench.report.runs import Run

FILE = "events.out.tfevents.0.rlbench"  # TensorBoard knows its files by the second and third word


def points(epoch: Epoch) -> dict[str, float]:
    """The finite numbers of an epoch by the names of their curves."""
    values: dict[str, float] = {"progress/env_steps": epoch.env_steps, "progress/updates": epoch.updates}
    values["progress/seconds"] = epoch.seconds
    if epoch.evaluated is not None:
        values |= _episode_statistics("evaluation", epoch.evaluated.returns, epoch.evaluated.lengths)
    if epoch.collected is not None:
        values["training/steps_per_second"] = epoch.collected.steps_per_second
        values["training/episodes"] = epoch.collected.episodes
        values |= _episode_statistics("training", epoch.collected.returns, epoch.collected.lengths)
    if epoch.updated is not None:
        values["learning/count"] = epoch.updated.count
        values |= {f"learning/{name}": mean for name, mean in epoch.updated.means.items()}
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def _episode_statistics(part: str, returns: Sequence[float], lengths: Sequence[int]) -> dict[str, float]:
    if not returns:
        return {}
    values = {"return": fmean(returns), "return_std": pstdev(returns), "return_min": min(returns)}
    values |= {"return_max": max(returns), "length": fmean(lengths)}
    return {f"{part}/{name}": value for name, value in values.items()}


def events(epochs: Sequence[Epoch]) -> bytes:
    """The whole event file; later epochs only append to it."""
    from tensorboard.compat.proto.event_pb2 import Event

    events_list = [Event(file_version="brain.Event:2")]
    for epoch in epochs:
        event = Event(wall_time=epoch.seconds, step=epoch.steps)
        for name, value in points(epoch).items():
            event.summary.value.add(tag=name, simple_value=value)
        events_list.append(event)
    return b"".join(_frame_record(event.SerializeToString(deterministic=True)) for event in events_list)


def _frame_record(data: bytes) -> bytes:
    from rlbench.datasets.crc32c import masked_crc

    size = struct.pack("<Q", len(data))
    return size + struct.pack("<I", masked_crc(size)) + data + struct.pack("<I", masked_crc(data))


def update_file(path: Path, content: bytes, *, append: bool = False, option: str = "--output") -> bool:
    """Bring a file to ``content`` by replacing it, or by appending what is new; return whether it changed.

    Raises:
        UsageError: it cannot be written.
        RefusedFile: it is a link, a special file, or has a second name.
        ResourceExhausted: the disk is full.
    """
    with disk.writing(path, elsewhere=f" with {option}", then="run the same command again"):
        path.parent.mkdir(parents=True, exist_ok=True)
        current = None
        if os.path.lexists(path):  # as a link whose target is missing: /dev/stdout, if stdout is closed
            with disk.open_regular(path) as file:
                current = file.read(len(content) + 1)
        if current == content:
            return False
        if append and current is not None and content.startswith(current):
            with disk.open_append(path) as file:
                file.write(content[len(current) :])
        else:
            disk.replace(path, content, disk.temporary_of(path.with_name(f".{path.name}")))
    return True


HEADER = ("suite", "algo", "task", "dataset", "seed", "step", "return", "length", "kind", "origin")


def curves_csv(runs_by_cell: Mapping[CellKey, Runs]) -> tuple[bytes, int]:
    """One row an evaluation of the runs with documented settings, and the number of curves.

    Raises:
        RefusedFile: a record is damaged.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEADER)
    groups = (runs_by_cell[key] for key in sorted(runs_by_cell))
    runs = [r for g in groups for r in (*g.scored, *g.short, *(g.other_protocol if g.of_imported else ()))]
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
