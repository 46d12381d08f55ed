"""Judging a policy: the same number of full games in every lane, so that short games are not preferred."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic

import numpy as np
from torch import Tensor

from rlbench.collectors.explore import Explorer
from rlbench.collectors.sync import Actor, Recorder
from rlbench.envs.base import VectorEnv
from rlbench.record.types import Evaluated


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
        self.bound = bound
        self.actor, self.recorder, self.explorer, self.envs, self.seeds = actor, recorder, explorer, envs, seeds
        self.began = monotonic()
        lanes = envs.info.lanes
        if episodes % lanes:
            raise ValueError(f"{lanes} lanes cannot play {episodes} episodes in equal shares")
        self.share = episodes // lanes
        self.games: list[list[tuple[float, int]]] = [[] for _ in range(lanes)]

    def __iter__(self) -> Iterator[int]:
        """Plays; gives the number of games that have ended so far after every step."""
        try:
            yield from self._played()
        finally:
            self.envs.close()

    def _played(self) -> Iterator[int]:
        lanes = len(self.games)
        score, length, ended = np.zeros(lanes), np.zeros(lanes, np.int64), np.zeros(lanes, np.bool_)
        obs: Tensor = self.recorder.observe(self.envs.reset())
        while any(len(games) < self.share for games in self.games):
            action = self.explorer(self.actor.act(obs, "eval"))
            self.envs.send((action if self.bound is None else self.bound(action)).cpu().numpy())
            answer = self.envs.recv()
            score, length = score + answer.score, length + ~ended
            for lane in np.flatnonzero(answer.over):
                if len(self.games[lane]) < self.share:
                    self.games[lane].append((float(score[lane]), int(length[lane])))
                score[lane], length[lane] = 0, 0
            ended = answer.terminated | answer.truncated
            self.recorder.record(action, answer.reward, answer.terminated, answer.truncated)
            obs = self.recorder.observe(answer.obs)
            yield sum(map(len, self.games))

    def result(self) -> Evaluated:
        """Every game, lane by lane."""
        played = [
            (score, length, seed) for games, seed in zip(self.games, self.seeds, strict=True) for score, length in games
        ]
        returns, lengths, seeds = zip(*played, strict=True)
        return Evaluated(returns=returns, lengths=lengths, seeds=seeds, seconds=monotonic() - self.began)
