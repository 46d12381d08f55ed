"""``python -m benchmarks.scores``: scores of d3rlpy and rlbench on one file after equally many updates, as Markdown.

A score is the mean return of ten episodes of the policy's mode on the same task, one per seed. Those of rlbench are
from committed records, those of d3rlpy from ``peers/d3_scores.py``.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.children import ROOT
from rlbench.report.reference_table import CellKey
from rlbench.report.run_index import Runs, differences, gather
from rlbench.report.runs import Run

THEIRS = ROOT / "benchmarks/results/d3rlpy-scores.jsonl"


class Contest(NamedTuple):
    """A comparison: an algorithm after a number of updates; ``horizon`` is the n of the n-step returns of rlbench."""

    algorithm: str
    updates: int
    horizon: int = 1  # d3rlpy's


CONTESTS = (Contest("td3bc", 30_000), Contest("td3bc", 30_000, 3), Contest("cql", 10_000))
"""TD3+BC as d3rlpy has it, and with the three-step returns of our documented setting."""


class Pair(NamedTuple):
    """The scores of both libraries, one per seed."""

    contest: Contest
    data: str
    theirs: tuple[float, ...]
    ours: tuple[float, ...]


def pairs(results: Path, theirs: Path = THEIRS) -> list[Pair]:
    """Every comparison for which both libraries have scores on the same file."""
    lines = [json.loads(line) for line in theirs.read_text(encoding="utf-8").splitlines()]
    run_index = gather(results)
    comparisons = []
    for contest in CONTESTS:
        scores = [
            line for line in lines if (line["algorithm"], line["updates"]) == (contest.algorithm, contest.updates)
        ]
        for data in dict.fromkeys(str(line["data"]) for line in scores):
            rows = [line for line in scores if line["data"] == data]
            mine = ours(run_index, contest, data, {str(row["sha256"]) for row in rows})
            if mine:
                means = tuple(statistics.fmean(row["returns"]) for row in rows)
                comparisons.append(Pair(contest, data, means, mine))
    return comparisons


def ours(run_index: Mapping[CellKey, Runs], contest: Contest, data: str, files: set[str]) -> tuple[float, ...]:
    """Scores by seed, after the updates of a contest, of runs at the documented settings on one of the files."""
    cell = (contest.algorithm, data)
    every = [run for key, runs in run_index.items() if (key.algorithm, key.dataset) == cell for run in runs.all]
    runs = [run for run in every if run.data_file in files and _changes(run) <= {f"algo.n_step={contest.horizon}"}]
    runs = [run for run in runs if _horizon(run) == contest.horizon]
    scores = {run.seed: e.mean for run in runs for e in run.evaluations if e.env_steps == contest.updates}
    return tuple(scores[seed] for seed in sorted(scores))


def _changes(run: Run) -> set[str]:
    """Differences of a run from the documented settings, without its budget, which does not change an update."""
    return {text for text in differences(run) if not text.startswith("budget.")}


def _horizon(run: Run) -> object:
    algo = run.settings["algo"]
    return algo.get("n_step", 1) if isinstance(algo, dict) else None


def markdown(comparisons: Sequence[Pair]) -> str:
    """A table with a row for each comparison: mean and std over seeds, and the verdict."""
    lines = ["| | data | updates | d3rlpy | rlbench | |", "|---|---|---:|---:|---:|---|"]
    for pair in comparisons:
        std = statistics.stdev(pair.theirs) if len(pair.theirs) > 1 else 0.0
        lowest = statistics.fmean(pair.theirs) - std
        word = "reached" if statistics.fmean(pair.ours) >= lowest else "**missed**"
        sides = " | ".join(map(_format, (pair.theirs, pair.ours)))
        name, updates, horizon = pair.contest
        steps = f", {horizon}-step returns" if horizon > 1 else ""
        lines.append(f"| {name}{steps} | {pair.data} | {updates:,} | {sides} | {word} |")
    return "\n".join(lines) + "\n"


def _format(scores: Sequence[float]) -> str:
    std = f" ± {statistics.stdev(scores):,.0f}" if len(scores) > 1 else ""
    return f"{statistics.fmean(scores):,.0f}{std} ({len(scores)})"


if __name__ == "__main__":
    sys.stdout.write(markdown(pairs(ROOT / "results")))
