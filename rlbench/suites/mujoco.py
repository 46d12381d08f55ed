"""The MuJoCo table: nine tasks, and the documented settings of each algorithm.

Settings: thu-ml/tianshou examples/mujoco at e605bdea (DDPG, TD3, SAC) and v0.4.9 (REDQ). The documents stepped ``-v2``
and ``-v3`` tasks; here ``-v4`` is stepped, the same physics on the maintained engine, and the record says so.
"""

from __future__ import annotations

from rlbench.config.online import (
    ActorCriticConfig,
    MLPConfig,
    PolicyGradientConfig,
    PPOConfig,
    ReinforceConfig,
    SACPolicyConfig,
    TD3PolicyConfig,
    TRPOConfig,
)
from rlbench.config.run import Budget, Protocol, Spec
from rlbench.config.tasks import MujocoTask

ROBOTS = (
    "Ant", "HalfCheetah", "Hopper", "Walker2d", "Swimmer", "Humanoid", "Reacher", "InvertedPendulum",
    "InvertedDoublePendulum",
)  # fmt: skip
DOCUMENTED = tuple(f"{robot}-v4" for robot in ROBOTS)
TASKS = {f"{robot}-v{version}": f"{robot}-v4" for version in (4, 3, 2) for robot in ROBOTS}
"""The documented ids are names of the same row."""

OFF_POLICY = {
    "ddpg": ActorCriticConfig(policy=TD3PolicyConfig(), critics=1, learning_starts=25_000),
    "td3": ActorCriticConfig(
        policy=TD3PolicyConfig(smoothing=0.2), delay=2, actor_lr=3e-4, critic_lr=3e-4, learning_starts=25_000
    ),
    "sac": ActorCriticConfig(policy=SACPolicyConfig()),
    "redq": ActorCriticConfig(policy=SACPolicyConfig(), critics=10, redq_subset=2, updates_per_step=20, delay=20),
}

OTHER_BOUNDS = ("Humanoid-v4", "InvertedPendulum-v4")
"""Tasks with action bounds other than ±1: ±0.4 and ±3."""

ENVIRONMENT_UNITS = {(algorithm, task) for algorithm in ("ddpg", "td3", "sac") for task in OTHER_BOUNDS}
"""Cells whose documented critics and densities are of actions in the environment's units.

At thu-ml/tianshou e605bdea policies give actions between the bounds, which are stored as they are, critics see those
(tianshou/policy/modelfree/ddpg.py, td3.py, sac.py), and SAC's density is theirs; by v0.4.9, REDQ's, [−1, 1] is mapped.
"""

LR_DECAY_STEPS = 3_072_000
"""Agent steps over which the documented learning rate falls: 100 epochs of 30,000, rounded up to whole rollouts."""

REINFORCE_DECAY = 10_260_480
"""Agent steps of the schedule of REINFORCE, whose documented runs had 334 epochs."""

EPOCH = 30_720
"""Steps between two evaluations of an on-policy algorithm."""

TANH = MLPConfig(widths=(64, 64), activation="tanh")
PPO = PPOConfig(clip=0.2, epochs=10, minibatches=32, recompute=True, value=0.25, entropy=0.0)

ON_POLICY = {
    "reinforce": PolicyGradientConfig(
        method=ReinforceConfig(), torso=TANH, lr=1e-3, lr_decay_steps=REINFORCE_DECAY, rollout_length=32, bound="tanh"
    ),
    "a2c": PolicyGradientConfig(
        method=PPOConfig(),
        torso=TANH,
        optimizer="rmsprop",
        epsilon=1e-5,
        lr=7e-4,
        lr_decay_steps=3_000_000,
        rollout_length=5,
    ),
    "ppo": PolicyGradientConfig(method=PPO, torso=TANH, lr=3e-4, lr_decay_steps=LR_DECAY_STEPS, rollout_length=32),
    "npg": PolicyGradientConfig(
        method=TRPOConfig(), torso=TANH, lr=1e-3, lr_decay_steps=LR_DECAY_STEPS, rollout_length=64
    ),
    "trpo": PolicyGradientConfig(
        method=TRPOConfig(max_kl=0.01), torso=TANH, lr=1e-3, lr_decay_steps=LR_DECAY_STEPS, rollout_length=64
    ),
}
NUM_ENVS = {"reinforce": 64, "a2c": 16, "ppo": 64, "npg": 16, "trpo": 16}
ALGORITHMS: dict[str, ActorCriticConfig | PolicyGradientConfig] = {**OFF_POLICY, **ON_POLICY}


def spec(algorithm: str, task: str, seed: int) -> Spec:
    """The documented settings of one cell of the MuJoCo table."""
    on_policy = algorithm in ON_POLICY
    algo = ALGORITHMS[algorithm]
    if (algorithm, task) in ENVIRONMENT_UNITS:
        algo = algo.model_copy(update={"action_units": "environment"})
    epoch = EPOCH if on_policy and algorithm != "a2c" else 30_000 if on_policy else 5_000
    return Spec(
        suite="mujoco",
        algorithm=algorithm,
        task=MujocoTask(id=task, envs=NUM_ENVS.get(algorithm, 1)),
        algo=algo,
        protocol=Protocol(name="mujoco-v4", episodes=10, envs=10),
        # 64 episodes at once must not be cut: these environments save their state, so resuming is exact anywhere
        budget=Budget(steps=1_000_000, epoch=epoch, segment=1_000_000 if on_policy else 100_000),
        seed=seed,
    )
