"""What the recorded policy got: returns of whole episodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.types import Recorded


def episode_returns(recorded: Recorded) -> NDArray[np.float64]:
    """Undiscounted returns of the episodes that have an end, ``[E]``, in the order of the data."""
    (ends,) = np.nonzero(recorded.terminated | recorded.truncated)
    total = np.cumsum(recorded.reward, dtype=np.float64)[ends]
    return np.diff(total, prepend=0.0)
