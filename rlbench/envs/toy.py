"""Environments of a few lines whose best possible score is known.

``Catch``: a ball falls down a 10×5 board and the paddle on the last row must be under it; the best mean return is 1.
``Doors``: each of fourteen doors in a row has one of four keys, and a wrong one leads back to the first; 1 is paid
behind the last, which luck alone does not reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.base import Discrete, EnvInfo, Frames, Step
from rlbench.envs.checks import Inspection
from rlbench.errors import UsageError

ROWS: Final = 10
COLUMNS: Final = 5
ACTIONS: Final = 3  # left, stay, right

KEYS: Final = np.array([0, 3, 2, 2, 1, 3, 0, 1, 3, 2, 1, 2, 3, 3])  # which one opens each door
LIMIT: Final = 42  # steps of an episode


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
        self._inspection = Inspection(name="Catch", info=self.info, seeds=seeds)

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


class Doors:
    """N corridors, all alike; 1 for passing the last door, where an episode ends, and nothing before."""

    def __init__(self, *, seeds: Sequence[int]) -> None:
        if not seeds:
            raise UsageError("seeds: at least one lane is needed")
        lanes = len(seeds)  # nothing is drawn
        self._door, self._age = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        self._over = np.zeros(lanes, np.bool_)
        self._action = np.zeros(lanes, np.int64)
        self._lane = np.arange(lanes)
        self._lane.flags.writeable = False
        self.info: Final = EnvInfo(
            lanes=lanes,
            obs_shape=(len(KEYS) + 1,),
            obs_dtype=np.dtype(np.uint8),
            actions=Discrete(int(KEYS.max()) + 1),
            versions=(("env", f"rlbench/Doors/{len(KEYS)}"), ("numpy", np.__version__)),
        )
        self._inspection = Inspection(name="Doors", info=self.info, seeds=seeds)

    def reset(self) -> Frames:
        """Before the first door, ``[N, 15]``: 255 where one stands."""
        self._door[:], self._age[:], self._over[:] = 0, 0, False
        return self._inspection.begun(self._drawn())

    def send(self, action: NDArray[Any]) -> None:
        """Keep the actions, ``[N]``, for ``recv``."""
        self._inspection.action(action)
        self._action = action.astype(np.int64)

    def recv(self) -> Step:
        """Try every key."""
        live = ~self._over
        opened = live & (self._action == KEYS[np.minimum(self._door, len(KEYS) - 1)])
        self._door = np.where(opened, self._door + 1, 0)
        self._age = np.where(live, self._age + 1, 0)
        terminated = self._door == len(KEYS)
        truncated = (self._age == LIMIT) & ~terminated
        self._over = terminated | truncated
        score = terminated.astype(np.float64)
        step = Step(
            obs=self._drawn(),
            reward=score.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            lane=self._lane,
            score=score,
            over=self._over.copy(),
        )
        return self._inspection.answered(step)

    def close(self) -> None:
        """Nothing to let go of."""

    def _drawn(self) -> NDArray[np.uint8]:
        corridor = np.zeros((self.info.lanes, len(KEYS) + 1), np.uint8)
        corridor[self._lane, self._door] = 255
        return corridor
