"""The offline table with discrete actions: games played by a Q-learner, and toys.

Settings: thu-ml/tianshou examples/offline at v0.4.7 (Discrete IL, BCQ, CQL, CRR), whose advantage is not detached; here
it is. The documented recordings were never published: ours carry names that begin with ``rlb-``, and no score on them
is compared with one on those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlbench.config.canonical import Frozen
from rlbench.config.offline import (
    DiscreteBCConfig,
    DiscreteBCQConfig,
    DiscreteCQLConfig,
    DiscreteCRRConfig,
    DiscreteOfflineConfig,
)
from rlbench.config.online import DQNHeadConfig, MLPConfig, QRDQNHeadConfig
from rlbench.config.run import Budget, Protocol, Spec
from rlbench.config.tasks import AtariTask, EnvTask, OfflineTask, ToyTask

SIZES = ("1e6", "1e5", "1e4")
"""Transitions of the recordings."""

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
GAMES = {PONG: "pong", BREAKOUT: "breakout"}
TOYS = ("Catch", "CartPole-v1")
ENVS = (*GAMES, *TOYS)

RECORDINGS = {f"rlb-{game}-qrdqn-{size}": task for task, game in GAMES.items() for size in SIZES}
"""Our own recordings: of a QR-DQN with a random action in a fifth of its steps."""

HALF_SQUARED_ERROR = DQNHeadConfig(huber=1_000.0)
"""Half the squared error: no value errs by so much that the error would turn linear."""

ALGORITHMS: dict[str, DiscreteOfflineConfig] = {
    "il": DiscreteOfflineConfig(method=DiscreteBCConfig()),
    "bcq": DiscreteOfflineConfig(
        method=DiscreteBCQConfig(), head=DQNHeadConfig(huber=1.0), lr=6.25e-5, target_update_interval=8_000
    ),
    "cql": DiscreteOfflineConfig(method=DiscreteCQLConfig(), head=QRDQNHeadConfig()),
    "crr": DiscreteOfflineConfig(method=DiscreteCRRConfig(), head=HALF_SQUARED_ERROR),
}

CQL_WEIGHTS = {
    (PONG, "1e6"): 10.0,
    (PONG, "1e5"): 10.0,
    (PONG, "1e4"): 1.0,
    (BREAKOUT, "1e6"): 50.0,
    (BREAKOUT, "1e5"): 20.0,
    (BREAKOUT, "1e4"): 10.0,
}
"""The documented weight of CQL's gap, by game and size."""

EPOCHS = {PONG: 5, BREAKOUT: 12}
EPOCH = 10_000
EPSILON = {"bcq": 0.001, "cql": 0.001}
"""Probability of a random action in evaluation; the others are evaluated without one, CRR by samples."""


def spec(algorithm: str, task: str, seed: int, dataset: str) -> Spec:
    """The settings of one cell with discrete actions."""
    toy = task in TOYS
    return Spec(
        suite="offline",
        algorithm=algorithm,
        task=OfflineTask(id=task, world=_env_task(task), dataset=dataset),
        algo=_toy_algo(algorithm) if toy else _atari_algo(algorithm, task, dataset),
        protocol=Protocol(name="toy-v1", episodes=20, envs=20)
        if toy
        else Protocol(name="atari-nature-v4", episodes=10, envs=10, epsilon=EPSILON.get(algorithm, 0.0)),
        budget=Budget(steps=4_000 if toy else EPOCHS[task] * EPOCH, epoch=1_000 if toy else EPOCH, segment=100_000),
        seed=seed,
    )


def _env_task(task: str) -> EnvTask:
    if task in TOYS:
        return ToyTask(id=task, envs=1)
    return AtariTask(id=task, game=GAMES[task], envs=1)


def _atari_algo(algorithm: str, task: str, dataset: str) -> DiscreteOfflineConfig:
    """The row of the table, with the weight of CQL's gap for a recording of this size, or else of a million steps."""
    algo = ALGORITHMS[algorithm]
    if algorithm != "cql":
        return algo
    sizes = [word for word in dataset.split("-")[-2:] if word in SIZES]  # a set named by its path ends in its SHA-256
    weight = CQL_WEIGHTS[task, sizes[0] if sizes else "1e6"]
    return algo.model_copy(update={"method": DiscreteCQLConfig(conservative_weight=weight)})


TOY_CHANGES: Final[Mapping[str, Mapping[str, Frozen]]] = {
    "cql": {"method": DiscreteCQLConfig(conservative_weight=20.0), "head": QRDQNHeadConfig(n_quantiles=32)},
    "crr": {"method": DiscreteCRRConfig(greedy=True)},
}


def _toy_algo(algorithm: str) -> DiscreteOfflineConfig:
    """For toys, without documented settings: plain layers, a higher learning rate, and a short horizon."""
    return ALGORITHMS[algorithm].model_copy(
        update={
            "torso": MLPConfig(widths=(64,)),
            "hidden": 64,
            "lr": 1e-3,
            "batch": 64,
            "gamma": 0.9,
            "n_step": 3,
            "target_update_interval": 50,
            **TOY_CHANGES.get(algorithm, {}),
        }
    )
