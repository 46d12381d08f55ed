"""``python -m benchmarks``: rlbench and its peers, the same work by turns on one machine.

A figure counts as a ratio within one run. Every contestant waits for its own warm-up before its clock starts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.cases import ASIDE, PATIENCE, UNITS, Case, cases
from benchmarks.children import D3RLPY_PYTHON, PEERS_PYTHON, ROOT, ChildFailed, Samples, ours, peer, policy
from benchmarks.figures import Figures, floors
from benchmarks.report import load, machine_name, markdown, report, save
from benchmarks.shares import figure, table

PEERS = {"stable-baselines3": "sb3.py", "tianshou": "tianshou_value.py", "d3rlpy": "d3.py"}
CONTESTS = {
    "dqn-pong": ("stable-baselines3", "tianshou"),
    "value-pong": ("tianshou",),
    "halfcheetah": ("stable-baselines3",),
    "ppo-halfcheetah": ("stable-baselines3",),
    "ppo-pong": ("stable-baselines3",),
    "offline-update": ("d3rlpy",),
}
"""Who takes part, beside rlbench."""

PARTED = {"dqn-pong", "halfcheetah", "ppo-halfcheetah", "ppo-pong", "profile"}
"""Workloads that say where ours spends its time."""


def main() -> None:
    """Measure what was asked for, write the JSON, show the table."""
    given = _arguments()
    if given.markdown is not None:
        sys.stdout.write(markdown(load(given.markdown)))
        return
    if given.profile is not None:
        found = load(given.profile)
        figure(found, given.profile.with_suffix(".png"))
        sys.stdout.write(table(found))
        return
    waiting = {name: value for workload in given.workloads or UNITS for name, value in policy(workload).items()}
    settings = {"repeat": given.repeat, "steps": given.steps, **waiting}
    if given.note is not None:
        settings["note"] = given.note
    figures = Figures()
    for turn in range(given.repeat):
        for threads in given.threads:
            for workload in given.workloads or UNITS:
                for name, case in cases(workload, threads, given.steps).items():
                    _tell(f"{turn + 1}/{given.repeat}  {name}, {threads} threads")
                    _attempt(figures, name, workload, threads, partial(ours, workload, case))
                    _peers(figures, given.peers or [], name, workload, case)
    floors(figures)
    found = report(figures, settings)
    save(found, given.output or ROOT / f"benchmarks/results/{machine_name(found)}.json")
    sys.stdout.write(markdown(found))


def _peers(figures: Figures, names: list[str], contest: str, workload: str, case: Case) -> None:
    for name in names:
        if name in CONTESTS.get(workload, ()):
            slow = workload == "dqn-pong" and name == "tianshou"
            asked = case._replace(steps=case.steps // PATIENCE) if slow else case
            _attempt(figures, contest, workload, case.threads, partial(peer, PEERS[name], workload, asked))


def _attempt(figures: Figures, contest: str, workload: str, threads: int, measure: Callable[[], Samples]) -> None:
    """One contestant that breaks does not end the benchmark; its figures are missing."""
    try:
        found = measure()
    except ChildFailed as error:
        _tell(f"{contest} failed: {error}")
        return
    for subject, samples in found.items():
        who, comma, _ = subject.partition(", CPU")
        if comma:
            unit = UNITS[workload].replace("/s", "/CPU s")
            figures.add(contest.replace(workload, f"{workload} cpu"), who, threads, unit, samples)
        elif workload in PARTED and who not in {"rlbench", *PEERS}:
            figures.add(f"{contest} parts", who, threads, "ms", samples)
        else:
            figures.add(contest, who, threads, ASIDE.get(who, UNITS[workload]), samples)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(UNITS)}; all by default")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="measure these too; without a name, all")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--steps", type=int, default=3_000, help="measured environment steps of a whole loop")
    parser.add_argument("--note", help="kept with the settings: what else the machine was doing")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/<machine>.json")
    parser.add_argument("--markdown", type=Path, metavar="JSON", help="only show the table of a written file")
    parser.add_argument("--profile", type=Path, metavar="JSON", help="the same as shares of a step, and as JSON.png")
    given = parser.parse_args()
    if unknown := set(given.workloads) - set(UNITS):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}: choose from {', '.join(UNITS)}")
    if given.peers is not None:
        given.peers = given.peers or list(PEERS)
        if not PEERS_PYTHON.exists() and not D3RLPY_PYTHON.exists():
            _tell("the peers are not installed, only rlbench is measured; benchmarks/peers/setup installs them")
            given.peers = []
    return given


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
