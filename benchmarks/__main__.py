"""``python -m benchmarks``: rlbench and its peers, the same work by turns on one machine.

A figure counts as a ratio within one run. Every contestant waits for its own warm-up before its clock starts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.children import PEERS_PYTHON, ROOT, ChildFailed, Samples, ours, peer, policy
from benchmarks.figures import Figures, floors
from benchmarks.report import load, machine_name, markdown, report, save

UNITS = {"gemm": "GFLOP/s", "dqn-update": "ms", "dqn-pong": "env steps/s", "storage": "µs"}
PEERS = {"stable-baselines3": "sb3.py", "tianshou": "tianshou_dqn.py"}
PATIENCE = {"tianshou": 10}  # it goes through its whole store after every collect: a tenth of the steps


def main() -> None:
    """Measure what was asked for, write the JSON, show the table."""
    given = _arguments()
    if given.markdown is not None:
        sys.stdout.write(markdown(load(given.markdown)))
        return
    settings = {"repeat": given.repeat, "steps": given.steps, **policy()}
    figures = Figures()
    for turn in range(given.repeat):
        for threads in given.threads:
            for workload in given.workloads or UNITS:
                _tell(f"{turn + 1}/{given.repeat}  {workload}, {threads} threads")
                _measured(figures, workload, threads, given.steps)
                if workload == "dqn-pong" and given.peers:
                    _peers(figures, given.peers, threads, given.steps)
    floors(figures)
    found = report(figures, settings)
    save(found, given.output or ROOT / f"benchmarks/results/{machine_name(found)}.json")
    sys.stdout.write(markdown(found))


def _measured(figures: Figures, workload: str, threads: int, steps: int) -> None:
    _attempt(figures, workload, threads, lambda: ours(workload, threads=threads, steps=steps))


def _peers(figures: Figures, names: list[str], threads: int, steps: int) -> None:
    for name in names:
        share = steps // PATIENCE.get(name, 1)
        _attempt(figures, "dqn-pong", threads, partial(peer, PEERS[name], threads=threads, steps=share))


def _attempt(figures: Figures, workload: str, threads: int, measure: Callable[[], Samples]) -> None:
    """One contestant that breaks does not end the benchmark; its figures are missing."""
    try:
        found = measure()
    except ChildFailed as error:
        _tell(f"{workload} failed: {error}")
        return
    for subject, samples in found.items():
        who, comma, _ = subject.partition(", CPU")
        if comma:
            figures.add(f"{workload} cpu", who, threads, "env steps/CPU s", samples)
        elif workload == "dqn-pong" and who not in {"rlbench", *PEERS}:
            figures.add(f"{workload} parts", who, threads, "ms", samples)
        else:
            figures.add(workload, who, threads, UNITS[workload], samples)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(UNITS)}; all by default")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="measure these too; without a name, all")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--steps", type=int, default=3_000, help="measured environment steps of a whole loop")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/<machine>.json")
    parser.add_argument("--markdown", type=Path, metavar="JSON", help="only show the table of a written file")
    given = parser.parse_args()
    if unknown := set(given.workloads) - set(UNITS):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}: choose from {', '.join(UNITS)}")
    if given.peers is not None:
        given.peers = given.peers or list(PEERS)
        if not PEERS_PYTHON.exists():
            _tell("the peers are not installed, only rlbench is measured; benchmarks/peers/setup installs them")
            given.peers = []
    return given


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
