"""How the tests of the adapters make one of each, by name, on the same task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rlbench.envs import chain
from rlbench.envs.ale import AleVector
from rlbench.envs.base import VectorEnv
from rlbench.envs.envpool import EnvPoolVector
from rlbench.envs.gymnasium import GymnasiumVector, made
from rlbench.envs.toy import Catch
from rlbench.spec.task import AtariTask

Make = Callable[..., VectorEnv]


def atari(adapter: str, game: str, *, seeds: Sequence[int], training: bool, threads: int = 2, **task: Any) -> VectorEnv:
    settings = AtariTask(id=game, game=game, **task)
    match adapter:
        case "ale":
            return AleVector(task=settings, seeds=seeds, training=training)
        case "envpool":
            return EnvPoolVector(task=settings, seeds=seeds, training=training, threads=threads)
        case _:
            factory = chain.documented(settings, training=training)
            return GymnasiumVector(name=game, factory=factory, seeds=seeds, versions=chain.versions())


def any_kind(kind: str, *, seeds: Sequence[int]) -> VectorEnv:
    """One of each; all of them end an episode within 100 random steps."""
    match kind:
        case "catch":
            return Catch(seeds=seeds)
        case "cartpole":
            return GymnasiumVector(name="CartPole-v1", factory=made("CartPole-v1"), seeds=seeds)
        case _:
            return atari(kind, "breakout", seeds=seeds, training=True)


@pytest.fixture(scope="session", name="make_atari")
def make_atari_fixture() -> Make:
    return atari


@pytest.fixture(scope="session", name="make_any")
def make_any_fixture() -> Make:
    return any_kind
