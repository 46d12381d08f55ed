"""Evaluation: full episodes, equally many in every env, unclipped rewards."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rlbench.collectors.evaluate import Evaluation
from rlbench.collectors.explore import EpsilonGreedy
from rlbench.envs.base import Discrete, EnvInfo, Step
from tests.rings import ring_of


class Lengths:
    """Env n's games take ``lengths[n]`` live steps and pay n + 1 a step; step 4 loses a life. Env 1 truncates."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = np.array(lengths)
        self.at, self.final = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.bool_)
        self.actions: set[int] = set()
        self.closed = False

    @property
    def info(self) -> EnvInfo:
        return EnvInfo(len(self.lengths), (), np.dtype(np.float32), Discrete(2), ())

    def reset(self) -> NDArray[np.float32]:
        return np.zeros(len(self.lengths), np.float32)

    def send(self, action: NDArray[np.generic]) -> None:
        assert action.shape == self.lengths.shape
        self.actions |= set(action.tolist())

    def recv(self) -> Step:
        env_ids = np.arange(len(self.lengths))
        self.at = np.where(self.final, self.at % self.lengths, self.at + 1)
        over = ~self.final & (self.at == self.lengths)
        points = np.where(self.final, 0.0, env_ids + 1.0)
        self.final = over | (~self.final & (self.at == 4))
        truncates, zeros = env_ids == 1, np.zeros(len(env_ids), np.float32)
        return Step(zeros, zeros, self.final & ~truncates, self.final & truncates, env_ids, points, over)

    def close(self) -> None:
        self.closed = True


class Calls:
    def __init__(self) -> None:
        self.roles: set[str] = set()

    def act(self, obs: torch.Tensor, role: str) -> torch.Tensor:
        self.roles.add(role)
        return torch.zeros(len(obs), dtype=torch.int64)


def evaluation(lengths: Sequence[int], episodes: int) -> tuple[Evaluation, Lengths, Calls]:
    envs, actor = Lengths(lengths), Calls()
    num_envs = len(lengths)
    explorer = EpsilonGreedy(actions=2, generator=torch.Generator())
    evaluator = Evaluation(
        actor=actor,
        buffer=ring_of(len(lengths), 3),
        explorer=explorer,
        envs=envs,
        seeds=tuple(range(50, 50 + num_envs)),
        episodes=episodes,
        to_env_action=lambda action: 1 - action,
    )
    return evaluator, envs, actor


def test_every_env_plays_its_share_of_episodes() -> None:
    evaluator, envs, actor = evaluation([1, 3, 10], episodes=6)
    ended = list(evaluator)
    result = evaluator.result()
    assert result.returns == (1.0, 1.0, 6.0, 6.0, 30.0, 30.0)
    assert result.lengths == (1, 1, 3, 3, 10, 10)
    assert result.seeds == (50, 50, 51, 51, 52, 52)
    assert result.mean == pytest.approx(74 / 6)
    assert ended[-1] == 6
    assert len(ended) == 23  # two games of ten steps and a lost life, and the idle step between them
    assert envs.closed
    assert envs.actions == {1}  # as bounded
    assert actor.roles == {"eval"}
