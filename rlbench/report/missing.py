"""What is missing from a table, and what it would cost: steps, hours at a measured speed, memory and disk."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlbench.errors import UnknownName
from rlbench.report.baseline import speed
from rlbench.report.documented import documented
from rlbench.report.documents import Key
from rlbench.report.gather import Runs, gather
from rlbench.report.runs import Run
from rlbench.spec.run import Spec


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """Seeds of one cell that have no finished run."""

    key: Key
    seeds: tuple[int, ...]
    steps: int  # of all of them, less what interrupted runs have done
    hours: float | None  # of all of them, one after another; None where no run of the suite has a speed
    memory: int | None  # bytes of one run; None where this version has no settings for the cell
    runnable: bool


def missing(
    suite: str, results: Path, *, algorithms: Sequence[str] = (), seeds: Sequence[int] = tuple(range(10))
) -> tuple[Missing, ...]:
    """The cells of a suite that lack seeds, in the documents' order.

    Raises:
        UnknownName: an algorithm is not in the suite's table.
    """
    found = gather(results)
    cells = documented(suite)
    known = dict.fromkeys(cell.key.algorithm for cell in cells)
    for name in algorithms:
        if name not in known:
            raise UnknownName("algorithm", name, known, where=suite)
    keys = [cell.key for cell in cells if not algorithms or cell.key.algorithm in algorithms]
    rows = (_missing(key, found.get(key, Runs()), found, seeds) for key in keys)
    return tuple(row for row in rows if row.seeds)


def pace(key: Key, found: Mapping[Key, Runs]) -> float | None:
    """Agent steps a second to expect: of the cell's own runs, or else of its algorithm's, or of its suite's."""
    for near in (
        lambda other: other == key,
        lambda other: (other.suite, other.algorithm) == (key.suite, key.algorithm),
        lambda other: other.suite == key.suite,
    ):
        speeds = [made for other, runs in found.items() if near(other) for run in _made(runs) if (made := speed(run))]
        if speeds:
            return statistics.median(speeds)
    return None


def _made(runs: Runs) -> list[Run]:
    return [*runs.complete, *runs.short]


def _missing(key: Key, runs: Runs, found: Mapping[Key, Runs], seeds: Sequence[int]) -> Missing:
    spec = _spec(key)
    done = {run.seed for run in (*runs.complete, *runs.failed)}
    wanted = tuple(seed for seed in seeds if seed not in done)
    begun = sum(min(run.env_steps, run.budget) for run in runs.short if run.seed in wanted)
    steps = max(0, len(wanted) * (spec.budget.steps if spec else 0) - begun)
    expected = pace(key, found)
    return Missing(
        key=key,
        seeds=wanted,
        steps=steps,
        hours=steps / expected / 3600 if expected and spec else None,
        memory=_memory(spec) if spec else None,
        runnable=spec is not None,
    )


def _spec(key: Key) -> Spec | None:
    from rlbench import suites

    recorded = key.suite == "offline" and key.dataset  # data that we have not cannot be run, though the game could
    for task in (key.dataset,) if recorded else dict.fromkeys((key.dataset, key.task)):
        try:
            return suites.spec(key.suite, key.algorithm, task)
        except UnknownName:
            continue
    return None


def _memory(spec: Spec) -> int:
    from rlbench.spec.footprint import footprint

    return footprint(spec).total
