"""Collecting by episodes, where lanes differ in how long their games are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rlbench.buffers.ring import Column
from rlbench.buffers.samplers import Uniform
from rlbench.buffers.staggered import Staggered
from rlbench.collectors.asynchronous import AsyncCollector
from rlbench.collectors.episodes import Quota, gather
from rlbench.collectors.explore import EpsilonGreedy
from rlbench.collectors.sync import Collector
from rlbench.envs.base import Discrete, EnvInfo, Step


class Timed:
    """Lane n's games take as many live steps as its iterator says next, and pay n + 1 for each."""

    def __init__(self, lengths: Sequence[Iterator[int]], asked: Callable[[int], list[int]] | None = None) -> None:
        self.lengths, self.asked, self.turn = lengths, asked, 0
        self.left = np.array([next(length) for length in lengths])
        self.dead = np.zeros(len(lengths), np.bool_)

    @property
    def info(self) -> EnvInfo:
        return EnvInfo(len(self.lengths), (), np.dtype(np.float32), Discrete(2), ())

    def reset(self) -> NDArray[np.float32]:
        return np.zeros(len(self.lengths), np.float32)

    def send(self, action: NDArray[np.generic], lane: NDArray[np.int64] | None = None) -> None:
        assert len(action) == len(self.lengths) or lane is not None

    def recv(self) -> Step:
        self.turn += 1
        lane = np.array(range(len(self.lengths)) if self.asked is None else self.asked(self.turn))
        live = ~self.dead[lane]
        self.left[lane] -= live
        over = live & (self.left[lane] == 0)
        self.dead[lane] = over
        for ended in lane[over]:
            self.left[ended] = next(self.lengths[ended])
        frames, none = np.zeros(len(lane), np.float32), np.zeros_like(over)
        return Step(frames, frames, over, none, lane, np.where(live, lane + 1.0, 0.0), over)

    def close(self) -> None:
        pass


class Idle:
    """Does 0."""

    def act(self, obs: torch.Tensor, role: str) -> torch.Tensor:
        return torch.zeros(len(obs), dtype=torch.int64)


def collector(
    kind: type[Collector | AsyncCollector], envs: Timed, rows: int = 200
) -> tuple[Collector | AsyncCollector, Staggered]:
    lanes = len(envs.lengths)
    buffer = Staggered(
        capacity=rows * lanes,
        lanes=lanes,
        obs=Column((), torch.float32),
        action=Column((), torch.int64),
        horizon=1,
        gamma=1.0,
        stack=1,
        sampler=Uniform(torch.Generator()),
        device=torch.device("cpu"),
    )
    explorer = EpsilonGreedy(actions=2, generator=torch.Generator())
    made = kind(actor=Idle(), recorder=buffer, explorer=explorer, open_envs=lambda _: envs, lanes=lanes)
    made.open(0)
    return made, buffer


def test_every_lane_gives_as_many_games_however_long_they_are() -> None:
    """Tianshou gives lengths 1 1 1 1 3 3 5 10 here, mean 3.1 (its issue #1042); the lanes' mean is 4.75."""
    made, buffer = collector(Collector, Timed([repeat(length) for length in (1, 3, 5, 10)]))
    found = gather(made, 8)
    assert found.lengths == (1, 1, 3, 3, 5, 5, 10, 10)
    assert found.returns == (1, 1, 6, 6, 15, 15, 40, 40)
    assert sum(found.lengths) / 8 == 4.75
    assert int(buffer.size[0]) == 21  # two games of the longest lane and the idle row between them
    assert found.steps == int((~buffer.dead[:21]).sum()) == 11 + 16 + 18 + 20  # all of it is stored
    assert found.surplus == (11 - 2) + (5 - 2) + (3 - 2)


def lengths_of(seed: int) -> Iterator[int]:
    """Mostly 1, one in ten 31: mean 4, standard deviation 9."""
    rng = np.random.default_rng(seed)
    while True:
        yield 31 if rng.random() < 0.1 else 1


@pytest.mark.parametrize("kind", [Collector, AsyncCollector])
def test_the_mean_length_is_not_biased_over_many_quotas(kind: type[Collector | AsyncCollector]) -> None:
    """Nor by games that are in progress where one quota ends and the next begins, which are long ones rather."""
    asked = (lambda turn: [0, 1, 2, 3] if turn % 3 else [0, 1]) if kind is AsyncCollector else None
    made, _ = collector(kind, Timed([lengths_of(seed) for seed in range(4)], asked), rows=50)
    lengths = np.concatenate([gather(made, 4).lengths for _ in range(250)])
    assert abs(lengths.mean() - 4) < 3 * 9 / np.sqrt(len(lengths))


def test_a_game_that_is_running_at_the_start_does_not_count() -> None:
    made, _ = collector(Collector, Timed([iter([4, 7, 9]), iter([2, 3, 5, 6, 7, 8, 9])]))
    made.step()
    made.step()  # lane 0 is in its first game, lane 1 at the end of its own: its next one counts
    found = gather(made, 2)
    assert found.lengths == (7, 3)
    assert found.surplus == 1 + 1  # the rest of lane 0's first, and a second one of lane 1
    assert found.steps == 2 + 7 + 3 + 5


@pytest.mark.parametrize("episodes", [0, 3, -2])
def test_shares_that_are_not_equal_are_refused(episodes: int) -> None:
    with pytest.raises(ValueError, match="2 lanes cannot play"):
        Quota(running=np.zeros(2, np.bool_), episodes=episodes)
