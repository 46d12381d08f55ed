"""The measured run of rlbench: Pong at the documented settings, with the batch, buffer and warm-up of the peers."""

from __future__ import annotations

from benchmarks.cases import Case
from benchmarks.rigs import online
from rlbench import suites
from rlbench.assembly.environments import describe
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.training.online import OnlineTrainer

CAPACITY = 20_000
WARMUP = 2_000  # environment steps before the first update, here and in every peer


def settings(case: Case, *, capacity: int = CAPACITY) -> Spec:
    """The documented settings of a cell of Pong with the peers' batch, buffer and warm-up."""
    texts = (
        f"algo.batch={case.batch}",
        f"algo.learning_starts={WARMUP}",
        f"algo.replay.capacity={capacity}",
        "budget.epoch=10_000_000",
    )
    return apply_settings(
        suites.spec("atari", case.algorithm, "PongNoFrameskip-v4"), [parse(text, "benchmark") for text in texts]
    )


def trainer(case: Case, *, capacity: int = CAPACITY) -> OnlineTrainer:
    """The whole run on a CPU, at its beginning; it never evaluates."""
    spec = settings(case, capacity=capacity)
    run = online(spec, Runtime(device="cpu", threads=case.threads), describe(spec))
    run.clock.epochs = 1  # the untrained policy counts as evaluated
    return run
