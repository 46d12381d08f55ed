"""Normalize the observations of a data set by their mean and standard deviation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.episodes import final_rows
from rlbench.datasets.hdf5 import CHUNK
from rlbench.datasets.types import Dataset

EPSILON = 1e-3
"""Added to every std, as in TD3+BC (https://arxiv.org/abs/2106.06860, §5)."""


class Scale(NamedTuple):
    """Mean and std of observations."""

    mean: NDArray[np.float32]  # [F]
    deviation: NDArray[np.float32]  # [F], positive

    def normalize(self, obs: NDArray[np.float32] | NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return normalized observations ``[…, F]``."""
        return (obs - self.mean) / self.deviation

    def normalize_in_place(self, obs: NDArray[np.float32] | NDArray[np.uint8]) -> bool:
        """Normalize observations ``[N, F]`` in place; return False for frames, which are not normalized."""
        if obs.dtype != np.float32:
            return False
        for start in range(0, len(obs), CHUNK):
            obs[start : start + CHUNK] = self.normalize(obs[start : start + CHUNK])
        return True


def scale_of(dataset: Dataset) -> Scale:
    """Mean and std of every number of the observations, summed in float64."""
    (step,) = np.nonzero(~final_rows(dataset))
    chunks = [step[start : start + CHUNK] for start in range(0, len(step), CHUNK)]
    mean = sum((dataset.obs[rows].sum(0, dtype=np.float64) for rows in chunks), np.zeros(())) / len(step)
    variance = sum((np.square(dataset.obs[rows] - mean).sum(0) for rows in chunks), np.zeros(())) / len(step)
    return Scale(mean.astype(np.float32), (np.sqrt(variance) + EPSILON).astype(np.float32))
