"""Counting by episodes: the same number of whole games from every lane.

Taking games as they end, until there are enough, prefers short ones: a lane of short games ends more of them. So does
counting a game that was already running when counting began, in favour of long ones. Here neither counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class EpisodeQuota:
    """The first games of every lane that begin from now on, as many in each, in raw points."""

    def __init__(self, *, running: NDArray[np.bool_], episodes: int) -> None:
        """``running`` ``[N]``: lanes in mid-game, whose game does not count; ``episodes`` in all lanes together.

        Raises:
            ValueError: the lanes cannot play them in equal shares.
        """
        lanes = len(running)
        if episodes < 1 or episodes % lanes:
            raise ValueError(f"{lanes} lanes cannot play {episodes} episodes in equal shares")
        self.share, self.running = episodes // lanes, running.copy()
        self.score, self.length = np.zeros(lanes), np.zeros(lanes, np.int64)
        self.games: list[list[tuple[float, int]]] = [[] for _ in range(lanes)]  # return and length
        self.surplus = 0  # games that ended and do not count

    def add(self, score: NDArray[np.float64], live: NDArray[np.bool_], over: NDArray[np.bool_]) -> None:
        """One answer of every lane, each ``[N]``; of a lane that has not answered, nothing and twice False."""
        self.score += score
        self.length += live
        for lane in np.flatnonzero(over):
            if self.running[lane] or len(self.games[lane]) == self.share:
                self.surplus += 1
            else:
                self.games[lane].append((float(self.score[lane]), int(self.length[lane])))
        self.running[over], self.score[over], self.length[over] = False, 0, 0

    @property
    def counted(self) -> int:
        """Games so far, of all lanes."""
        return sum(map(len, self.games))

    @property
    def met(self) -> bool:
        """Every lane has played its share."""
        return self.counted == self.share * len(self.games)
