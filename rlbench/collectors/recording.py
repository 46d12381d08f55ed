"""Record episodes: an equal share of the steps of every env, in whole episodes of which the last may be cut."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.recording_format import FINAL, TERMINATED, TRUNCATED
from rlbench.datasets.recording_writer import RecordingWriter, row
from rlbench.envs.base import Frames, Step


class ShardRecorder:
    """Record each env up to its share of ``steps``, and the returns of its whole episodes."""

    def __init__(self, writer: RecordingWriter, *, num_envs: int, steps: int) -> None:
        self.writer, self.num_envs, self.steps_of_env = writer, num_envs, np.zeros(num_envs, np.int64)
        self.quota = np.full(num_envs, steps // num_envs)
        self.quota[: steps % num_envs] += 1
        self.score = np.zeros(num_envs)
        self.returns: list[list[float]] = [[] for _ in range(num_envs)]
        self.cut = 0  # episodes cut where their env reached its share

    @property
    def count(self) -> int:
        """Number of recorded steps, over all envs."""
        return int(self.steps_of_env.sum())

    @property
    def is_complete(self) -> bool:
        """True once every env has reached its share."""
        return bool((self.steps_of_env == self.quota).all())

    def add(self, agent_step: NDArray[np.bool_], obs: Frames, action: NDArray[np.int64], answer: Step) -> None:
        """Record observation, action and answer of every env of the mask ``agent_step`` ``[N]`` below its share."""
        ended = answer.terminated | answer.truncated
        for env_id in np.flatnonzero(agent_step & (self.steps_of_env < self.quota)).tolist():
            self.steps_of_env[env_id] += 1
            self.score[env_id] += answer.score[env_id]
            cut = bool(self.steps_of_env[env_id] == self.quota[env_id] and not ended[env_id])
            flags = TERMINATED * bool(answer.terminated[env_id])
            flags |= TRUNCATED * (bool(answer.truncated[env_id]) or cut)
            self.writer.add(row(env_id, obs[env_id], int(action[env_id]), float(answer.score[env_id]), flags))
            if ended[env_id] or cut:
                self.writer.add(row(env_id, answer.obs[env_id], 0, 0.0, FINAL))
                self.cut += cut
                if not cut:
                    self.returns[env_id].append(float(self.score[env_id]))
                self.score[env_id] = 0.0
