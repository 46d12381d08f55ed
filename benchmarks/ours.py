"""The run that is measured: DQN on Pong at the documented settings, but for what makes it equal to the peers'."""

from __future__ import annotations

from rlbench import suites
from rlbench.build.assemble import build
from rlbench.build.environments import describe
from rlbench.spec.override import applied, parse
from rlbench.spec.run import Runtime
from rlbench.trainers.online import Online

BATCH = 32
CAPACITY = 20_000
WARMUP = 2_000  # environment steps before the first update, here and in every peer
SETTINGS = (f"algo.batch={BATCH}", f"algo.warmup={WARMUP}", "budget.epoch=10_000_000")


def trainer(threads: int, *, capacity: int = CAPACITY) -> Online:
    """The whole run on a CPU, at its beginning; it never evaluates."""
    settings = [parse(text, "benchmark") for text in (*SETTINGS, f"algo.replay.capacity={capacity}")]
    spec = applied(suites.spec("atari", "dqn", "PongNoFrameskip-v4"), settings)
    run = build(spec, Runtime(device="cpu", threads=threads), describe(spec))
    run.clock.epochs = 1  # the untrained policy counts as judged
    return run
