"""Returns of recorded episodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.episodes import episodes
from rlbench.datasets.types import Dataset


def episode_returns(dataset: Dataset) -> NDArray[np.float64]:
    """Undiscounted returns, ``[E]``, in the order of the data; an unmarked episode ends where rows do not continue.

    As in ``split_into_trajectories`` of IQL's code: the two halves of a medium-expert data set meet in such a place.
    """
    return episodes(dataset).returns
