"""The sanity table: tasks of seconds to minutes whose best possible score is known."""

from __future__ import annotations

from typing import TypeVar

from rlbench.spec.algo import (
    Categorical,
    Implicit,
    Linear,
    Mlp,
    Priority,
    Proposed,
    QLearning,
    Quantiles,
    Replay,
)
from rlbench.spec.canon import Frozen
from rlbench.spec.run import Budget, Protocol, Spec
from rlbench.spec.task import ToyTask

DOCUMENTED = ("Catch", "CartPole-v1")
TASKS = {name: name for name in DOCUMENTED}
OPTIMUM = {"Catch": 1.0, "CartPole-v1": 500.0}
"""The mean return of the best policy."""

PartT = TypeVar("PartT", bound=Frozen)


def _with(part: PartT, **changes: object) -> PartT:
    return part.model_copy(update=changes)


PLAIN = QLearning(
    torso=Mlp(widths=(64,)),
    hidden=64,
    lr=1e-3,
    sync_every=100,
    warmup=1_000,
    updates_per_step=0.25,
    epsilon=Linear(start=1.0, end=0.05, steps=10_000),
    replay=Replay(capacity=20_000),
)

ALGORITHMS = {
    "dqn": PLAIN,
    "c51": _with(PLAIN, head=Categorical()),
    "qrdqn": _with(PLAIN, head=Quantiles(count=32)),
    "iqn": _with(PLAIN, head=Implicit()),
    "fqf": _with(PLAIN, head=Proposed()),
    "rainbow": _with(
        PLAIN,
        head=Categorical(),
        dueling=True,
        noisy=0.1,
        replay=Replay(capacity=20_000, priority=Priority(beta=Linear(start=0.4, end=1.0, steps=20_000))),
    ),
}
SUPPORT = {"Catch": (-2.0, 2.0), "CartPole-v1": (0.0, 100.0)}
"""The returns a categorical head must reach: Catch pays ±1, the pole at most 1 / (1 − γ) = 100."""


def spec(algorithm: str, task: str, seed: int) -> Spec:
    """The settings of one cell of the sanity table."""
    catch, algo = task == "Catch", ALGORITHMS[algorithm]
    if isinstance(algo.head, Categorical):
        low, high = SUPPORT[task]
        algo = _with(algo, head=_with(algo.head, low=low, high=high))
    if not catch:  # a fall is felt three steps earlier, which halves the steps to a solution
        algo = _with(algo, replay=_with(algo.replay, horizon=3))
    return Spec(
        suite="toy",
        algorithm=algorithm,
        task=ToyTask(id=task),
        algo=algo,
        protocol=Protocol(
            name="toy-v1", episodes=64 if catch else 20, envs=64 if catch else 20, stop=None if catch else 475.0
        ),
        budget=Budget(steps=24_000 if catch else 100_000, epoch=4_000 if catch else 5_000, segment=20_000),
        seed=seed,
    )
