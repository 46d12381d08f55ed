"""Quotas of episodes in envs with different episode lengths."""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import numpy as np
import pytest

from rlbench.collectors.episode_stats import EpisodeQuota
from rlbench.envs.base import Step


class Timed:
    """Env n's games take as many live steps as its iterator says next, and pay n + 1 for each."""

    def __init__(self, lengths: Sequence[Iterator[int]], choose: Callable[[int], list[int]] | None = None) -> None:
        self.lengths, self.choose, self.turn = lengths, choose, 0
        self.remaining = np.array([next(length) for length in lengths])
        self.final = self.live = np.zeros(len(lengths), np.bool_)
        self.length = np.zeros(len(lengths), np.int64)  # live steps of the games that are running

    def recv(self) -> Step:
        self.turn += 1
        env_id = np.array(range(len(self.lengths)) if self.choose is None else self.choose(self.turn))
        live = self.live = ~self.final[env_id]
        self.remaining[env_id] -= live
        over = live & (self.remaining[env_id] == 0)
        self.length[env_id] = np.where(over, 0, self.length[env_id] + live)
        self.final[env_id] = over
        for ended in env_id[over]:
            self.remaining[ended] = next(self.lengths[ended])
        frames, none = np.zeros(len(env_id), np.float32), np.zeros_like(over)
        return Step(frames, frames, over, none, env_id, np.where(live, env_id + 1.0, 0.0), over)


def play(envs: Timed, episodes: int) -> tuple[EpisodeQuota, int]:
    """A quota that was met, and the live steps that took."""
    num_envs, steps = len(envs.lengths), 0
    quota = EpisodeQuota(running=envs.length > 0, episodes=episodes)
    while not quota.is_complete:
        step, live = envs.recv(), envs.live
        score, over, alive = np.zeros(num_envs), np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        score[step.env_id], over[step.env_id], alive[step.env_id] = step.score, step.over, live
        quota.add(score, alive, over)
        steps += int(live.sum())
    return quota, steps


def lengths(quota: EpisodeQuota) -> list[int]:
    return [length for env_id in quota.episodes for _, length in env_id]


def test_every_env_contributes_equally_many_episodes() -> None:
    """Tianshou gives lengths 1 1 1 1 3 3 5 10 here, mean 3.1 (its issue #1042); the envs' mean is 4.75."""
    quota, steps = play(Timed([repeat(length) for length in (1, 3, 5, 10)]), 8)
    assert lengths(quota) == [1, 1, 3, 3, 5, 5, 10, 10]
    assert [score for env_id in quota.episodes for score, _ in env_id] == [1, 1, 6, 6, 15, 15, 40, 40]
    assert steps == 11 + 16 + 18 + 20


def lengths_of(seed: int) -> Iterator[int]:
    """Mostly 1, one in ten 31: mean 4, standard deviation 9."""
    rng = np.random.default_rng(seed)
    while True:
        yield 31 if rng.random() < 0.1 else 1


@pytest.mark.parametrize("choose", [None, lambda turn: [0, 1, 2, 3] if turn % 3 else [0, 1]])
def test_the_mean_length_is_not_biased_over_many_quotas(choose: Callable[[int], list[int]] | None) -> None:
    """Nor by games that are in progress where one quota ends and the next begins, which are long ones rather."""
    envs = Timed([lengths_of(seed) for seed in range(4)], choose)
    every = np.concatenate([lengths(play(envs, 4)[0]) for _ in range(250)])
    assert abs(every.mean() - 4) < 3 * 9 / np.sqrt(len(every))


def test_episode_running_at_the_start_does_not_count() -> None:
    envs = Timed([iter([4, 7, 9]), iter([2, 3, 5, 6, 7, 8, 9])])
    envs.recv()
    envs.recv()  # env 0 is in its first game, env 1 at the end of its own: its next one counts
    quota, steps = play(envs, 2)
    assert lengths(quota) == [7, 3]
    assert steps == 2 + 7 + 3 + 5


@pytest.mark.parametrize("episodes", [0, 3, -2])
def test_unequal_shares_are_refused(episodes: int) -> None:
    with pytest.raises(ValueError, match="2 envs cannot play"):
        EpisodeQuota(running=np.zeros(2, np.bool_), episodes=episodes)
