"""Equal numbers of whole games from every env.

The first games to end, from whichever env, would be the short ones: an env with short games ends more of them. A game
that is already running when counting begins would favour long ones. Here neither counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class EpisodeQuota:
    """The first games of every env that begin from now on, equally many of each, in raw points."""

    def __init__(self, *, running: NDArray[np.bool_], episodes: int) -> None:
        """Count ``episodes`` games over all envs; the running games of the envs ``running`` ``[N]`` do not count.

        Raises:
            ValueError: the envs cannot play them in equal shares.
        """
        num_envs = len(running)
        if episodes < 1 or episodes % num_envs:
            raise ValueError(f"{num_envs} envs cannot play {episodes} episodes in equal shares")
        self.share, self.running = episodes // num_envs, running.copy()
        self.score, self.length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self.games: list[list[tuple[float, int]]] = [[] for _ in range(num_envs)]  # return and length
        self.surplus = 0  # games that ended and do not count

    def add(self, score: NDArray[np.float64], live: NDArray[np.bool_], over: NDArray[np.bool_]) -> None:
        """Add one step of every env, each ``[N]``; score 0 and False twice for an env that has not answered."""
        self.score += score
        self.length += live
        for env_id in np.flatnonzero(over):
            if self.running[env_id] or len(self.games[env_id]) == self.share:
                self.surplus += 1
            else:
                self.games[env_id].append((float(self.score[env_id]), int(self.length[env_id])))
        self.running[over], self.score[over], self.length[over] = False, 0, 0

    @property
    def count(self) -> int:
        """Number of games so far, over all envs."""
        return sum(map(len, self.games))

    @property
    def met(self) -> bool:
        """True once every env has played its share."""
        return self.count == self.share * len(self.games)
