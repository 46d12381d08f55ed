"""Where recorded episodes begin and end, and what each of them was worth."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.columns import CHUNK
from rlbench.datasets.types import Recorded


class Episodes(NamedTuple):
    """E episodes in the order of the file."""

    returns: NDArray[np.float64]  # [E] sums of rewards
    lengths: NDArray[np.int64]  # [E] steps
    closed: NDArray[np.bool_]  # [E] the file says that it ended or was cut here


def breaks(obs: NDArray[np.generic], next_obs: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Where a step did not lead to the row after it, ``[N]``; the last row has none after it and counts as a break."""
    broken = np.ones(len(obs), np.bool_)
    numbers = tuple(range(1, obs.ndim))
    for start in range(0, len(obs) - 1, CHUNK):
        stop = min(start + CHUNK, len(obs) - 1)
        broken[start:stop] = (next_obs[start:stop] != obs[start + 1 : stop + 1]).any(numbers)
    return broken


def shown(recorded: Recorded) -> NDArray[np.bool_]:
    """The rows that are no steps but show where an episode ended, ``[N]``."""
    return np.zeros(len(recorded.reward), np.bool_) if recorded.final is None else recorded.final


def ends(recorded: Recorded) -> NDArray[np.bool_]:
    """The last step of every episode, ``[N]``: as marked, where rows do not continue one another, the last of all."""
    marked, final = recorded.terminated | recorded.truncated, shown(recorded)
    if recorded.next_obs is not None:
        marked |= breaks(recorded.obs, recorded.next_obs)
    marked[:-1] |= final[1:]
    marked[-1] = True
    return marked & ~final


def episodes(recorded: Recorded) -> Episodes:
    """What every episode was worth, how long it was, and whether the file says how it ended."""
    step = ~shown(recorded)
    last = np.flatnonzero(ends(recorded)[step])
    first = np.r_[0, last[:-1] + 1]
    return Episodes(
        returns=np.add.reduceat(recorded.reward[step].astype(np.float64), first),
        lengths=last - first + 1,
        closed=(recorded.terminated | recorded.truncated)[step][last],
    )
