"""What the recorded policy got, episode by episode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.episodes import episodes
from rlbench.datasets.types import Recorded


def episode_returns(recorded: Recorded) -> NDArray[np.float64]:
    """Undiscounted returns, ``[E]``, in the order of the data; one that nobody marked ends where its rows do.

    As in IQL's own ``split_into_trajectories``: two halves of a data set laid together meet in such a place.
    """
    return episodes(recorded).returns
