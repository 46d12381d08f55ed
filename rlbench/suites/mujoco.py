"""The MuJoCo table: nine tasks, and the documented settings of each algorithm.

Settings: thu-ml/tianshou examples/mujoco at e605bdea (DDPG, TD3, SAC) and v0.4.9 (REDQ). The documents stepped ``-v2``
and ``-v3`` tasks; here ``-v4`` is stepped, the same physics on the maintained engine, and the record says so.
"""

from __future__ import annotations

from rlbench.spec.algo import ActorCritic, Deterministic, Soft
from rlbench.spec.run import Budget, Protocol, Spec
from rlbench.spec.task import MujocoTask

BODIES = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Walker2d",
    "Swimmer",
    "Humanoid",
    "Reacher",
    "InvertedPendulum",
    "InvertedDoublePendulum",
)
DOCUMENTED = tuple(f"{body}-v4" for body in BODIES)
TASKS = {f"{body}-v{version}": f"{body}-v4" for version in (4, 3, 2) for body in BODIES}
"""The documented ids are names of the same row."""

ALGORITHMS = {
    "ddpg": ActorCritic(policy=Deterministic(), critics=1, warmup=25_000),
    "td3": ActorCritic(policy=Deterministic(smoothing=0.2), delay=2, actor_lr=3e-4, critic_lr=3e-4, warmup=25_000),
    "sac": ActorCritic(policy=Soft()),
    "redq": ActorCritic(policy=Soft(), critics=10, subset=2, updates_per_step=20, delay=20),
}


def spec(algorithm: str, task: str, seed: int) -> Spec:
    """The documented settings of one cell of the MuJoCo table."""
    return Spec(
        suite="mujoco",
        algorithm=algorithm,
        task=MujocoTask(id=task),
        algo=ALGORITHMS[algorithm],
        protocol=Protocol(name="mujoco-v4", episodes=10, envs=10),
        budget=Budget(steps=1_000_000, epoch=5_000, segment=100_000),
        seed=seed,
    )
