"""The scale on which a learner sees a data set's observations: their own mean and standard deviation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.columns import CHUNK
from rlbench.datasets.types import Recorded

EPSILON = 1e-3
"""Added to every deviation, as TD3+BC does (https://arxiv.org/abs/2106.06860, §5)."""


class Scale(NamedTuple):
    """What is subtracted from an observation, and what the rest is divided by."""

    mean: NDArray[np.float32]  # [F]
    deviation: NDArray[np.float32]  # [F], positive

    def applied(self, obs: NDArray[np.float32] | NDArray[np.uint8]) -> NDArray[np.float32]:
        """Observations ``[…, F]`` on this scale."""
        return (obs - self.mean) / self.deviation


def scale_of(recorded: Recorded) -> Scale:
    """Mean and deviation of every number of the observations, summed in float64."""
    parts = [recorded.obs[start : start + CHUNK] for start in range(0, len(recorded.obs), CHUNK)]
    mean = sum((part.sum(0, dtype=np.float64) for part in parts), np.zeros(())) / len(recorded.obs)
    spread = sum((np.square(part - mean).sum(0) for part in parts), np.zeros(())) / len(recorded.obs)
    return Scale(mean.astype(np.float32), (np.sqrt(spread) + EPSILON).astype(np.float32))
