"""Recorded experience in memory, the common form of every file format."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Dataset(NamedTuple):
    """N steps in the order of the data, episode after episode, without additions or gaps.

    ``next_obs`` includes the true final observation of an episode. It is None where a file does not store it: then the
    next row has it within an episode, and it is unknown at the end. Recorded frames are stored once: a row marked
    ``final`` holds the final observation of an episode and no step.
    """

    obs: NDArray[np.float32] | NDArray[np.uint8]  # [N, F]; of pixels [N, height, width], single frames
    action: NDArray[np.float32] | NDArray[np.int64]  # [N, A] in the data's own units, [−1, 1] in all of D4RL; or [N]
    reward: NDArray[np.float32]  # [N]
    terminated: NDArray[np.bool_]  # [N] no bootstrap
    truncated: NDArray[np.bool_]  # [N] the episode was cut here, and its target bootstraps
    next_obs: NDArray[np.float32] | NDArray[np.uint8] | None  # [N, F]
    final: NDArray[np.bool_] | None = None  # [N] rows with a final observation and no action
