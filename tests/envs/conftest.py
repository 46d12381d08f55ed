"""Factories of every adapter by name, on the same task."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from rlbench.config.tasks import AtariTask
from rlbench.envs import atari_wrappers
from rlbench.envs.ale import AleVector
from rlbench.envs.base import Box, Discrete, VectorEnv
from rlbench.envs.envpool import EnvPoolVector
from rlbench.envs.envpool_async import EnvPoolMujoco
from rlbench.envs.fetch import FetchVector
from rlbench.envs.gymnasium import ClassicVector, GymnasiumVector
from rlbench.envs.mujoco import MujocoVector
from rlbench.envs.toy import Catch
from tests.envs.registered import make

Make = Callable[..., VectorEnv]


def random_rows(actions: Discrete | Box, *, seed: int, size: tuple[int, ...]) -> np.ndarray:
    """Random actions of any kind, as they are sent."""
    generator = np.random.default_rng(seed)
    if isinstance(actions, Discrete):
        return generator.integers(actions.n, size=size)
    return generator.uniform(-1, 1, (*size, len(actions.low))).astype(np.float32)


def atari(adapter: str, game: str, *, seeds: Sequence[int], training: bool, threads: int = 2, **task: Any) -> VectorEnv:
    settings = AtariTask(id=game, game=game, **task)
    match adapter:
        case "ale":
            return AleVector(task=settings, seeds=seeds, training=training)
        case "envpool":
            return EnvPoolVector(task=settings, seeds=seeds, training=training, threads=threads)
        case _:
            factory = atari_wrappers.reference_env(settings, training=training)
            return GymnasiumVector(name=game, factory=factory, seeds=seeds, versions=atari_wrappers.versions())


KINDS: dict[str, Make] = {  # all of them end an episode within 100 random steps
    "catch": Catch,
    "cartpole": partial(GymnasiumVector, name="CartPole-v1", factory=make("CartPole-v1")),
    "pendulum": partial(ClassicVector, task="Pendulum-v1", limit=30),
    "hopper": partial(MujocoVector, task="Hopper-v4"),
    "cheetah": partial(MujocoVector, task="HalfCheetah-v4", limit=30),
    "envpool-hopper": partial(EnvPoolMujoco, task="Hopper-v4", threads=2),
    "fetch": partial(FetchVector, task="FetchReach-v4", limit=30),
    **{adapter: partial(atari, adapter, "breakout", training=True) for adapter in ("ale", "envpool", "gymnasium")},
}


def any_kind(kind: str, *, seeds: Sequence[int], **wish: Any) -> VectorEnv:
    return KINDS[kind](seeds=seeds, **wish)


@pytest.fixture(scope="session", name="make_atari")
def make_atari_fixture() -> Make:
    return atari


@pytest.fixture(scope="session", name="make_any")
def make_any_fixture() -> Make:
    return any_kind


@pytest.fixture(scope="session", name="draw")
def draw_fixture() -> Callable[..., np.ndarray]:
    return random_rows
