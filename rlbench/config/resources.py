"""How many threads and processes a run can make use of, by the shapes it computes with."""

from __future__ import annotations

from typing import Final

from rlbench.config.run import Spec

MOST_THREADS: Final = 4  # a batch of 32 to 64 frames, or of 256 rows through 256 units, gains nothing from more
MOST_EVAL_WORKERS: Final = 8  # TD3+BC on a GPU learns for half a minute while one core judges for four


def eval_worker_count(spec: Spec, *, asked: int | None, cores: int, threads: int) -> int:
    """Processes that judge beside the training, of ``cores`` that are its own and ``threads`` that learn; 0: none.

    What may end at any evaluation waits for each, and what plays itself judges itself.
    """
    if spec.protocol.stop is not None or spec.algo.learns_from != "data":
        return 0
    most = min(MOST_EVAL_WORKERS, 1 + spec.budget.steps // spec.budget.epoch)
    if asked is not None:
        return min(asked, most)
    return (
        0 if spec.smoke else min(most, max(0, cores - threads))
    )  # on a core that learns, judging beside gains nothing


def paying(spec: Spec, *, card: bool, cores: int) -> int:
    """Threads from which ``spec`` gains on so many cores; one where a GPU does the work."""
    return min(MOST_THREADS, cores) if spec.algo.wide and not card else 1
