"""Evaluate a policy by the same number of full episodes in every env, so that short episodes are not preferred."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic

import numpy as np
from torch import Tensor

from rlbench.buffers.ring import RingBuffer
from rlbench.collectors.episode_stats import EpisodeQuota
from rlbench.collectors.explore import Actor, Explorer
from rlbench.envs.base import VectorEnv
from rlbench.records.types import Evaluated


class Evaluation:
    """One evaluation: iterate it to the end, a step at a time, then take its ``result``."""

    def __init__(
        self,
        *,
        actor: Actor,
        buffer: RingBuffer,
        explorer: Explorer,
        envs: VectorEnv,
        seeds: Sequence[int],
        episodes: int,
        to_env_action: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.to_env_action, self.episodes = to_env_action, episodes
        self.actor, self.buffer, self.explorer, self.envs, self.seeds = actor, buffer, explorer, envs, seeds
        self.began = monotonic()
        self.quota = EpisodeQuota(envs.info.num_envs, episodes)

    def __iter__(self) -> Iterator[int]:
        """Play; yield the number of ended episodes after every step."""
        try:
            ended = np.zeros(self.envs.info.num_envs, np.bool_)
            obs: Tensor = self.buffer.add_observations(self.envs.reset())
            while not self.quota.is_complete:
                action = self.explorer(self.actor.act(obs, "eval"))
                self.envs.send((action if self.to_env_action is None else self.to_env_action(action)).cpu().numpy())
                step = self.envs.recv()
                self.quota.add(step.score, ~ended, step.game_over)
                ended = step.terminated | step.truncated
                self.buffer.add_transitions(action, step.reward, step.terminated, step.truncated)
                obs = self.buffer.add_observations(step.obs)
                yield self.quota.count
        finally:
            self.envs.close()

    def result(self) -> Evaluated:
        """Every episode, env by env."""
        envs = zip(self.quota.episodes, self.seeds, strict=True)
        episodes = [(score, length, seed) for env_episodes, seed in envs for score, length in env_episodes]
        returns, lengths, seeds = zip(*episodes, strict=True)
        return Evaluated(returns=returns, lengths=lengths, seeds=seeds, seconds=monotonic() - self.began)
