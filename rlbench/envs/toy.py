"""Environments of a few lines whose best possible score is known.

``Catch``: a ball falls down a 10×5 board and the paddle on the last row must be under it; the best mean return is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.base import Discrete, EnvInfo, Frames, Step
from rlbench.envs.inspection import Inspection
from rlbench.errors import UsageError

ROWS: Final = 10
COLUMNS: Final = 5
ACTIONS: Final = 3  # left, stay, right


class Catch:
    """N boards: 9 steps each, +1 for a catch, −1 for a miss."""

    def __init__(self, *, seeds: Sequence[int]) -> None:
        if not seeds:
            raise UsageError("seeds: at least one lane is needed")
        lanes = len(seeds)
        self._generators = [np.random.default_rng(seed) for seed in seeds]  # one a lane: no lane moves another's ball
        self._row = np.zeros(lanes, np.int64)
        self._column = np.zeros(lanes, np.int64)
        self._paddle = np.zeros(lanes, np.int64)
        self._over = np.ones(lanes, np.bool_)
        self._action = np.zeros(lanes, np.int64)
        self._lane = np.arange(lanes)
        self._lane.flags.writeable = False
        self.info: Final = EnvInfo(
            lanes=lanes,
            obs_shape=(ROWS, COLUMNS),
            obs_dtype=np.dtype(np.uint8),
            actions=Discrete(ACTIONS),
            versions=(("env", "rlbench/Catch"), ("numpy", np.__version__)),
        )
        self._inspection = Inspection(name="Catch", info=self.info)

    def reset(self) -> Frames:
        """The first boards, ``[N, 10, 5]``: 255 where ball and paddle are."""
        self._over[:] = True
        self._move(np.ones_like(self._paddle))
        self._over[:] = False
        return self._inspection.begun(self._drawn())

    def send(self, action: NDArray[Any]) -> None:
        """Keep the actions, ``[N]``, for ``recv``."""
        self._inspection.action(action)
        self._action = action.astype(np.int64)

    def recv(self) -> Step:
        """Let every ball fall by one row."""
        live = ~self._over
        self._move(self._action)
        over = live & (self._row == ROWS - 1)
        score = np.where(over, np.where(self._column == self._paddle, 1.0, -1.0), 0.0)
        self._over = over
        step = Step(
            obs=self._drawn(),
            reward=score.astype(np.float32),
            terminated=over,
            truncated=np.zeros_like(over),
            lane=self._lane,
            score=score,
            over=over,
        )
        return self._inspection.answered(step)

    def close(self) -> None:
        """Nothing to let go of."""

    def _move(self, action: NDArray[np.int64]) -> None:
        fresh = self._over
        moved = np.clip(self._paddle + action - 1, 0, COLUMNS - 1)
        self._paddle = np.where(fresh, COLUMNS // 2, moved)
        self._row = np.where(fresh, 0, self._row + 1)
        for lane in np.flatnonzero(fresh):
            self._column[lane] = self._generators[lane].integers(COLUMNS)

    def _drawn(self) -> NDArray[np.uint8]:
        board = np.zeros((self.info.lanes, ROWS, COLUMNS), np.uint8)
        board[self._lane, ROWS - 1, self._paddle] = 255
        board[self._lane, self._row, self._column] = 255
        return board
