"""``python -m benchmarks``: rlbench and other libraries (peers) do the same work by turns on one machine.

Compare ratios within one run. The clock of each library starts after its own warm-up.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.cases import OTHER_UNITS, TIANSHOU_DIVISOR, UNITS, Case, cases
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
"""The peers of each workload."""

WITH_PARTS = {"dqn-pong", "halfcheetah", "ppo-halfcheetah", "ppo-pong", "profile"}
"""Workloads that also measure the parts of a step of rlbench."""


def main() -> None:
    """Measure the requested workloads, write the JSON and print its table."""
    options = _arguments()
    if options.markdown is not None:
        sys.stdout.write(markdown(load(options.markdown)))
        return
    if options.profile is not None:
        loaded = load(options.profile)
        figure(loaded, options.profile.with_suffix(".png"))
        sys.stdout.write(table(loaded))
        return
    thread_policy = {name: value for workload in options.workloads or UNITS for name, value in policy(workload).items()}
    settings = {"repeat": options.repeat, "steps": options.steps, **thread_policy}
    if options.note is not None:
        settings["note"] = options.note
    figures = Figures()
    for turn in range(options.repeat):
        for threads in options.threads:
            for workload in options.workloads or UNITS:
                for name, case in cases(workload, threads, options.steps).items():
                    _log(f"{turn + 1}/{options.repeat}  {name}, {threads} threads")
                    _attempt(figures, name, workload, threads, partial(ours, workload, case))
                    _peers(figures, options.peers or [], name, workload, case)
    floors(figures)
    result = report(figures, settings)
    save(result, options.output or ROOT / f"benchmarks/results/{machine_name(result)}.json")
    sys.stdout.write(markdown(result))


def _peers(figures: Figures, names: list[str], contest: str, workload: str, case: Case) -> None:
    for name in names:
        if name in CONTESTS.get(workload, ()):
            slow = workload == "dqn-pong" and name == "tianshou"
            peer_case = case._replace(steps=case.steps // TIANSHOU_DIVISOR) if slow else case
            _attempt(figures, contest, workload, case.threads, partial(peer, PEERS[name], workload, peer_case))


def _attempt(figures: Figures, contest: str, workload: str, threads: int, measure: Callable[[], Samples]) -> None:
    """Add the samples of one library; a library that fails ends nothing and has no figures."""
    try:
        all_samples = measure()
    except ChildFailed as error:
        _log(f"{contest} failed: {error}")
        return
    for subject, samples in all_samples.items():
        library, comma, _ = subject.partition(", CPU")
        if comma:
            unit = UNITS[workload].replace("/s", "/CPU s")
            figures.add(contest.replace(workload, f"{workload} cpu"), library, threads, unit, samples)
        elif workload in WITH_PARTS and library not in {"rlbench", *PEERS}:
            figures.add(f"{contest} parts", library, threads, "ms", samples)
        else:
            figures.add(contest, library, threads, OTHER_UNITS.get(library, UNITS[workload]), samples)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(UNITS)}; all by default")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="also measure these libraries; without a name, all")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--steps", type=int, default=3_000, help="measured environment steps of a whole loop")
    parser.add_argument("--note", help="a note in the settings, such as the other load of the machine")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/<machine>.json")
    parser.add_argument("--markdown", type=Path, metavar="JSON", help="only print the table of this file")
    parser.add_argument("--profile", type=Path, metavar="JSON", help="print shares of a step, and draw them")
    options = parser.parse_args()
    if unknown := set(options.workloads) - set(UNITS):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}: choose from {', '.join(UNITS)}")
    if options.peers is not None:
        options.peers = options.peers or list(PEERS)
        if not PEERS_PYTHON.exists() and not D3RLPY_PYTHON.exists():
            _log("no peer is installed, only rlbench is measured; benchmarks/peers/setup installs them")
            options.peers = []
    return options


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
