"""The actions of a segment, recorded for replay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class ActionLog:
    """The actions of a segment, a row a step, in one array that doubles when it is full.

    A hundred thousand small arrays would fragment the memory between larger ones and keep its pages.
    """

    def __init__(self) -> None:
        self.block: NDArray[np.generic] = np.empty((0, 0))
        self.count = 0

    def add(self, action: NDArray[np.generic]) -> None:
        """Append a row, ``[N, ...]``."""
        if self.count == len(self.block):
            larger = np.empty((max(1024, 2 * self.count), *action.shape), action.dtype)
            larger[: self.count] = self.rows() if self.count else larger[:0]
            self.block = larger
        self.block[self.count] = action
        self.count += 1

    def rows(self) -> NDArray[np.generic]:
        """All rows, ``[T, N, ...]``; a view."""
        return self.block[: self.count]
