"""The cost of evaluation in an offline run: without evaluation, in the training process, and by an evaluation worker.

Epochs and episodes are the documented ones. The start of the worker is counted. The wait for its last result is not: it
occurs once in a run of hundreds of epochs. Processor time is that of the training process.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from benchmarks.cases import Case
from benchmarks.offline import SETTLING, write_dataset
from benchmarks.rigs import offline, spec_with
from rlbench import suites
from rlbench.config.run import Runtime, Spec
from rlbench.training.offline import OfflineTrainer

EVAL_WORKERS = {"evaluated in process": 0, "evaluated by a worker": 1}


class Cost(NamedTuple):
    """The cost of the updates of a run."""

    seconds: float
    cpu_seconds: float  # over all threads of this process


def seconds(case: Case) -> dict[str, list[float]]:
    """Seconds and CPU seconds of ``case.steps`` epochs, and the cost of evaluation in percent."""
    plain = suites.spec("offline", case.algorithm, "halfcheetah-medium-v2")
    changes = f"budget.steps={case.steps * plain.budget.epoch}", "algo.n_step=1"
    spec = spec_with("offline", case.algorithm, "halfcheetah-medium-v2", *changes)
    with tempfile.TemporaryDirectory() as folder:
        path = write_dataset(Path(folder))
        costs = {"not evaluated": _update_only(_build(spec, case, path, 0))}
        costs |= {name: _update_and_evaluate(_build(spec, case, path, n)) for name, n in EVAL_WORKERS.items()}
    samples = {name: [cost.seconds] for name, cost in costs.items()}
    samples |= {f"{name}, own CPU": [cost.cpu_seconds] for name, cost in costs.items()}
    plain_cost = costs["not evaluated"]
    for name in EVAL_WORKERS:
        samples[f"{name}, more"] = [100 * (costs[name].seconds / plain_cost.seconds - 1)]
        samples[f"{name}, more own CPU"] = [100 * (costs[name].cpu_seconds / plain_cost.cpu_seconds - 1)]
    return samples


def _build(spec: Spec, case: Case, path: Path, eval_workers: int) -> OfflineTrainer:
    runtime = Runtime(device="cpu", threads=case.threads, dataset=str(path), eval_workers=eval_workers)
    run = offline(spec, runtime)
    run.updater.run(0, SETTLING)
    return run


def _update_only(run: OfflineTrainer) -> Cost:
    began, busy = perf_counter(), process_time()
    run.updater.run(SETTLING, run.budget.steps)
    return Cost(perf_counter() - began, process_time() - busy)


def _update_and_evaluate(run: OfflineTrainer) -> Cost:
    """The cost of the same updates with an evaluation after each epoch, without that of the untrained policy."""
    run.clock.epochs, began, busy = 1, perf_counter(), process_time()
    cost, finished = Cost(0.0, 0.0), False
    for _ in run:
        if not finished:
            cost = Cost(perf_counter() - began, process_time() - busy)
        finished = run.eval_pool.max_workers > 0 and run.clock.updates == run.budget.steps
    run.close()
    return cost
