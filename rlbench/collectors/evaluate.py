"""Judging a policy: the same number of full games in every lane, so that short games are not preferred."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic

import numpy as np
from torch import Tensor

from rlbench.collectors.base import Actor, Recorder
from rlbench.collectors.episode_quota import EpisodeQuota
from rlbench.collectors.explore import Explorer
from rlbench.envs.base import VectorEnv
from rlbench.records.types import Evaluated


class Evaluation:
    """One evaluation under way: iterate it to the end, a step at a time, then ask for its ``result``."""

    def __init__(
        self,
        *,
        actor: Actor,
        recorder: Recorder,
        explorer: Explorer,
        envs: VectorEnv,
        seeds: Sequence[int],
        episodes: int,
        bound: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.bound, self.episodes = bound, episodes
        self.actor, self.recorder, self.explorer, self.envs, self.seeds = actor, recorder, explorer, envs, seeds
        self.began = monotonic()
        self.quota = EpisodeQuota(running=np.zeros(envs.info.lanes, np.bool_), episodes=episodes)

    def __iter__(self) -> Iterator[int]:
        """Plays; gives the number of games that have ended so far after every step."""
        try:
            yield from self._played()
        finally:
            self.envs.close()

    def _played(self) -> Iterator[int]:
        ended = np.zeros(self.envs.info.lanes, np.bool_)
        obs: Tensor = self.recorder.observe(self.envs.reset())
        while not self.quota.met:
            action = self.explorer(self.actor.act(obs, "eval"))
            self.envs.send((action if self.bound is None else self.bound(action)).cpu().numpy())
            answer = self.envs.recv()
            self.quota.add(answer.score, ~ended, answer.over)
            ended = answer.terminated | answer.truncated
            self.recorder.record(action, answer.reward, answer.terminated, answer.truncated)
            obs = self.recorder.observe(answer.obs)
            yield self.quota.counted

    def result(self) -> Evaluated:
        """Every game, lane by lane."""
        lanes = zip(self.quota.games, self.seeds, strict=True)
        played = [(score, length, seed) for games, seed in lanes for score, length in games]
        returns, lengths, seeds = zip(*played, strict=True)
        return Evaluated(returns=returns, lengths=lengths, seeds=seeds, seconds=monotonic() - self.began)
