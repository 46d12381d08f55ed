"""Recorded experience in memory: what every file format is read into, and what own files are written from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Recorded(NamedTuple):
    """N steps in the order in which they were taken, episode after episode; nothing is dropped or made up.

    ``next_obs`` is what each step led to, the true final observation of an episode too. Files that do not store it
    leave None: then it is the next row's observation within an episode, and unknown at its end.
    """

    obs: NDArray[np.float32]  # [N, F]
    action: NDArray[np.float32]  # [N, A] in the data's own units, [−1, 1] in every known set
    reward: NDArray[np.float32]  # [N]
    terminated: NDArray[np.bool_]  # [N] nothing to bootstrap from
    truncated: NDArray[np.bool_]  # [N] the episode was cut here, and its last observation is worth something
    next_obs: NDArray[np.float32] | None  # [N, F]
    final: NDArray[np.bool_] | None = None  # [N] rows that show where an episode ended; no action was taken there
