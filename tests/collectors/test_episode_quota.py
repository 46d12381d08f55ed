"""Quotas of episodes in envs with different episode lengths."""

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
import pytest

from rlbench.collectors.episode_stats import EpisodeQuota
from rlbench.envs.base import Step


class Timed:
    """Env n's games take as many live steps as its iterator says next, and pay n + 1 for each."""

    def __init__(self, lengths: Sequence[Iterator[int]]) -> None:
        self.lengths = lengths
        self.remaining = np.array([next(length) for length in lengths])
        self.final = self.live = np.zeros(len(lengths), np.bool_)

    def recv(self) -> Step:
        env_id = np.arange(len(self.lengths))
        live = self.live = ~self.final
        self.remaining -= live
        over = self.final = live & (self.remaining == 0)
        for ended in env_id[over]:
            self.remaining[ended] = next(self.lengths[ended])
        frames, none = np.zeros(len(env_id), np.float32), np.zeros_like(over)
        return Step(frames, frames, over, none, env_id, np.where(live, env_id + 1.0, 0.0), over)


def play(envs: Timed, episodes: int) -> tuple[EpisodeQuota, int]:
    """A quota that was met, and the live steps that took."""
    steps, quota = 0, EpisodeQuota(len(envs.lengths), episodes)
    while not quota.is_complete:
        step = envs.recv()
        quota.add(step.score, envs.live, step.game_over)
        steps += int(envs.live.sum())
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


def test_the_mean_length_is_not_biased_over_many_quotas() -> None:
    envs = [lengths_of(seed) for seed in range(4)]
    every = np.concatenate([lengths(play(Timed(envs), 4)[0]) for _ in range(250)])
    assert abs(every.mean() - 4) < 3 * 9 / np.sqrt(len(every))


@pytest.mark.parametrize("episodes", [0, 3, -2])
def test_unequal_shares_are_refused(episodes: int) -> None:
    with pytest.raises(ValueError, match="2 envs cannot play"):
        EpisodeQuota(2, episodes)
