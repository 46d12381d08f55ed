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
from rlbench.report.reference_table import CellKey
from rlbench.report.repeats import file_of
from rlbench.report.run_index import Runs, differences, gather
from rlbench.report.runs import Run

THEIRS = ROOT / "benchmarks/results/d3rlpy-scores.jsonl"


class Contest(NamedTuple):
    """What is compared: an algorithm, after so many updates, with the rewards that ours sums before it bootstraps."""

    algorithm: str
    updates: int
    horizon: int = 1  # d3rlpy's


CONTESTS = (Contest("td3bc", 30_000), Contest("td3bc", 30_000, 3), Contest("cql", 10_000))
"""TD3+BC as d3rlpy has it, and with the three-step returns of our documented setting."""


class Pair(NamedTuple):
    """Scores, one a seed, of both sides."""

    contest: Contest
    data: str
    theirs: tuple[float, ...]
    ours: tuple[float, ...]


def pairs(results: Path, theirs: Path = THEIRS) -> list[Pair]:
    """Every comparison for which there are scores of both, on the very same file."""
    lines = [json.loads(line) for line in theirs.read_text(encoding="utf-8").splitlines()]
    found = gather(results)
    made = []
    for contest in CONTESTS:
        said = [line for line in lines if (line["algorithm"], line["updates"]) == (contest.algorithm, contest.updates)]
        for data in dict.fromkeys(str(line["data"]) for line in said):
            rows = [line for line in said if line["data"] == data]
            mine = ours(found, contest, data, {str(row["sha256"]) for row in rows})
            if mine:
                means = tuple(statistics.fmean(row["returns"]) for row in rows)
                made.append(Pair(contest, data, means, mine))
    return made


def ours(found: Mapping[CellKey, Runs], contest: Contest, data: str, files: set[str]) -> tuple[float, ...]:
    """Of runs on one of these files the evaluation after so many updates, by seed; settings are the documented ones."""
    wanted = (contest.algorithm, data)
    every = [run for key, runs in found.items() if (key.algorithm, key.dataset) == wanted for run in runs.all]
    runs = [run for run in every if file_of(run) in files and _changes(run) <= {f"algo.n_step={contest.horizon}"}]
    runs = [run for run in runs if _horizon(run) == contest.horizon]
    scores = {run.seed: e.mean for run in runs for e in run.evaluations if e.env_steps == contest.updates}
    return tuple(scores[seed] for seed in sorted(scores))


def _changes(run: Run) -> set[str]:
    """What a run's settings have instead of the documented ones, but for its length, which no update here looks at."""
    return {text for text in differences(run) if not text.startswith("budget.")}


def _horizon(run: Run) -> object:
    algo = run.settings["algo"]
    return algo.get("n_step", 1) if isinstance(algo, dict) else None


def markdown(found: Sequence[Pair]) -> str:
    """A row a comparison: mean and deviation over seeds, and whether ours is within theirs or above."""
    lines = ["| | data | updates | d3rlpy | rlbench | |", "|---|---|---:|---:|---:|---|"]
    for pair in found:
        spread = statistics.stdev(pair.theirs) if len(pair.theirs) > 1 else 0.0
        reached = statistics.fmean(pair.ours) >= statistics.fmean(pair.theirs) - spread
        word = "reached" if reached else "**missed**"
        sides = " | ".join(map(_told, (pair.theirs, pair.ours)))
        name, updates, horizon = pair.contest
        steps = f", {horizon}-step returns" if horizon > 1 else ""
        lines.append(f"| {name}{steps} | {pair.data} | {updates:,} | {sides} | {word} |")
    return "\n".join(lines) + "\n"


def _told(scores: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(scores):,.0f}" if len(scores) > 1 else ""
    return f"{statistics.fmean(scores):,.0f}{spread} ({len(scores)})"


if __name__ == "__main__":
    sys.stdout.write(markdown(pairs(ROOT / "results")))
