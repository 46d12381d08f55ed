"""Toy environments with a known maximum score.

``Catch``: a ball falls down a 10×5 board and the paddle on the last row must be under it; the best mean return is 1.
``Doors``: each of fourteen doors in a row opens by one of four keys, and a wrong key leads back to the first door.
The reward is 1 behind the last door, which random actions do not reach.
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

KEYS: Final = np.array([0, 3, 2, 2, 1, 3, 0, 1, 3, 2, 1, 2, 3, 3])  # the right key of each door
LIMIT: Final = 42  # steps of an episode


class Catch:
    """N boards: 9 steps each, +1 for a catch, −1 for a miss."""

    def __init__(self, *, seeds: Sequence[int]) -> None:
        if not seeds:
            raise UsageError("seeds: at least one env is needed")
        num_envs = len(seeds)
        self._generators = [np.random.default_rng(seed) for seed in seeds]  # one for each env
        self._row = np.zeros(num_envs, np.int64)
        self._column = np.zeros(num_envs, np.int64)
        self._paddle = np.zeros(num_envs, np.int64)
        self._over = np.ones(num_envs, np.bool_)
        self._action = np.zeros(num_envs, np.int64)
        self._env_ids = np.arange(num_envs)
        self._env_ids.flags.writeable = False
        self.info: Final = EnvInfo(
            num_envs=num_envs,
            obs_shape=(ROWS, COLUMNS),
            obs_dtype=np.dtype(np.uint8),
            actions=Discrete(ACTIONS),
            versions=(("env", "rlbench/Catch"), ("numpy", np.__version__)),
        )
        self._inspection = Inspection(name="Catch", info=self.info, seeds=seeds)

    def reset(self) -> Frames:
        """Return the first boards, ``[N, 10, 5]``: 255 at ball and paddle."""
        self._over[:] = True
        self._move(np.ones_like(self._paddle))
        self._over[:] = False
        return self._inspection.check_reset(self._boards())

    def send(self, action: NDArray[Any]) -> None:
        """Store the actions, ``[N]``, for ``recv``."""
        self._inspection.check_action(action)
        self._action = action.astype(np.int64)

    def recv(self) -> Step:
        """Let every ball fall by one row."""
        live = ~self._over
        self._move(self._action)
        over = live & (self._row == ROWS - 1)
        score = np.where(over, np.where(self._column == self._paddle, 1.0, -1.0), 0.0)
        self._over = over
        step = Step(
            obs=self._boards(),
            reward=score.astype(np.float32),
            terminated=over,
            truncated=np.zeros_like(over),
            env_id=self._env_ids,
            score=score,
            over=over,
        )
        return self._inspection.check_step(step)

    def close(self) -> None:
        """Do nothing."""

    def _move(self, action: NDArray[np.int64]) -> None:
        new = self._over
        paddle = np.clip(self._paddle + action - 1, 0, COLUMNS - 1)
        self._paddle = np.where(new, COLUMNS // 2, paddle)
        self._row = np.where(new, 0, self._row + 1)
        for env_id in np.flatnonzero(new):
            self._column[env_id] = self._generators[env_id].integers(COLUMNS)

    def _boards(self) -> NDArray[np.uint8]:
        board = np.zeros((self.info.num_envs, ROWS, COLUMNS), np.uint8)
        board[self._env_ids, ROWS - 1, self._paddle] = 255
        board[self._env_ids, self._row, self._column] = 255
        return board


class Doors:
    """N equal corridors; the reward is 1 behind the last door, where the episode ends."""

    def __init__(self, *, seeds: Sequence[int]) -> None:
        if not seeds:
            raise UsageError("seeds: at least one env is needed")
        num_envs = len(seeds)  # the envs are deterministic
        self._door, self._age = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, np.bool_)
        self._action = np.zeros(num_envs, np.int64)
        self._env_ids = np.arange(num_envs)
        self._env_ids.flags.writeable = False
        self.info: Final = EnvInfo(
            num_envs=num_envs,
            obs_shape=(len(KEYS) + 1,),
            obs_dtype=np.dtype(np.uint8),
            actions=Discrete(int(KEYS.max()) + 1),
            versions=(("env", f"rlbench/Doors/{len(KEYS)}"), ("numpy", np.__version__)),
        )
        self._inspection = Inspection(name="Doors", info=self.info, seeds=seeds)

    def reset(self) -> Frames:
        """Return the first observations, before the first door, ``[N, 15]``: 255 at the position."""
        self._door[:], self._age[:], self._over[:] = 0, 0, False
        return self._inspection.check_reset(self._boards())

    def send(self, action: NDArray[Any]) -> None:
        """Store the actions, ``[N]``, for ``recv``."""
        self._inspection.check_action(action)
        self._action = action.astype(np.int64)

    def recv(self) -> Step:
        """Try the key of every env."""
        live = ~self._over
        advances = live & (self._action == KEYS[np.minimum(self._door, len(KEYS) - 1)])
        self._door = np.where(advances, self._door + 1, 0)
        self._age = np.where(live, self._age + 1, 0)
        terminated = self._door == len(KEYS)
        truncated = (self._age == LIMIT) & ~terminated
        self._over = terminated | truncated
        score = terminated.astype(np.float64)
        step = Step(
            obs=self._boards(),
            reward=score.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            env_id=self._env_ids,
            score=score,
            over=self._over.copy(),
        )
        return self._inspection.check_step(step)

    def close(self) -> None:
        """Do nothing."""

    def _boards(self) -> NDArray[np.uint8]:
        corridor = np.zeros((self.info.num_envs, len(KEYS) + 1), np.uint8)
        corridor[self._env_ids, self._door] = 255
        return corridor
