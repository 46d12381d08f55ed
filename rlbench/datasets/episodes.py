"""Where recorded episodes begin and end, and what each of them was worth."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.hdf5 import CHUNK
from rlbench.datasets.types import Recorded

ValueT = TypeVar("ValueT", bound=np.generic)


class Episodes(NamedTuple):
    """E episodes in the order of the file."""

    returns: NDArray[np.float64]  # [E] sums of rewards
    lengths: NDArray[np.int64]  # [E] steps
    closed: NDArray[np.bool_]  # [E] the file says that it ended or was cut here


class Jumps(NamedTuple):
    """Where recorded steps do not lead to the row after them."""

    broken: NDArray[np.bool_]  # [N] the last one is
    led_to: NDArray[np.float32]  # [J, F] the observations they lead to instead


def laid(recorded: Recorded, jumps: Jumps) -> Recorded:
    """The same steps with what every episode's last one led to in a row behind it, that is ``final`` and no step."""
    last = recorded.terminated | recorded.truncated | jumps.broken
    place = np.arange(len(last)) + np.cumsum(last) - last
    count, behind = len(last) + int(last.sum()), place[last] + 1
    (ends,), jumped = np.nonzero(last), jumps.broken[last]

    def spread(column: NDArray[ValueT]) -> NDArray[ValueT]:
        wide = np.zeros((count, *column.shape[1:]), column.dtype)
        wide[place] = column
        return wide

    obs, final = spread(np.asarray(recorded.obs, np.float32)), np.zeros(count, np.bool_)
    obs[behind[jumped]], obs[behind[~jumped]] = jumps.led_to, recorded.obs[ends[~jumped] + 1]
    final[behind] = True
    action, reward = spread(np.asarray(recorded.action, np.float32)), spread(recorded.reward)
    return Recorded(obs, action, reward, spread(recorded.terminated), spread(recorded.truncated), None, final)


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


def terminated_on_end(recorded: Recorded) -> Recorded:
    """The same steps, each time limit a termination, as D4RL's ``terminate_on_end`` has it."""
    ended = recorded.terminated | recorded.truncated
    return recorded._replace(terminated=ended, truncated=np.zeros_like(ended))


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
