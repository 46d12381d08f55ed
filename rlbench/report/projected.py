"""What missing runs would cost on one named card, by this project's speed targets: goals, not measurements.

No card has run the suites yet. The targets are of whole runs at the documented settings, start-up, compilation and
capture included (benchmarks/README.md); what has no target has no projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rlbench.report.missing import Missing

CARD: Final = "NVIDIA H200 with 16 processor cores"

SECONDS: Final[Mapping[str, Mapping[str, float]]] = {
    "atari": {"dqn": 60, "c51": 72, "qrdqn": 72, "iqn": 108, "fqf": 108, "rainbow": 96, "ppo": 72},
    "mujoco": {"ddpg": 180, "td3": 210, "sac": 300},
    "offline": {"il": 40, "td3bc": 90, "td3bc-raw": 90, "iql": 90, "bcq": 180, "crr": 180, "cql": 360},
}
"""By suite and algorithm, for a million environment steps or gradient steps of one run. None was set for REDQ, for SAC
on Atari, for goals and for data of games; on-policy algorithms on MuJoCo are processor work."""


def projected(rows: Iterable[Missing]) -> tuple[float, int]:
    """Hours on one ``CARD`` of all runs that have a target, one after another; and how many runs have none."""
    hours, without = 0.0, 0
    for row in rows:
        pace = SECONDS.get(row.key.suite, {}).get(row.key.algorithm)
        if pace is None or not row.runnable:
            without += len(row.seeds)
        else:
            hours += row.steps / 1e6 * pace / 3600
    return hours, without
