"""Asynchronous collection: the policy acts for the envs that have answered and does not wait for the others.

Between two steps every env is busy: it has an action and has not answered. The order of answers depends on the
machine. So two runs differ in the order of rows, never in the transitions of one env under equal actions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.buffers.async_ring import AsyncRingBuffer
from rlbench.collectors.episode_stats import EpisodeStats
from rlbench.collectors.explore import Actor, Explorer
from rlbench.envs.base import AsyncVectorEnv, Step
from rlbench.ops.state_dict import State, integer, subtree


class AsyncCollector:
    """Step the environments of one segment after another, in the order of their answers.

    A step is one batch of answers, so a caller that needs a number of steps may get up to N − 1 more. ``step`` returns
    their number. A loaded collector does not resume in mid-episode, since no order of answers repeats: running episodes
    are truncated, as at the end of a segment, and the segment begins anew in fresh environments. ``exact`` is True
    while this has not happened.
    """

    def __init__(
        self,
        *,
        actor: Actor,
        buffer: AsyncRingBuffer,
        explorer: Explorer,
        open_envs: Callable[[int], AsyncVectorEnv],
        num_envs: int,
    ) -> None:
        self.actor, self.buffer, self.explorer, self.open_envs = actor, buffer, explorer, open_envs
        self.segment, self.exact, self.obs_normalizer = -1, True, None
        self.envs: AsyncVectorEnv | None = None
        self.env_ids = np.arange(num_envs)
        self.actions = torch.empty(0)  # [N, ...] the last action of every env, on the device
        self.ended = np.zeros(num_envs, np.bool_)  # envs at a final observation, which ignore their next action
        self.episode_stats = EpisodeStats(num_envs)

    def open(self, segment: int) -> None:
        """Truncate running episodes, drop pending answers, and begin ``segment`` in fresh environments."""
        if self.envs is not None:
            self.buffer.truncate_episodes()
            self.close()
        self.segment, self.envs = segment, self.open_envs(segment)
        self.ended[:] = False
        self.episode_stats.reset(np.ones_like(self.ended))
        actions = self._act(self.buffer.add_observations(self.envs.reset()))
        self.actions = actions.clone()  # an action in flight must not change
        self.envs.send(actions.cpu().numpy(), self.env_ids)

    def step(self) -> int:
        """Store the next batch of answers and send its envs their next action; return the number of agent steps.

        Raises:
            RuntimeError: no segment was opened.
        """
        if self.envs is None:
            raise RuntimeError("open a segment first")
        step = self.envs.recv()
        index = torch.from_numpy(step.env_id).to(self.actions.device)
        self.buffer.add_transitions(self.actions[index], step.reward, step.terminated, step.truncated, step.env_id)
        agent_step = ~self.ended[step.env_id]
        self._count(step, agent_step)
        self.ended[step.env_id] = step.terminated | step.truncated
        actions = self._act(self.buffer.add_observations(step.obs, step.env_id))
        self.actions[index] = actions
        self.envs.send(actions.cpu().numpy(), step.env_id)
        return int(agent_step.sum())

    def close(self) -> None:
        """Close the environments."""
        if self.envs is not None:
            self.envs.close()
            self.envs = None

    def state_dict(self) -> State:
        """Segment, episode statistics and the explorer's generator."""
        parts = {"games": self.episode_stats.state_dict(), "explorer": self.explorer.state_dict()}
        return {"segment": self.segment, **parts}

    def load_state_dict(self, state: State) -> None:
        """Load statistics and explorer, and begin the segment anew; the buffer must be loaded, and is truncated."""
        self.episode_stats.load_state_dict(subtree(state, "games"))
        self.explorer.load_state_dict(subtree(state, "explorer"))
        self.close()
        self.segment = integer(state, "segment", least=-1)
        if self.segment >= 0:
            self.exact = False
            self.buffer.truncate_episodes()
            self.open(self.segment)

    def _act(self, obs: Tensor) -> Tensor:
        return self.explorer(self.actor.act(obs, "act"))

    def _count(self, step: Step, agent_step: NDArray[np.bool_]) -> None:
        score, acted, game_over = np.zeros(len(self.env_ids)), np.zeros_like(self.ended), np.zeros_like(self.ended)
        score[step.env_id], acted[step.env_id], game_over[step.env_id] = step.score, agent_step, step.game_over
        self.episode_stats.add(score, acted, game_over)
