"""``python -m benchmarks.scores``: what d3rlpy and rlbench come to on one file after equally many updates, as Markdown.

Ours are the evaluations of committed records at that number of updates, d3rlpy's those of ``peers/d3_scores.py``: both
the mean return of ten games of the policy's mode on the same task, a number a seed.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.children import ROOT
from rlbench.report.documents import Key
from rlbench.report.gather import Runs, file_of, gather

THEIRS = ROOT / "benchmarks/results/d3rlpy-scores.jsonl"
UPDATES = {"td3bc": 30_000, "cql": 10_000}
"""After which they are compared; each takes an hour or two of one core here, whoever trains."""


class Pair(NamedTuple):
    """Scores, one a seed, of both sides."""

    algorithm: str
    data: str
    updates: int
    theirs: tuple[float, ...]
    ours: tuple[float, ...]


def pairs(results: Path, theirs: Path = THEIRS) -> list[Pair]:
    """Every comparison for which there are scores of both, on the very same file."""
    lines = [json.loads(line) for line in theirs.read_text(encoding="utf-8").splitlines()]
    found = gather(results)
    made = []
    for algorithm, updates in UPDATES.items():
        said = [line for line in lines if (line["algorithm"], line["updates"]) == (algorithm, updates)]
        for data in dict.fromkeys(str(line["data"]) for line in said):
            rows = [line for line in said if line["data"] == data]
            mine = ours(found, algorithm, data, updates, {str(row["sha256"]) for row in rows})
            if mine:
                means = tuple(statistics.fmean(row["returns"]) for row in rows)
                made.append(Pair(algorithm, data, updates, means, mine))
    return made


def ours(found: Mapping[Key, Runs], algorithm: str, data: str, updates: int, files: set[str]) -> tuple[float, ...]:
    """Of the documented setting's runs on one of these files the evaluation after so many updates, by seed."""
    runs = [run for key, runs in found.items() if (key.algorithm, key.dataset) == (algorithm, data) for run in runs.all]
    runs = [run for run in runs if file_of(run) in files and run.status == "done"]
    return tuple(e.mean for run in runs for e in run.evaluations if e.env_steps == updates)


def markdown(found: Sequence[Pair]) -> str:
    """A row a comparison: mean and deviation over seeds, and whether ours is within theirs or above."""
    lines = ["| | data | updates | d3rlpy | rlbench | |", "|---|---|---:|---:|---:|---|"]
    for pair in found:
        spread = statistics.stdev(pair.theirs) if len(pair.theirs) > 1 else 0.0
        reached = statistics.fmean(pair.ours) >= statistics.fmean(pair.theirs) - spread
        word = "reached" if reached else "**missed**"
        sides = " | ".join(map(_told, (pair.theirs, pair.ours)))
        lines.append(f"| {pair.algorithm} | {pair.data} | {pair.updates:,} | {sides} | {word} |")
    return "\n".join(lines) + "\n"


def _told(scores: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(scores):,.0f}" if len(scores) > 1 else ""
    return f"{statistics.fmean(scores):,.0f}{spread} ({len(scores)})"


if __name__ == "__main__":
    sys.stdout.write(markdown(pairs(ROOT / "results")))
