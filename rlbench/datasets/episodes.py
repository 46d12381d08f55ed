"""Episodes of recorded data: their bounds and returns, and the scale of their observations."""

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


class Discontinuities(NamedTuple):
    """Steps that do not lead to the next row."""

    mask: NDArray[np.bool_]  # [N] True for such a step, and for the last
    next_obs: NDArray[np.float32]  # [J, F] their next observations


def join_episodes(dataset: Dataset, jumps: Discontinuities) -> Dataset:
    """Insert the final observation of every episode as a row of its own, marked ``final``."""
    last = dataset.terminated | dataset.truncated | jumps.mask
    row = np.arange(len(last)) + np.cumsum(last) - last
    count, behind = len(last) + int(last.sum()), row[last] + 1
    (ends,), at_jump = np.nonzero(last), jumps.mask[last]

    def spread(column: NDArray[ValueT]) -> NDArray[ValueT]:
        wide = np.zeros((count, *column.shape[1:]), column.dtype)
        wide[row] = column
        return wide

    obs, final = spread(np.asarray(dataset.obs, np.float32)), np.zeros(count, np.bool_)
    obs[behind[at_jump]], obs[behind[~at_jump]] = jumps.next_obs, dataset.obs[ends[~at_jump] + 1]
    final[behind] = True
    action, reward = spread(np.asarray(dataset.action, np.float32)), spread(dataset.reward)
    return Dataset(obs, action, reward, spread(dataset.terminated), spread(dataset.truncated), None, final)


def discontinuities(obs: NDArray[np.generic], next_obs: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Mask ``[N]`` of the steps that do not lead to the next row; the last row counts as one."""
    broken = np.ones(len(obs), np.bool_)
    numbers = tuple(range(1, obs.ndim))
    for start in range(0, len(obs) - 1, CHUNK):
        stop = min(start + CHUNK, len(obs) - 1)
        broken[start:stop] = (next_obs[start:stop] != obs[start + 1 : stop + 1]).any(numbers)
    return broken


def final_rows(dataset: Dataset) -> NDArray[np.bool_]:
    """Mask ``[N]`` of the rows that hold a final observation and no step."""
    return np.zeros(len(dataset.reward), np.bool_) if dataset.final is None else dataset.final


def ends(dataset: Dataset) -> NDArray[np.bool_]:
    """Mask ``[N]`` of the last step of every episode, by marks and by rows that do not continue."""
    last, final = dataset.terminated | dataset.truncated, final_rows(dataset)
    if dataset.next_obs is not None:
        last |= discontinuities(dataset.obs, dataset.next_obs)
    last[:-1] |= final[1:]
    last[-1] = True
    return last & ~final


def terminated_on_end(dataset: Dataset) -> Dataset:
    """Mark each truncation as a termination, as D4RL's ``terminate_on_end`` does."""
    ended = dataset.terminated | dataset.truncated
    return dataset._replace(terminated=ended, truncated=np.zeros_like(ended))


def episodes(dataset: Dataset) -> Episodes:
    """Undiscounted returns, lengths and marked ends in the order of the data; rows that do not continue end an episode.

    As in ``split_into_trajectories`` of IQL's code: the two halves of a medium-expert data set meet in such a place.
    """
    step = ~final_rows(dataset)
    last = np.flatnonzero(ends(dataset)[step])
    first = np.r_[0, last[:-1] + 1]
    return Episodes(
        returns=np.add.reduceat(dataset.reward[step].astype(np.float64), first),
        lengths=last - first + 1,
        closed=(dataset.terminated | dataset.truncated)[step][last],
    )


EPSILON = 1e-3  # added to every std, as in TD3+BC (https://arxiv.org/abs/2106.06860, §5)


class ObsScaler(NamedTuple):
    """Mean and std of observations, which a call normalizes."""

    mean: NDArray[np.float32]  # [F]
    deviation: NDArray[np.float32]  # [F], positive

    def __call__(self, obs: NDArray[np.float32] | NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return normalized observations ``[…, F]``."""
        return (obs - self.mean) / self.deviation

    def normalize_in_place(self, obs: NDArray[np.float32] | NDArray[np.uint8]) -> bool:
        """Normalize observations ``[N, F]`` in place; return False for frames, which are not normalized."""
        if obs.dtype != np.float32:
            return False
        for start in range(0, len(obs), CHUNK):
            obs[start : start + CHUNK] = self(obs[start : start + CHUNK])
        return True


def fit_obs_scaler(dataset: Dataset) -> ObsScaler:
    """Mean and std of every number of the observations, summed in float64."""
    (step,) = np.nonzero(~final_rows(dataset))
    chunks = [step[start : start + CHUNK] for start in range(0, len(step), CHUNK)]
    mean = sum((dataset.obs[rows].sum(0, dtype=np.float64) for rows in chunks), np.zeros(())) / len(step)
    variance = sum((np.square(dataset.obs[rows] - mean).sum(0) for rows in chunks), np.zeros(())) / len(step)
    return ObsScaler(mean.astype(np.float32), (np.sqrt(variance) + EPSILON).astype(np.float32))
