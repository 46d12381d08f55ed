"""Numbers of threads and evaluation workers from which a run gains."""

from __future__ import annotations

from typing import Final

from rlbench.config.run import Spec

MOST_THREADS: Final = 4  # a batch of 32 to 64 frames, or of 256 rows through 256 units, gains nothing from more
MOST_EVAL_WORKERS: Final = 8  # TD3+BC on a GPU trains half a minute an epoch; one core evaluates it in four


def eval_worker_count(spec: Spec, *, requested: int | None, cores: int, threads: int) -> int:
    """Number of evaluation workers for a run with ``cores`` of its own and ``threads`` of training; 0: none.

    A run that may stop at any evaluation waits for each, and an online run evaluates itself.
    """
    if spec.protocol.stop is not None or spec.algo.learns_from != "data":
        return 0
    most = min(MOST_EVAL_WORKERS, 1 + spec.budget.steps // spec.budget.epoch)
    if requested is not None:
        return min(requested, most)
    return 0 if spec.smoke else min(most, max(0, cores - threads))  # a worker on a core of the training gains nothing


def useful_threads(spec: Spec, *, gpu: bool, cores: int) -> int:
    """Number of torch threads from which ``spec`` gains on ``cores``; one if a GPU computes."""
    return min(MOST_THREADS, cores) if spec.algo.wide and not gpu else 1
