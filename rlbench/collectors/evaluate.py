"""Evaluate a policy by the same number of full episodes in every env, so that short episodes are not preferred.

The same loop records games: with a ``recorder`` it ends when every env has its share of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic

import numpy as np
from torch import Tensor

from rlbench.buffers.ring import RingBuffer
from rlbench.collectors.episode_stats import EpisodeQuota
from rlbench.collectors.explore import Actor, Explorer
from rlbench.collectors.recording import ShardRecorder
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
        recorder: ShardRecorder | None = None,
    ) -> None:
        self.to_env_action, self.episodes = to_env_action, episodes
        self.actor, self.buffer, self.explorer, self.envs, self.seeds = actor, buffer, explorer, envs, seeds
        self.began = monotonic()
        self.quota, self.recorder = EpisodeQuota(envs.info.num_envs, episodes), recorder

    def __iter__(self) -> Iterator[int]:
        """Play; yield the number of ended episodes, or of recorded steps, after every step."""
        try:
            frames, counter = self.envs.reset(), self.recorder or self.quota
            agent_step = np.ones(len(frames), np.bool_)
            obs: Tensor = self.buffer.add_observations(frames)
            while not counter.is_complete:
                action = self.explorer(self.actor.act(obs, "eval"))
                env_action = (action if self.to_env_action is None else self.to_env_action(action)).cpu().numpy()
                self.envs.send(env_action)
                step = self.envs.recv()
                self.quota.add(step.score, agent_step, step.game_over)
                if self.recorder is not None:
                    self.recorder.add(agent_step, frames, env_action, step)
                agent_step, frames = ~(step.terminated | step.truncated), step.obs
                self.buffer.add_transitions(action, step.reward, step.terminated, step.truncated)
                obs = self.buffer.add_observations(frames)
                yield counter.count
        finally:
            self.envs.close()

    def result(self) -> Evaluated:
        """Every episode, env by env."""
        envs = zip(self.quota.episodes, self.seeds, strict=True)
        episodes = [(score, length, seed) for env_episodes, seed in envs for score, length in env_episodes]
        returns, lengths, seeds = zip(*episodes, strict=True)
        return Evaluated(returns=returns, lengths=lengths, seeds=seeds, seconds=monotonic() - self.began)
