"""What judging costs an offline run: the same updates unjudged, judged in between, and judged beside, by the clock.

Epochs and games are the documented ones, the start of the process that judges is counted, and so is waiting for its
last word.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.cases import Case
from benchmarks.offline import SETTLING, written
from rlbench import suites
from rlbench.build.assemble import build
from rlbench.build.environments import describe
from rlbench.spec.override import applied, parse
from rlbench.spec.run import Runtime, Spec
from rlbench.trainers.offline import Offline

JUDGES = {"judged within": 0, "judged beside": 1}


def seconds(case: Case) -> dict[str, list[float]]:
    """Seconds of a whole run of so many epochs, and what judging adds to them, in per cent."""
    plain = suites.spec("offline", case.algorithm, "halfcheetah-medium-v2")
    texts = (f"budget.steps={case.steps * plain.budget.epoch}", "algo.horizon=1")
    spec = applied(plain, [parse(text, "benchmark") for text in texts])
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder))
        unjudged = _unjudged(_built(spec, case, path, 0))
        found = {"unjudged": [unjudged]}
        for name, judges in JUDGES.items():
            found[name] = [_judged(_built(spec, case, path, judges))]
            found[f"{name}, more"] = [100 * (found[name][0] / unjudged - 1)]
    return found


def _built(spec: Spec, case: Case, path: Path, judges: int) -> Offline:
    runtime = Runtime(device="cpu", threads=case.threads, dataset=str(path), judges=judges)
    run = build(spec, runtime, describe(spec))
    if not isinstance(run, Offline):
        raise TypeError(type(run).__name__)
    run.updater.run(0, SETTLING)
    return run


def _unjudged(run: Offline) -> float:
    began = perf_counter()
    run.updater.run(SETTLING, run.budget.steps)
    return perf_counter() - began


def _judged(run: Offline) -> float:
    """Of the same updates, and of the evaluations after each epoch but the untrained one."""
    run.clock.epochs, began = 1, perf_counter()
    for _ in run:
        pass
    run.close()
    return perf_counter() - began
