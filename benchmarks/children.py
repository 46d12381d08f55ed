"""Measurements in subprocesses, each under the thread policy of its workload."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cases import Case

ROOT = Path(__file__).resolve().parent.parent
PEERS_PYTHON = ROOT / ".peers/bin/python"
D3RLPY_PYTHON = ROOT / ".peers-d3rlpy/bin/python"  # it needs another version of Gymnasium
TIMEOUT = 1_800  # seconds

SPINNING = {f"mujoco/{name}" for name in ("ddpg", "td3", "sac", "redq")} | {
    f"offline/{name}" for name in ("il", "td3bc", "iql", "cql", "bcq", "crr")
}
"""Profiles of runs whose idle threads spin for a while, as in ``rlbench run``."""

Samples = dict[str, list[float]]


class ChildFailed(Exception):
    """A measurement ended without a number; the message is the last line of its stderr."""


def ours(workload: str, case: Case) -> Samples:
    """Run ``benchmarks.measure``; samples by library or part of a step."""
    options = [text for field, value in case._asdict().items() for text in (f"--{field}", str(value))]
    return _json(
        [sys.executable, "-m", "benchmarks.measure", workload, *options], case.threads, policy(workload, case.algorithm)
    )


def peer(script: str, workload: str, case: Case) -> Samples:
    """Run a script of ``benchmarks/peers``; samples by library.

    Raises:
        ChildFailed: if the library is not installed, or the script fails.
    """
    arguments = [str(word) for word in (case.steps, case.threads, case.algorithm, case.batch, workload)]
    python = D3RLPY_PYTHON if script == "d3.py" else PEERS_PYTHON
    if not python.exists():
        raise ChildFailed(f"{python} is missing; benchmarks/peers/setup and setup_d3rlpy install the peers")
    return _json([str(python), f"benchmarks/peers/{script}", *arguments], case.threads, policy(workload))


def policy(workload: str, algorithm: str = "") -> dict[str, str]:
    """Environment variables for the waiting of idle threads, as ``rlbench run`` sets them unless the caller has."""
    spinning = workload in {"halfcheetah", "offline-update", "offline-evaluation"} or algorithm in SPINNING
    if spinning and "OMP_WAIT_POLICY" not in os.environ:
        return {"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "30000")}
    return {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")}


def _json(command: Sequence[str], threads: int, thread_policy: Mapping[str, str]) -> Samples:
    environ = os.environ | thread_policy | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(  # noqa: S603 - our own scripts
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode != 0:
        raise ChildFailed((done.stderr.strip().splitlines() or ["no message"])[-1])
    samples: Samples = json.loads(done.stdout.strip().splitlines()[-1])
    return samples
