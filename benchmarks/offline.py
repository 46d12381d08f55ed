"""Gradient steps on recorded experience: sampling a batch and an update, nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter, process_time

import h5py
import numpy as np

from benchmarks.cases import Case
from benchmarks.rigs import offline, spec_with
from rlbench.config.run import Runtime

ROWS, OBS, ACTIONS, LIMIT = 50_000, 17, 6, 1_000  # HalfCheetah's shapes, here and in the peer
NAME = "halfcheetah_medium-v2.hdf5"  # the name that a run expects; the content is noise
SETTLING = 20  # updates before the clock starts, here and in the peer
SETTINGS = ("budget.steps=10_000_000", "budget.epoch=10_000_000", "budget.segment=10_000_000", "algo.n_step=1")


def write_dataset(folder: Path) -> Path:
    """Write a file of noise in D4RL's layout, the same every time."""
    draw = np.random.default_rng(0)
    with h5py.File(folder / NAME, "w") as file:
        file["observations"] = draw.standard_normal((ROWS, OBS)).astype(np.float32)
        file["actions"] = draw.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32)
        file["rewards"] = draw.standard_normal(ROWS).astype(np.float32)
        file["terminals"] = np.zeros(ROWS, np.bool_)
        file["timeouts"] = np.arange(1, ROWS + 1) % LIMIT == 0
    return folder / NAME


def updates(case: Case) -> dict[str, list[float]]:
    """Updates per second, and per CPU second."""
    spec = spec_with("offline", case.algorithm, "halfcheetah-medium-v2", *SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        path = write_dataset(Path(folder))
        run = offline(spec, Runtime(device="cpu", threads=case.threads, dataset=str(path)))
    run.updater.run(0, SETTLING)
    began, busy = perf_counter(), process_time()
    run.updater.run(SETTLING, case.steps)
    seconds, cpu_seconds = perf_counter() - began, process_time() - busy
    return {"rlbench": [case.steps / seconds], "rlbench, CPU": [case.steps / cpu_seconds]}
