"""The toy table: tasks of seconds to minutes with a known best possible score."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from rlbench.config.canonical import Frozen, fields
from rlbench.config.online import (
    ActorCriticConfig,
    C51HeadConfig,
    CuriosityConfig,
    DiscreteSACConfig,
    FQFHeadConfig,
    IQNHeadConfig,
    LinearSchedule,
    MLPConfig,
    PolicyGradientConfig,
    PPOConfig,
    PriorityConfig,
    QLearningConfig,
    QRDQNHeadConfig,
    ReinforceConfig,
    ReplayConfig,
    SACPolicyConfig,
    TD3PolicyConfig,
    TRPOConfig,
)
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Budget, Protocol, Spec
from rlbench.config.tasks import ToyTask

OPTIMUM = {"Catch": 1.0, "CartPole-v1": 500.0, "Pendulum-v1": -150.0, "Doors": 1.0}
"""The mean return of the best policy, by task."""

DOCUMENTED = tuple(OPTIMUM)
TASKS = {name: name for name in DOCUMENTED}


class ToySettings(NamedTuple):
    """Settings of a toy task with discrete actions, for replay and for rollouts."""

    episodes: int  # of an evaluation, side by side
    support: tuple[float, float]  # the returns that a categorical head must reach
    n_step: int  # rewards summed before bootstrapping
    replay_budget: Budget
    replay_stop: float | None  # the run ends once the mean return of an evaluation reaches this
    rollout_budget: Budget
    rollout_stop: float


TOY_SETTINGS = {
    "Catch": ToySettings(
        episodes=64,
        support=(-2.0, 2.0),  # it pays ±1
        n_step=1,
        replay_budget=Budget(steps=24_000, epoch=4_000, segment=20_000),
        replay_stop=None,
        rollout_budget=Budget(steps=100_000, epoch=5_000, segment=20_000),
        rollout_stop=0.95,
    ),
    "CartPole-v1": ToySettings(
        episodes=20,
        support=(0.0, 100.0),  # at most 1 / (1 − γ)
        n_step=3,  # a fall is felt three steps earlier, which halves the steps to a solution
        replay_budget=Budget(steps=100_000, epoch=5_000, segment=20_000),
        replay_stop=475.0,
        rollout_budget=Budget(steps=200_000, epoch=10_000, segment=20_000),
        rollout_stop=475.0,
    ),
}

PartT = TypeVar("PartT", bound=Frozen)


def _with(part: PartT, **changes: object) -> PartT:
    return part.model_copy(update=changes)


TOY_DQN = QLearningConfig(
    torso=MLPConfig(widths=(64,)),
    hidden=64,
    lr=1e-3,
    target_update_interval=100,
    learning_starts=1_000,
    updates_per_step=0.25,
    epsilon=LinearSchedule(start=1.0, end=0.05, steps=10_000),
    replay=ReplayConfig(capacity=20_000),
)

TOY_SAC = ActorCriticConfig(
    policy=SACPolicyConfig(alpha=0.2, alpha_lr=1e-3),
    widths=(64, 64),
    batch=128,
    learning_starts=1_000,
    replay=ReplayConfig(capacity=20_000),
)
DISCRETE: dict[str, QLearningConfig] = {
    "dqn": TOY_DQN,
    "c51": _with(TOY_DQN, head=C51HeadConfig()),
    "qrdqn": _with(TOY_DQN, head=QRDQNHeadConfig(n_quantiles=32)),
    "iqn": _with(TOY_DQN, head=IQNHeadConfig()),
    "fqf": _with(TOY_DQN, head=FQFHeadConfig()),
    "rainbow": _with(
        TOY_DQN,
        head=C51HeadConfig(),
        dueling=True,
        noisy=0.1,
        replay=ReplayConfig(
            capacity=20_000, priority=PriorityConfig(beta=LinearSchedule(start=0.4, end=1.0, steps=20_000))
        ),
    ),
}
CONTINUOUS: dict[str, ActorCriticConfig] = {
    "ddpg": _with(TOY_SAC, policy=TD3PolicyConfig(), critics=1),
    "td3": _with(TOY_SAC, policy=TD3PolicyConfig(smoothing=0.2), delay=2),
    "sac": TOY_SAC,
    "redq": _with(TOY_SAC, critics=10, redq_subset=2, updates_per_step=5.0, delay=5),
}
GREEDY = PolicyGradientConfig(gamma=0.98, lr=2e-3, normalize_obs=False, greedy=True)
"""Evaluated by the policy's mode; boards are bytes and need no normalization."""

ON_POLICY = {
    "reinforce": _with(GREEDY, method=ReinforceConfig(), lr=5e-3, rollout_length=128),
    "a2c": _with(
        GREEDY,
        method=PPOConfig(normalize=True, max_grad_norm=None),
        lr=5e-3,
        rollout_length=128,
        gamma=0.99,
        gae_lambda=1.0,
    ),  # whole returns: with λ = 0.95, γ = 0.98 and rollouts of 16 or 64 rows one of two seeds did not solve the task
    "ppo": _with(
        GREEDY, method=PPOConfig(clip=0.2, epochs=10, minibatches=4, recompute=True, normalize=True), rollout_length=64
    ),
    "npg": _with(GREEDY, method=TRPOConfig(), rollout_length=64),
    "trpo": _with(GREEDY, method=TRPOConfig(max_kl=0.01), rollout_length=64),
}
DISCRETE_ACTOR_CRITIC = DiscreteSACConfig(
    torso=MLPConfig(widths=(64,)),
    hidden=64,
    actor_lr=1e-3,
    critic_lr=1e-3,
    tau=0.02,
    updates_per_step=0.25,
    learning_starts=1_000,
    replay=ReplayConfig(capacity=20_000),
)
"""``sac`` with discrete actions."""

DOORS_PPO = PolicyGradientConfig(
    method=PPOConfig(clip=0.2, epochs=4, minibatches=2, entropy=0.03, normalize=True),
    torso=MLPConfig(widths=(64,), activation="tanh"),
    lr=1e-3,
    rollout_length=16,
    gamma=0.95,
    scale_returns=False,
    normalize_obs=False,
    greedy=True,
)
DOORS_ICM = CuriosityConfig(torso=MLPConfig(widths=(64,)), hidden=64, lr=3e-3, reward_scale=0.2)
SPARSE = {"ppo": DOORS_PPO, "ppo+icm": _with(DOORS_PPO, curiosity=DOORS_ICM)}
"""Algorithms of Doors: without curiosity, which never finds a reward there, and with it."""

ALGORITHMS: dict[str, QLearningConfig | ActorCriticConfig | DiscreteSACConfig | PolicyGradientConfig] = {
    **DISCRETE,
    **CONTINUOUS,
    **ON_POLICY,
    "ppo+icm": SPARSE["ppo+icm"],
}
IMPOSSIBLE = frozenset(
    {(name, "Pendulum-v1") for name in ALGORITHMS if name not in CONTINUOUS}
    | {(name, "Doors") for name in ALGORITHMS if name not in SPARSE}
    | {("ppo+icm", task) for task in TOY_SETTINGS}
    | {(name, task) for name in CONTINUOUS for task in TOY_SETTINGS if name != "sac"}
)
"""Pairs without a cell: discrete and continuous actions do not mix; Doors is for PPO and PPO with curiosity."""


def spec(algorithm: str, task: str, seed: int) -> Spec:
    """The settings of one cell of the toy table."""
    env_task, changes = ToyTask(id=task), list[str]()
    algo: QLearningConfig | ActorCriticConfig | DiscreteSACConfig | PolicyGradientConfig
    if task == "Doors":
        algo, episodes, stop = SPARSE[algorithm], 4, None
        budget = Budget(steps=40_000, epoch=4_000, segment=20_000)
    elif task == "Pendulum-v1":
        env_task, algo, episodes, stop = ToyTask(id=task, envs=1), CONTINUOUS[algorithm], 20, OPTIMUM[task]
        budget = Budget(steps=5_000 if algorithm == "redq" else 15_000, epoch=1_000, segment=5_000)
    else:
        toy, algo = TOY_SETTINGS[task], DISCRETE_ACTOR_CRITIC if algorithm == "sac" else ALGORITHMS[algorithm]
        episodes, stop, budget = toy.episodes, toy.replay_stop, toy.replay_budget
        if algo.learns_from == "rollouts":
            stop, budget = toy.rollout_stop, toy.rollout_budget
        else:
            changes.append(f"algo.replay.n_step={toy.n_step}")
        if any(path == "head.v_min" for path, _ in fields(algo)):
            changes += [f"algo.head.v_min={toy.support[0]}", f"algo.head.v_max={toy.support[1]}"]
    cell = Spec(
        suite="toy",
        algorithm=algorithm,
        task=env_task,
        algo=algo,
        protocol=Protocol(name="toy-v1", episodes=episodes, envs=episodes, stop=stop),
        budget=budget,
        seed=seed,
    )
    return apply_settings(cell, [parse(change) for change in changes])
