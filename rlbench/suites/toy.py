"""The sanity table: tasks of seconds to minutes whose best possible score is known."""

from __future__ import annotations

from rlbench.spec.algo import Linear, Mlp, QLearning, Replay
from rlbench.spec.run import Budget, Protocol, Spec
from rlbench.spec.task import ToyTask

DOCUMENTED = ("Catch", "CartPole-v1")
TASKS = {name: name for name in DOCUMENTED}
OPTIMUM = {"Catch": 1.0, "CartPole-v1": 500.0}
"""The mean return of the best policy."""

ALGORITHMS = {
    "dqn": QLearning(
        torso=Mlp(widths=(64,)),
        hidden=64,
        lr=1e-3,
        sync_every=100,
        warmup=1_000,
        updates_per_step=0.25,
        epsilon=Linear(start=1.0, end=0.05, steps=10_000),
        replay=Replay(capacity=20_000),
    ),
}


def spec(algorithm: str, task: str, seed: int) -> Spec:
    """The settings of one cell of the sanity table."""
    catch, algo = task == "Catch", ALGORITHMS[algorithm]
    if not catch:  # a fall is felt three steps earlier, which halves the steps to a solution
        algo = algo.model_copy(update={"replay": algo.replay.model_copy(update={"horizon": 3})})
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
