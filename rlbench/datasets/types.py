"""Recorded experience in memory, the common form of every file format."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


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
