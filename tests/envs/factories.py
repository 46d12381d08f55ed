"""Factories of every adapter by name, on the same task; random actions, and the answers to them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from rlbench.config.tasks import AtariTask
from rlbench.envs import atari_wrappers
from rlbench.envs.ale import AleVector
from rlbench.envs.base import AsyncVectorEnv, Box, Discrete, Step, VectorEnv
from rlbench.envs.envpool import EnvPoolMujoco, EnvPoolVector
from rlbench.envs.gymnasium import ClassicVector, GymnasiumVector
from rlbench.envs.mujoco import FetchVector, MujocoVector
from rlbench.envs.toy import Catch

Make = Callable[..., VectorEnv]


def make(name: str) -> Callable[[], gymnasium.Env[Any, Any]]:
    """One env of Gymnasium's registry with its wrappers."""
    return lambda: gymnasium.make(name, disable_env_checker=True)


def answer_to(env: VectorEnv | AsyncVectorEnv, action: np.ndarray, *ready: np.ndarray) -> Step:
    """One step of all envs, or of those that are ready."""
    env.send(action, *ready)
    return env.recv()


def draw(actions: Discrete | Box, *, seed: int, size: tuple[int, ...]) -> np.ndarray:
    """Random actions of any kind, as they are sent."""
    generator = np.random.default_rng(seed)
    if isinstance(actions, Discrete):
        return generator.integers(actions.n, size=size)
    return generator.uniform(-1, 1, (*size, len(actions.low))).astype(np.float32)


def make_atari(
    adapter: str, game: str, *, seeds: Sequence[int], training: bool, threads: int = 2, **task: Any
) -> VectorEnv:
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
    **{adapter: partial(make_atari, adapter, "breakout", training=True) for adapter in ("ale", "envpool", "gymnasium")},
}


def make_any(kind: str, *, seeds: Sequence[int], **wish: Any) -> VectorEnv:
    return KINDS[kind](seeds=seeds, **wish)
