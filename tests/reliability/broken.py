"""``rlbench`` with a CartPole that breaks: ``python -m tests.reliability.broken WAY LANE STEP ARGUMENTS…``.

The ways are those of real environments: to raise, to die with the whole process, to hang where Python can be
interrupted and where it cannot, to answer with what was never promised.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlbench.cli.app import main
from rlbench.envs import gymnasium as gymnasium_envs

SMALL = (
    "budget.steps=400", "budget.epoch=200", "budget.segment=200", "algo.learning_starts=100", "algo.batch=8",
    "algo.replay.capacity=400", "protocol.episodes=2", "protocol.envs=2", "task.envs=2",
)  # fmt: skip
SETS = [word for change in SMALL for word in ("--set", change)]


def words(results: object, *more: str, algo: str = "dqn", task: str = "CartPole-v1") -> list[str]:
    """The command line of a run of seconds."""
    return ["run", "toy", algo, "--task", task, "--device", "cpu", "--results", str(results), *SETS, *more]


def deadlock() -> None:
    """Wait for what never comes, in C, where no Python handler is heard."""
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def raising(cause: BaseException) -> Any:
    """As a statement, where an expression is due."""
    raise cause


WAYS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "raise": lambda *_: raising(ValueError("the joint is loose")),
    "exit": lambda *_: raising(SystemExit(3)),
    "generator exit": lambda *_: raising(GeneratorExit()),
    "memory": lambda *_: raising(MemoryError("std::bad_alloc")),
    "abort": lambda *_: raising(AssertionError(os.abort())),
    "sleep": lambda *_: raising(AssertionError(time.sleep(3600))),
    "deadlock": lambda *_: raising(AssertionError(deadlock())),
    "long": lambda obs, reward: (np.r_[obs, obs], reward),
    "short": lambda obs, reward: (obs[:1], reward),
    "integers": lambda obs, reward: (obs.astype(np.int64), reward),
    "nan": lambda obs, reward: (obs * np.float32(np.nan), reward),
    "infinite": lambda obs, reward: (obs + np.float32(np.inf), reward),
    "reward": lambda obs, _: (obs, float("nan")),
}
"""Corruptions of an observation and its reward."""


class Breaking(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Breaks in its ``at``-th step."""

    def __init__(self, env: Any, way: str, at: int) -> None:
        super().__init__(env)
        self.way, self.at, self.steps = way, at, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, reward, *rest = self.env.step(action)
        if self.steps == self.at:
            obs, reward = WAYS[self.way](obs, reward)
        return obs, reward, *rest


def breaking(way: str, env_number: int, at: int, only: Callable[[int], bool] = lambda _: True) -> Callable[..., Any]:
    """Replacement of ``registered_task``: in the vectors whose number ``only`` accepts, one env breaks."""
    registered_task, count = gymnasium_envs.registered_task, [0]

    def factory(task: str, *, package: str) -> Any:
        plain, limit = registered_task(task, package=package)
        vector, envs_made = count[0], [0]
        count[0] += 1

        def next_env() -> Any:
            number, envs_made[0] = envs_made[0], envs_made[0] + 1
            return Breaking(plain(), way, at) if number == env_number and only(vector) else plain()

        return next_env, limit

    return factory


def training(vector: int) -> bool:
    """Two vectors only describe their spaces, one is for evaluation; the next one is trained in."""
    return vector == 3


if __name__ == "__main__":
    way, env_number, at, *rest = sys.argv[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gymnasium_envs, "registered_task", breaking(way, int(env_number), int(at), training))
        sys.exit(main(rest))
