"""Synchronous collection: all envs step together, and every transition goes to the ring.

Data cross between host and device twice a step: frames in, actions out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rlbench.buffers.ring import RingBuffer
from rlbench.collectors.env_restore import ActionLog, env_state, restore_envs
from rlbench.collectors.episode_stats import EpisodeStats
from rlbench.collectors.explore import Actor, Explorer
from rlbench.envs.base import Snapshot, VectorEnv
from rlbench.envs.normalize import unnormalized
from rlbench.ops.state_dict import State, Stateful, integer, subtree, tensor


class Collector:
    """Step the environments of one segment after another.

    Its state is exact at any step. It holds the environments' snapshot, or without one the actions of the running
    segment: an environment is a function of its seeds and its actions, so replaying them restores it.
    """

    def __init__(
        self,
        *,
        actor: Actor,
        buffer: RingBuffer,
        explorer: Explorer,
        open_envs: Callable[[int], VectorEnv],
        num_envs: int,
        to_env_action: Callable[[Tensor], Tensor] | None = None,
        obs_normalizer: Stateful | None = None,
    ) -> None:
        self.obs_normalizer = obs_normalizer  # running statistics of observations, which the environments update
        self.to_env_action = to_env_action  # maps the policy's action to the executed one; None is the identity
        self.actor, self.buffer, self.explorer, self.open_envs = actor, buffer, explorer, open_envs
        self.segment, self.exact = -1, True  # exact: resumes are bit for bit, unlike asynchronous ones
        self.envs: VectorEnv | None = None
        self.actions = ActionLog()
        self.obs = torch.empty(0)  # the newest observation of every env, stacked, on the device
        self.ended = np.zeros(num_envs, np.bool_)  # envs at a final observation, which ignore their next action
        self.episode_stats = EpisodeStats(num_envs)

    def open(self, segment: int) -> None:
        """Truncate running episodes and begin ``segment`` in fresh environments."""
        if self.envs is not None:
            self.buffer.truncate_episodes()
            self.close()
        self.segment, self.envs, self.actions = segment, self.open_envs(segment), ActionLog()
        self.ended[:] = False
        self.episode_stats.reset(np.ones_like(self.ended))
        self.obs = self.buffer.add_observations(self.envs.reset())

    def step(self) -> int:
        """Take one action in every env; return the number of agent steps.

        Raises:
            RuntimeError: no segment was opened.
        """
        if self.envs is None:
            raise RuntimeError("open a segment first")
        action = self.explorer(self.actor.act(self.obs, "act"))
        env_action = (action if self.to_env_action is None else self.to_env_action(action)).cpu().numpy()
        self.envs.send(env_action)
        step = self.envs.recv()
        if not isinstance(unnormalized(self.envs), Snapshot):
            self.actions.add(env_action)
        self.buffer.add_transitions(action, step.reward, step.terminated, step.truncated)
        agent_step = ~self.ended
        self.episode_stats.add(step.score, agent_step, step.game_over)
        self.ended = step.terminated | step.truncated
        self.obs = self.buffer.add_observations(step.obs)
        return int(agent_step.sum())

    def close(self) -> None:
        """Close the environments."""
        if self.envs is not None:
            self.envs.close()
            self.envs = None

    def state_dict(self) -> State:
        """Segment, environments, episode statistics, explorer and observation statistics."""
        return {
            "segment": self.segment,
            **env_state(self.envs, self.actions),
            "ended": torch.from_numpy(self.ended.copy()),
            "games": self.episode_stats.state_dict(),
            "explorer": self.explorer.state_dict(),
            "scale": {} if self.obs_normalizer is None else self.obs_normalizer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the segment in fresh environments; the buffer must be loaded.

        Raises:
            BrokenEnvironment: the replay does not end at the saved frames: another version, or not deterministic.
        """
        self.episode_stats.load_state_dict(subtree(state, "games"))
        self.explorer.load_state_dict(subtree(state, "explorer"))
        self.segment, self.ended[:] = integer(state, "segment", least=-1), tensor(state, "ended").numpy()
        if self.obs_normalizer is not None:  # first: a replay ends at observations that it normalizes
            self.obs_normalizer.load_state_dict(subtree(state, "scale"))
        if self.segment >= 0:
            self.actions, self.envs = ActionLog(), self.open_envs(self.segment)
            self.obs = restore_envs(self.envs, self.actions, self.buffer, state, self.segment)
