"""Import of learning curves: lines per second from a CSV file to verdicts, and by the ``csv`` module alone."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.cases import Case
from rlbench.curves.formats import ImportOptions, read_curves
from rlbench.records.imported import write_curves
from rlbench.report.cells import every_cell
from rlbench.suites.mujoco import DOCUMENTED

SEEDS, LINES = 10, 1_000_000
OPTIONS = ImportOptions(suite="mujoco", algorithm="sac", task=None, format=None, kind=None, unit="decisions", tag=None)


def import_speed(case: Case) -> dict[str, list[float]]:
    """Lines per second of a file of a million lines and of one with ten seeds of 200 evaluations."""
    del case
    with tempfile.TemporaryDirectory(prefix="rlbench-") as folder:
        whole, small = Path(folder, "million.csv"), Path(folder, "ten.csv")
        counts = {
            whole: _write_table(whole, DOCUMENTED, LINES),
            small: _write_table(small, ("Hopper-v4",), 200 * SEEDS),
        }
        results = {"rlbench": [_lines_per_second(whole, counts[whole])]}
        results["ten seeds of 200 lines"] = [_lines_per_second(small, counts[small])]
        began = perf_counter()
        with whole.open(newline="") as file:
            lines = sum(1 for _ in csv.reader(file))
        results["csv module, text alone"] = [lines / (perf_counter() - began)]
    return results


def _write_table(path: Path, tasks: tuple[str, ...], lines: int) -> int:
    """Write about ``lines`` lines and return their exact number."""
    evaluations = lines // (len(tasks) * SEEDS)
    draw = np.random.default_rng(0)
    with path.open("w") as file:
        file.write("task,seed,step,return\n")
        for task in tasks:
            for seed in range(SEEDS):
                returns = draw.normal(3_000, 50, evaluations).tolist()
                file.writelines(f"{task},{seed},{90 * k},{score}\n" for k, score in enumerate(returns, 1))
    return evaluations * len(tasks) * SEEDS


def _lines_per_second(path: Path, lines: int) -> float:
    results = path.with_suffix("")
    began = perf_counter()
    write_curves(read_curves([path], OPTIONS), results)
    every_cell(["mujoco"], results)
    return lines / (perf_counter() - began)
