"""How many threads a run can make use of, by the shapes it computes with."""

from __future__ import annotations

from typing import Final

from rlbench.spec.algo import ActorCritic, Nature
from rlbench.spec.offline import Offline
from rlbench.spec.run import Spec

MOST_THREADS: Final = 4  # a batch of 32 to 64 frames, or of 256 rows through 256 units, gains nothing from more
WIDE: Final = 32_768  # numbers in a layer's output from which a second thread pays


def paying(spec: Spec, *, card: bool, cores: int) -> int:
    """Threads from which ``spec`` gains on so many cores; one where a graphics card does the work."""
    if isinstance(spec.algo, ActorCritic | Offline):
        wide = spec.algo.batch * max(spec.algo.widths, default=1) >= WIDE
    else:
        wide = isinstance(spec.algo.torso, Nature)
    return min(MOST_THREADS, cores) if wide and not card else 1
