"""The number of evaluation workers of a run, by a literal table."""

from __future__ import annotations

import pytest

from rlbench import suites
from rlbench.config.footprint import eval_worker_count
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Spec

TD3BC = suites.spec("offline", "td3bc", "halfcheetah-medium-v2")


def changed(*texts: str) -> Spec:
    return apply_settings(TD3BC, [parse(text) for text in texts])


@pytest.mark.parametrize(
    ("spec", "requested", "cores", "threads", "workers"),
    [
        (TD3BC, None, 1, 1, 0),
        (TD3BC, None, 2, 1, 1),
        (TD3BC, None, 2, 2, 0),  # both cores learn
        (TD3BC, None, 4, 2, 2),
        (TD3BC, None, 16, 1, 8),  # a card's run
        (TD3BC, 3, 1, 1, 3),  # somebody said so
        (TD3BC, 0, 16, 1, 0),
        (changed("budget.steps=10_000"), None, 16, 1, 3),  # as many evaluations, the untrained policy's included
        (changed("protocol.stop=90"), 3, 16, 1, 0),  # it may end at any evaluation
        (TD3BC.model_copy(update={"smoke": True}), None, 16, 1, 0),  # seconds, as long as it takes to start one
        (TD3BC.model_copy(update={"smoke": True}), 1, 16, 1, 1),
        (suites.spec("mujoco", "sac", "HalfCheetah-v4"), 3, 16, 1, 0),  # evaluates in its own process
    ],
)
def test_number_of_eval_workers_of_a_run(
    spec: Spec, requested: int | None, cores: int, threads: int, workers: int
) -> None:
    assert eval_worker_count(spec, requested=requested, cores=cores, threads=threads) == workers
