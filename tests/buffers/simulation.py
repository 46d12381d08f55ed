"""Random episodes played into a ring, and the same kept as lists."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rlbench.buffers.ring import RingBuffer


@dataclass
class Episode:
    """One env's episode as it happened: k actions and rewards, k + 1 observations."""

    rows: list[int]  # the vector step at which each observation was shown
    observations: list[Any] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    ended: bool = False


@dataclass
class Simulation:
    """Envs of random episodes played into a ring, and the same kept naively."""

    ring: RingBuffer
    observe: Callable[[int, list[int]], np.ndarray]  # of a row, by the first rows of the envs' episodes
    reward: Callable[[int, np.ndarray], np.ndarray]  # of a row, which led to these observations
    episodes: list[list[Episode]] = field(default_factory=list)
    row: int = 0

    def __post_init__(self) -> None:
        self.episodes = [[] for _ in range(self.ring.num_envs)]

    def begin(self, envs: list[int]) -> None:
        for env in envs:
            self.episodes[env].append(Episode(rows=[]))

    def observations(self) -> np.ndarray:
        """The observations of the current row."""
        return self.observe(self.row, [(episodes[-1].rows or [self.row])[0] for episodes in self.episodes])

    def show(self, obs: np.ndarray) -> None:
        for env, episodes in enumerate(self.episodes):
            episodes[-1].rows.append(self.row)
            episodes[-1].observations.append(obs[env])
        self.ring.add_observations(obs)

    def play(self, ends: list[list[int]], close_at: int | None = None) -> None:
        """Steps by ``ends[row][env]``: 0 goes on, 1 terminates, 2 truncates; a final row ignores all it is sent."""
        envs = range(self.ring.num_envs)
        self.begin([*envs])
        self.show(self.observations())
        for number, codes in enumerate(ends):
            final = [self.episodes[env][-1].ended for env in envs]
            if number == close_at:
                self.ring.truncate_episodes()
                for env in envs:
                    self.episodes[env][-1].ended = True
                self.row += 1
                self.begin([*envs])
                self.show(self.observations())
                continue
            code = np.where(final, 0, codes)
            action = np.array([(self.row * 7 + env) % 5 for env in envs])
            self.row += 1
            self.begin([env for env in envs if final[env]])
            obs = self.observations()
            reward = np.where(final, 99.0, self.reward(self.row - 1, obs)).astype(np.float32)
            self.ring.add_transitions(torch.from_numpy(action), reward, code == 1, (code == 2) | np.array(final))
            self.show(obs)
            for env in envs:
                if not final[env]:
                    episode = self.episodes[env][-1]
                    episode.actions.append(int(action[env]))
                    episode.rewards.append(float(reward[env]))
                    episode.ended, episode.terminated = bool(code[env]), code[env] == 1
