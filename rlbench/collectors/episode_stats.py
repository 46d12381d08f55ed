"""Returns and lengths of episodes: of all in training, and of an equal number from every env in evaluation.

The first episodes to end, from whichever env, would be the short ones.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.ops.state_dict import State, tensor


class EpisodeStats:
    """Training episodes that ended since the last ``take``, and running ones, with unclipped rewards."""

    def __init__(self, num_envs: int) -> None:
        self.score, self.length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.last: float | None = None

    def add(self, score: NDArray[np.float64], agent_step: NDArray[np.bool_], game_over: NDArray[np.bool_]) -> None:
        """Add one step of every env, each ``[N]``; ``agent_step`` is False where it only reset the env."""
        self.score += score
        self.length += agent_step
        for env_id in np.flatnonzero(game_over):
            self.last = float(self.score[env_id])
            self.returns.append(self.last)
            self.lengths.append(int(self.length[env_id]))
        self.reset(game_over)

    def reset(self, envs: NDArray[np.bool_]) -> None:
        """Begin a new episode in the envs of the mask ``[N]``."""
        self.score[envs], self.length[envs] = 0, 0

    def take(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Return and clear the returns and lengths of the ended episodes."""
        stats = tuple(self.returns), tuple(self.lengths)
        self.returns, self.lengths = [], []
        return stats

    def state_dict(self) -> State:
        """Ended and running episodes."""
        numbers = {
            "score": self.score,
            "length": self.length,
            "returns": np.array(self.returns),
            "lengths": np.array(self.lengths, np.int64),
        }
        state: State = {name: torch.from_numpy(value.copy()) for name, value in numbers.items()}
        return state if self.last is None else {**state, "last": self.last}

    def load_state_dict(self, state: State) -> None:
        """Load ended and running episodes.

        Raises:
            ValueError: they are no episodes' returns and lengths.
        """
        score, length, returns, lengths = (tensor(state, key) for key in ("score", "length", "returns", "lengths"))
        counts = torch.cat((length, lengths))
        valid = score.isfinite().all() and ((counts >= 0) & (counts <= 2**53)).all()
        if counts.dtype != torch.int64 or returns.shape != lengths.shape or not valid:
            raise ValueError("expected a finite return and a whole length of each episode")
        self.score[:], self.length[:] = score.numpy(), length.numpy()
        self.returns, self.lengths = returns.tolist(), lengths.tolist()
        last = state.get("last")
        self.last = last if isinstance(last, float) else None


class EpisodeQuota:
    """The first episodes of every new env, equally many of each: whole episodes, in raw points."""

    def __init__(self, num_envs: int, episodes: int) -> None:
        """Count ``episodes`` over all envs.

        Raises:
            ValueError: the envs cannot play them in equal shares.
        """
        if episodes < 1 or episodes % num_envs:
            raise ValueError(f"{num_envs} envs cannot play {episodes} episodes in equal shares")
        self.episodes_per_env = episodes // num_envs
        self.score, self.length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self.episodes: list[list[tuple[float, int]]] = [[] for _ in range(num_envs)]  # return and length

    def add(self, score: NDArray[np.float64], agent_step: NDArray[np.bool_], game_over: NDArray[np.bool_]) -> None:
        """Add one step of every env, each ``[N]``; ``agent_step`` is False where it only reset the env."""
        self.score += score
        self.length += agent_step
        for env_id in np.flatnonzero(game_over):
            if len(self.episodes[env_id]) < self.episodes_per_env:
                self.episodes[env_id].append((float(self.score[env_id]), int(self.length[env_id])))
        self.score[game_over], self.length[game_over] = 0, 0

    @property
    def count(self) -> int:
        """Number of episodes so far, over all envs."""
        return sum(map(len, self.episodes))

    @property
    def is_complete(self) -> bool:
        """True once every env has played its share."""
        return self.count == self.episodes_per_env * len(self.episodes)
