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

ROWS: Final = 10
COLUMNS: Final = 5
ACTIONS: Final = 3  # left, stay, right

KEYS: Final = np.array([0, 3, 2, 2, 1, 3, 0, 1, 3, 2, 1, 2, 3, 3])  # the right key of each door
LIMIT: Final = 42  # steps of an episode


class ToyVector:
    """N envs of one game, with observations of bytes."""

    def __init__(self, *, name: str, obs_shape: tuple[int, ...], actions: int, seeds: Sequence[int]) -> None:
        self.info: Final = EnvInfo(
            num_envs=len(seeds),
            obs_shape=obs_shape,
            obs_dtype=np.dtype(np.uint8),
            actions=Discrete(actions),
            versions=(("env", f"rlbench/{name}"), ("numpy", np.__version__)),
        )
        self._over = np.zeros(len(seeds), np.bool_)
        self._action = np.zeros(len(seeds), np.int64)
        self._env_ids = np.arange(len(seeds))
        self._env_ids.flags.writeable = False
        self._inspection = Inspection(name=name.partition("/")[0], info=self.info, seeds=seeds)

    def send(self, action: NDArray[Any]) -> None:
        """Store the actions, ``[N]``, for ``recv``."""
        self._inspection.check_action(action)
        self._action = action.astype(np.int64)

    def close(self) -> None:
        """Do nothing."""

    def _step(self, obs: Frames, score: NDArray[np.float64], truncated: NDArray[np.bool_]) -> Step:
        """Step whose episodes end as ``_over`` says."""
        step = Step(
            obs=obs,
            reward=score.astype(np.float32),
            terminated=self._over & ~truncated,
            truncated=truncated,
            env_id=self._env_ids,
            score=score,
            game_over=self._over.copy(),
        )
        return self._inspection.check_step(step)


class Catch(ToyVector):
    """N boards: 9 steps each, +1 for a catch, −1 for a miss."""

    def __init__(self, *, seeds: Sequence[int]) -> None:
        super().__init__(name="Catch", obs_shape=(ROWS, COLUMNS), actions=ACTIONS, seeds=seeds)
        self._generators = [np.random.default_rng(seed) for seed in seeds]  # one for each env
        self._row, self._column, self._paddle = np.zeros((3, len(seeds)), np.int64)

    def reset(self) -> Frames:
        """Return the first boards, ``[N, 10, 5]``: 255 at ball and paddle."""
        self._over[:] = True
        self._move(np.ones_like(self._paddle))
        self._over[:] = False
        return self._inspection.check_reset(self._boards())

    def recv(self) -> Step:
        """Let every ball fall by one row."""
        self._move(self._action)
        self._over = self._row == ROWS - 1
        score = np.where(self._over, np.where(self._column == self._paddle, 1.0, -1.0), 0.0)
        return self._step(self._boards(), score, truncated=np.zeros_like(self._over))

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


class Doors(ToyVector):
    """N equal, deterministic corridors; the reward is 1 behind the last door, where the episode ends."""

    def __init__(self, *, seeds: Sequence[int]) -> None:
        super().__init__(
            name=f"Doors/{len(KEYS)}", obs_shape=(len(KEYS) + 1,), actions=int(KEYS.max()) + 1, seeds=seeds
        )
        self._door, self._age = np.zeros((2, len(seeds)), np.int64)

    def reset(self) -> Frames:
        """Return the first observations, before the first door, ``[N, 15]``: 255 at the position."""
        self._door[:], self._age[:], self._over[:] = 0, 0, False
        return self._inspection.check_reset(self._boards())

    def recv(self) -> Step:
        """Try the key of every env."""
        live = ~self._over
        advances = live & (self._action == KEYS[np.minimum(self._door, len(KEYS) - 1)])
        self._door = np.where(advances, self._door + 1, 0)
        self._age = np.where(live, self._age + 1, 0)
        terminated = self._door == len(KEYS)
        truncated = (self._age == LIMIT) & ~terminated
        self._over = terminated | truncated
        return self._step(self._boards(), terminated.astype(np.float64), truncated)

    def _boards(self) -> NDArray[np.uint8]:
        corridor = np.zeros((self.info.num_envs, len(KEYS) + 1), np.uint8)
        corridor[self._env_ids, self._door] = 255
        return corridor
