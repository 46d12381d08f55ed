"""The games that training plays, in raw points: whatever the learner is paid, this is what is reported."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.ops.state_dict import State, tensor


class EpisodeStats:
    """Training games that ended since the last ``take``, and the running ones, in raw points."""

    def __init__(self, lanes: int) -> None:
        self.score, self.length = np.zeros(lanes), np.zeros(lanes, np.int64)
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.last: float | None = None

    def add(self, score: NDArray[np.float64], live: NDArray[np.bool_], over: NDArray[np.bool_]) -> None:
        """One answer of every lane, each ``[N]``."""
        self.score += score
        self.length += live
        for lane in np.flatnonzero(over):
            self.last = float(self.score[lane])
            self.returns.append(self.last)
            self.lengths.append(int(self.length[lane]))
        self.drop(over)

    def drop(self, lanes: NDArray[np.bool_]) -> None:
        """Begin anew in these lanes, ``[N]``."""
        self.score[lanes], self.length[lanes] = 0, 0

    def take(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Returns and lengths of the ended games, which are forgotten."""
        taken = tuple(self.returns), tuple(self.lengths)
        self.returns, self.lengths = [], []
        return taken

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
        """Take them over."""
        self.score, self.length = tensor(state, "score").numpy().copy(), tensor(state, "length").numpy().copy()
        self.returns, self.lengths = tensor(state, "returns").tolist(), tensor(state, "lengths").tolist()
        last = state.get("last")
        self.last = last if isinstance(last, float) else None
