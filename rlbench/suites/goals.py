"""Tasks with goals: DDPG on FetchReach, with and without hindsight.

Settings: thu-ml/tianshou examples/mujoco/fetch_her_ddpg.py (#753). The documented 50,000 steps do not count the 25,000
random ones before them; the budget here counts all.
"""

from __future__ import annotations

from rlbench.config.online import ActorCriticConfig, HindsightConfig, ReplayConfig, TD3PolicyConfig
from rlbench.config.run import Budget, Protocol, Spec
from rlbench.config.tasks import GoalTask

DOCUMENTED = ("FetchReach-v4",)
TASKS = {f"FetchReach-v{version}": "FetchReach-v4" for version in (4, 3, 2)}
"""The documented ids are names of the same row; ``envs/mujoco.py`` lists the differences."""

DDPG = ActorCriticConfig(
    policy=TD3PolicyConfig(),
    critics=1,
    actor_lr=1e-3,
    critic_lr=3e-3,
    batch=512,
    learning_starts=25_000,
    replay=ReplayConfig(capacity=100_000),
)
ALGORITHMS = {
    "ddpg": DDPG,
    "ddpg+her": DDPG.model_copy(update={"replay": ReplayConfig(capacity=100_000, hindsight=HindsightConfig(k=8))}),
}


def spec(algorithm: str, task: str, seed: int) -> Spec:
    """The documented settings of one cell of the table of goals."""
    return Spec(
        suite="goals",
        algorithm=algorithm,
        task=GoalTask(id=task),
        algo=ALGORITHMS[algorithm],
        protocol=Protocol(name="goals-v1", episodes=10, envs=10),
        budget=Budget(steps=75_000, epoch=5_000, segment=25_000),
        seed=seed,
    )
