"""Recorded experience in memory, the common form of every file format: episodes, returns, scale of observations."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

CHUNK: Final = 1 << 16  # rows of one pass, so that none copies a whole column
ValueT = TypeVar("ValueT", bound=np.generic)


class Dataset(NamedTuple):
    """N rows in the order of the data, episode after episode, without gaps.

    Each observation comes once: the next row has the next observation, and a row marked ``final`` the true final one of
    an episode, without a step. At the end of an episode whose final observation is unknown this row is missing.
    """

    obs: NDArray[np.float32] | NDArray[np.uint8]  # [N, F]; of pixels [N, height, width], single frames
    action: NDArray[np.float32] | NDArray[np.int64]  # [N, A] in the data's own units, [−1, 1] in all of D4RL; or [N]
    reward: NDArray[np.float32]  # [N]
    terminated: NDArray[np.bool_]  # [N] no bootstrap
    truncated: NDArray[np.bool_]  # [N] the episode was cut here, and its target bootstraps
    final: NDArray[np.bool_]  # [N] rows with a final observation and no action


class Episodes(NamedTuple):
    """E episodes in the order of the file."""

    returns: NDArray[np.float64]  # [E] sums of rewards
    lengths: NDArray[np.int64]  # [E] steps
    ended: NDArray[np.bool_]  # [E] the file marks its end


def insert_final_rows(
    steps: Dataset, last: NDArray[np.bool_], final_obs: NDArray[np.float32] | NDArray[np.uint8]
) -> Dataset:
    """Insert the observations after the ``last`` steps ``[N]`` of episodes, ``[E, F]``, as rows marked ``final``."""
    row = np.arange(len(last)) + np.cumsum(last) - last
    count, behind = len(last) + int(last.sum()), row[last] + 1

    def spread(column: NDArray[ValueT]) -> NDArray[ValueT]:
        wide = np.zeros((count, *column.shape[1:]), column.dtype)
        wide[row] = column
        return wide

    obs, final = spread(np.asarray(steps.obs, np.float32)), spread(steps.final)
    obs[behind], final[behind] = final_obs, True
    action, reward = spread(np.asarray(steps.action, np.float32)), spread(steps.reward)
    return Dataset(obs, action, reward, spread(steps.terminated), spread(steps.truncated), final)


def ends(dataset: Dataset) -> NDArray[np.bool_]:
    """Mask ``[N]`` of the last step of every episode, by marks and final rows."""
    last = dataset.terminated | dataset.truncated
    last[:-1] |= dataset.final[1:]
    last[-1] = True
    return last & ~dataset.final


def terminated_on_end(dataset: Dataset) -> Dataset:
    """Mark each truncation as a termination, as D4RL's ``terminate_on_end`` does."""
    ended = dataset.terminated | dataset.truncated
    dataset = dataset._replace(terminated=ended, truncated=np.zeros_like(ended))
    unknown = ended & ~np.r_[dataset.final[1:], False]  # such a step would not be sampled
    return insert_final_rows(dataset, unknown, dataset.obs[unknown]) if unknown.any() else dataset


def episodes(dataset: Dataset) -> Episodes:
    """Undiscounted returns, lengths and marked ends in the order of the data; rows that do not continue end an episode.

    As in ``split_into_trajectories`` of IQL's code: the two halves of a medium-expert data set meet in such a place.
    """
    step = ~dataset.final
    last = np.flatnonzero(ends(dataset)[step])
    first = np.r_[0, last[:-1] + 1]
    return Episodes(
        returns=np.add.reduceat(dataset.reward[step].astype(np.float64), first),
        lengths=last - first + 1,
        ended=(dataset.terminated | dataset.truncated)[step][last],
    )


EPSILON = 1e-3  # added to every std, as in TD3+BC (https://arxiv.org/abs/2106.06860, §5)


class ObsScaler(NamedTuple):
    """Mean and std of observations, which a call normalizes."""

    mean: NDArray[np.float32]  # [F]
    deviation: NDArray[np.float32]  # [F], positive

    def __call__(self, obs: NDArray[np.float32] | NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return normalized observations ``[…, F]``."""
        return (obs - self.mean) / self.deviation

    def normalize_in_place(self, obs: NDArray[np.float32] | NDArray[np.uint8]) -> None:
        """Normalize observations ``[N, F]`` in place."""
        for start in range(0, len(obs), CHUNK):
            obs[start : start + CHUNK] = self(obs[start : start + CHUNK])


def fit_obs_scaler(dataset: Dataset) -> ObsScaler:
    """Mean and std of every number of the observations, summed in float64."""
    (step,) = np.nonzero(~dataset.final)
    chunks = [step[start : start + CHUNK] for start in range(0, len(step), CHUNK)]
    mean = sum((dataset.obs[rows].sum(0, dtype=np.float64) for rows in chunks), np.zeros(())) / len(step)
    variance = sum((np.square(dataset.obs[rows] - mean).sum(0) for rows in chunks), np.zeros(())) / len(step)
    return ObsScaler(mean.astype(np.float32), (np.sqrt(variance) + EPSILON).astype(np.float32))
