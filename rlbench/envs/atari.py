"""Rules that the Atari adapters share: lives, ends of episodes and clipped rewards.

The emulators return raw points and whole games only. An episode that ends with a life is made here, as the reference
wrappers do: after the loss the game continues with one no-op agent step (and one FIRE agent step where the game has
it), without a reset of the emulator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

import ale_py
import numpy as np
from numpy.typing import NDArray

from rlbench.config.tasks import AtariTask
from rlbench.envs.base import Discrete, EnvInfo, Frames, Step
from rlbench.envs.checks import Inspection
from rlbench.versions import version

NOOP: Final = 0
FIRE: Final = 1  # index of FIRE in every action set that has it


class Answers(NamedTuple):
    """Answers of N emulators to one agent step each; of a skipped env only the observation is valid."""

    obs: NDArray[np.uint8]  # [N, size, size]
    points: NDArray[np.float64]  # [N] raw
    lives: NDArray[np.int64]  # [N] left
    ended: NDArray[np.bool_]  # [N] the game is over
    capped: NDArray[np.bool_]  # [N] the game has reached the frame limit


class EpisodeTracker:
    """Turn the answers of N emulators into a ``Step``, and decide the meaning of the next send to each env."""

    def __init__(self, *, num_envs: int, episodic_life: bool, clip: bool) -> None:
        self._episodic_life = episodic_life
        self._clip = clip
        self._lives = np.zeros(num_envs, np.int64)
        self._ended, self._capped = np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        self._env_ids = np.arange(num_envs)
        self._env_ids.flags.writeable = False
        self.life_lost = np.zeros(num_envs, np.bool_)  # [N] the next send begins the next life
        self.game_over = np.ones(num_envs, np.bool_)  # [N] the next send begins the next game
        # [N] the game ended while it began: its end is reported in the next step, without the emulator
        self.unreported_end = np.zeros(num_envs, np.bool_)

    def begin(self, lives: NDArray[np.int64]) -> None:
        """Begin a game in every env, with the lives ``[N]``."""
        self._lives = lives
        self.game_over[:] = False

    @property
    def active(self) -> NDArray[np.bool_]:
        """Mask of the envs whose emulators take part in the next step, ``[N]``."""
        return ~self.unreported_end

    def emulator_action(self, action: NDArray[np.integer]) -> NDArray[np.integer]:
        """The actions, ``[N]``, with the no-op where a life or a game begins next."""
        return np.where(self.life_lost | self.game_over, NOOP, action)

    def apply(self, answers: Answers) -> Step:
        """Return the step of all envs; an env whose life or game begins answers with its first observation alone."""
        live = ~(self.life_lost | self.game_over)
        ended = np.where(self.unreported_end, self._ended, answers.ended)
        capped = np.where(self.unreported_end, self._capped, answers.capped)
        lives = np.where(self.unreported_end, self._lives, answers.lives)
        score = np.where(live & ~self.unreported_end, answers.points, 0.0)
        lost = live & (lives > 0) & (lives < self._lives) & self._episodic_life
        over = live & (ended | capped)
        terminated = lost | (live & ended)
        self._lives, self._ended, self._capped = lives, ended, capped
        self.life_lost, self.game_over, self.unreported_end = lost & ~over, over, ~live & (ended | capped)
        return Step(
            obs=answers.obs,
            reward=(np.sign(score) if self._clip else score).astype(np.float32),
            terminated=terminated,
            truncated=over & ~terminated,
            env_id=self._env_ids,
            score=score,
            game_over=over,
        )


class AtariVector(ABC):
    """N emulators of one game and their ``EpisodeTracker``; a subclass drives the engine and fills in ``_answers``."""

    def __init__(
        self,
        *,
        task: AtariTask,
        seeds: Sequence[int],
        training: bool,
        actions: Sequence[ale_py.Action],
        engine: tuple[str, str],
        obs_shape: tuple[int, ...] | None = None,
    ) -> None:
        """``engine``: its name and its package; ``obs_shape`` of one env, ``[size, size]`` by default."""
        num_envs, (name, package) = len(seeds), engine
        self._task = task
        self._fire = task.fire and ale_py.Action.FIRE in actions
        self._tracker = EpisodeTracker(
            num_envs=num_envs, episodic_life=training and task.episodic_life, clip=training and task.clip
        )
        self.info: Final = EnvInfo(
            num_envs=num_envs,
            obs_shape=obs_shape or (task.size, task.size),
            obs_dtype=np.dtype(np.uint8),
            actions=Discrete(len(actions)),
            versions=(("env", f"{name}/{task.game}"), (package, version(package))),
        )
        self._inspection = Inspection(name=f"{name}/{task.game}", info=self.info, seeds=seeds)
        self._answers = Answers(
            obs=np.zeros((num_envs, *self.info.obs_shape), np.uint8),
            points=np.zeros(num_envs, np.float64),
            lives=np.zeros(num_envs, np.int64),
            ended=np.zeros(num_envs, np.bool_),
            capped=np.zeros(num_envs, np.bool_),
        )

    def reset(self) -> Frames:
        """Begin every env's first game, ``[N, *obs_shape]``."""
        with self._inspection.engine_errors():
            self._begin_games()
        self._tracker.begin(self._answers.lives)
        return self._inspection.check_reset(self._answers.obs)

    def send(self, action: NDArray[Any]) -> None:
        """Start a step of the envs, ``[N]``: a no-op after a lost life, a reset after a game."""
        self._inspection.check_action(action)
        env_ids = np.flatnonzero(self._tracker.active)
        with self._inspection.engine_errors():
            self._send(self._tracker.emulator_action(action)[env_ids], env_ids)

    def recv(self) -> Step:
        """Wait for the answers to the last ``send``."""
        self._answers = deepcopy(self._answers)  # a skipped env repeats its last answer
        with self._inspection.engine_errors():
            self._receive(np.flatnonzero(self._tracker.active))
        return self._inspection.check_step(self._tracker.apply(self._answers))

    @abstractmethod
    def _begin_games(self) -> None: ...

    @abstractmethod
    def _send(self, action: NDArray[np.integer], env_ids: NDArray[np.int64]) -> None: ...

    @abstractmethod
    def _receive(self, env_ids: NDArray[np.int64]) -> None: ...


def one_seed_per_env(seeds: Sequence[int]) -> tuple[int, ...]:
    """Map the seeds to 1 … 2³¹−2, the range that every engine supports."""
    return tuple(seed % (2**31 - 2) + 1 for seed in seeds)
