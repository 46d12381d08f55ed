"""Split recorded steps into episodes."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.hdf5 import CHUNK
from rlbench.datasets.types import Dataset

ValueT = TypeVar("ValueT", bound=np.generic)


class Episodes(NamedTuple):
    """E episodes in the order of the file."""

    returns: NDArray[np.float64]  # [E] sums of rewards
    lengths: NDArray[np.int64]  # [E] steps
    closed: NDArray[np.bool_]  # [E] the file marks its end


class Jumps(NamedTuple):
    """Steps that do not lead to the next row."""

    broken: NDArray[np.bool_]  # [N] True for such a step, and for the last
    led_to: NDArray[np.float32]  # [J, F] their next observations


def join_episodes(recorded: Dataset, jumps: Jumps) -> Dataset:
    """Insert the final observation of every episode as a row of its own, marked ``final``."""
    last = recorded.terminated | recorded.truncated | jumps.broken
    row = np.arange(len(last)) + np.cumsum(last) - last
    count, behind = len(last) + int(last.sum()), row[last] + 1
    (ends,), jumped = np.nonzero(last), jumps.broken[last]

    def spread(column: NDArray[ValueT]) -> NDArray[ValueT]:
        wide = np.zeros((count, *column.shape[1:]), column.dtype)
        wide[row] = column
        return wide

    obs, final = spread(np.asarray(recorded.obs, np.float32)), np.zeros(count, np.bool_)
    obs[behind[jumped]], obs[behind[~jumped]] = jumps.led_to, recorded.obs[ends[~jumped] + 1]
    final[behind] = True
    action, reward = spread(np.asarray(recorded.action, np.float32)), spread(recorded.reward)
    return Dataset(obs, action, reward, spread(recorded.terminated), spread(recorded.truncated), None, final)


def breaks(obs: NDArray[np.generic], next_obs: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Mask ``[N]`` of the steps that do not lead to the next row; the last row counts as one."""
    broken = np.ones(len(obs), np.bool_)
    numbers = tuple(range(1, obs.ndim))
    for start in range(0, len(obs) - 1, CHUNK):
        stop = min(start + CHUNK, len(obs) - 1)
        broken[start:stop] = (next_obs[start:stop] != obs[start + 1 : stop + 1]).any(numbers)
    return broken


def final_rows(recorded: Dataset) -> NDArray[np.bool_]:
    """Mask ``[N]`` of the rows that hold a final observation and no step."""
    return np.zeros(len(recorded.reward), np.bool_) if recorded.final is None else recorded.final


def ends(recorded: Dataset) -> NDArray[np.bool_]:
    """Mask ``[N]`` of the last step of every episode, by marks and by rows that do not continue."""
    marked, final = recorded.terminated | recorded.truncated, final_rows(recorded)
    if recorded.next_obs is not None:
        marked |= breaks(recorded.obs, recorded.next_obs)
    marked[:-1] |= final[1:]
    marked[-1] = True
    return marked & ~final


def terminated_on_end(recorded: Dataset) -> Dataset:
    """Mark each truncation as a termination, as D4RL's ``terminate_on_end`` does."""
    ended = recorded.terminated | recorded.truncated
    return recorded._replace(terminated=ended, truncated=np.zeros_like(ended))


def episodes(recorded: Dataset) -> Episodes:
    """Returns, lengths and marked ends of all episodes."""
    step = ~final_rows(recorded)
    last = np.flatnonzero(ends(recorded)[step])
    first = np.r_[0, last[:-1] + 1]
    return Episodes(
        returns=np.add.reduceat(recorded.reward[step].astype(np.float64), first),
        lengths=last - first + 1,
        closed=(recorded.terminated | recorded.truncated)[step][last],
    )
