"""What judging costs an offline run: the same updates unjudged, judged in between, and judged beside.

Epochs and games are the documented ones. The start of the process that judges is counted; waiting for its last word is
not, for that happens once in a run of hundreds of epochs. Processor time is that of the process that learns: on one
thread, with a core to spare, the clock follows it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from benchmarks.cases import Case
from benchmarks.offline import SETTLING, written
from rlbench import suites
from rlbench.assembly.assemble import build
from rlbench.assembly.environments import describe
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.training.offline import Offline

WAYS = {"judged within": 0, "judged beside": 1}


class Spent(NamedTuple):
    """What so many updates took."""

    seconds: float
    busy: float  # seconds of the processor, over all threads of this process


def seconds(case: Case) -> dict[str, list[float]]:
    """Seconds of ``case.steps`` epochs by the clock and of the processor, and what judging adds, in per cent."""
    plain = suites.spec("offline", case.algorithm, "halfcheetah-medium-v2")
    texts = (f"budget.steps={case.steps * plain.budget.epoch}", "algo.n_step=1")
    spec = apply_settings(plain, [parse(text, "benchmark") for text in texts])
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder))
        spent = {"unjudged": _unjudged(_built(spec, case, path, 0))}
        spent |= {name: _judged(_built(spec, case, path, judges)) for name, judges in WAYS.items()}
    found = {name: [took.seconds] for name, took in spent.items()}
    found |= {f"{name}, own CPU": [took.busy] for name, took in spent.items()}
    for name in WAYS:
        found[f"{name}, more"] = [100 * (spent[name].seconds / spent["unjudged"].seconds - 1)]
        found[f"{name}, more own CPU"] = [100 * (spent[name].busy / spent["unjudged"].busy - 1)]
    return found


def _built(spec: Spec, case: Case, path: Path, judges: int) -> Offline:
    runtime = Runtime(device="cpu", threads=case.threads, dataset=str(path), eval_workers=judges)
    run = build(spec, runtime, describe(spec))
    if not isinstance(run, Offline):
        raise TypeError(type(run).__name__)
    run.updater.run(0, SETTLING)
    return run


def _unjudged(run: Offline) -> Spent:
    began, busy = perf_counter(), process_time()
    run.updater.run(SETTLING, run.budget.steps)
    return Spent(perf_counter() - began, process_time() - busy)


def _judged(run: Offline) -> Spent:
    """Of the same updates, and of the evaluations after each epoch but the untrained one."""
    run.clock.epochs, began, busy = 1, perf_counter(), process_time()
    spent, learned = Spent(0.0, 0.0), False
    for _ in run:
        if not learned:
            spent = Spent(perf_counter() - began, process_time() - busy)
        learned = run.eval_pool.most > 0 and run.clock.updates == run.budget.steps
    run.close()
    return spent
