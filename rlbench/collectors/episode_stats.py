"""Returns and lengths of training games in raw points, which are reported whatever reward the learner gets."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.ops.state_dict import State, tensor


class EpisodeStats:
    """Training games that ended since the last ``take``, and the running ones, in raw points."""

    def __init__(self, num_envs: int) -> None:
        self.score, self.length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.last: float | None = None

    def add(self, score: NDArray[np.float64], live: NDArray[np.bool_], over: NDArray[np.bool_]) -> None:
        """Add one step of every env, each ``[N]``."""
        self.score += score
        self.length += live
        for env_id in np.flatnonzero(over):
            self.last = float(self.score[env_id])
            self.returns.append(self.last)
            self.lengths.append(int(self.length[env_id]))
        self.drop(over)

    def drop(self, envs: NDArray[np.bool_]) -> None:
        """Begin a new game in the envs of the mask ``[N]``."""
        self.score[envs], self.length[envs] = 0, 0

    def take(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Return and clear the returns and lengths of the ended games."""
        games = tuple(self.returns), tuple(self.lengths)
        self.returns, self.lengths = [], []
        return games

    def state_dict(self) -> State:
        """Ended and running games."""
        numbers = {
            "score": self.score,
            "length": self.length,
            "returns": np.array(self.returns),
            "lengths": np.array(self.lengths, np.int64),
        }
        state: State = {name: torch.from_numpy(value.copy()) for name, value in numbers.items()}
        return state if self.last is None else {**state, "last": self.last}

    def load_state_dict(self, state: State) -> None:
        """Load ended and running games."""
        self.score, self.length = tensor(state, "score").numpy().copy(), tensor(state, "length").numpy().copy()
        self.returns, self.lengths = tensor(state, "returns").tolist(), tensor(state, "lengths").tolist()
        last = state.get("last")
        self.last = last if isinstance(last, float) else None
