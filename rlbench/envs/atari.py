"""Rules that the Atari adapters share: lives, ends of episodes and clipped rewards.

The emulators return raw points and whole games only. An episode that ends with a life is made here, as the reference
wrappers do: after the loss the game continues with one no-op agent step (and one FIRE agent step where the game has
it), without a reset of the emulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench.config.tasks import AtariTask
from rlbench.envs.base import Discrete, EnvInfo, Step
from rlbench.errors import UsageError

NOOP: Final = 0
FIRE: Final = 1  # index of FIRE in every action set that has it


class Answers(NamedTuple):
    """Answers of N emulators to one agent step each; of a skipped env only the observation is valid."""

    obs: NDArray[np.uint8]  # [N, size, size]
    points: NDArray[np.float64]  # [N] raw
    lives: NDArray[np.int64]  # [N] left
    ended: NDArray[np.bool_]  # [N] the game is over
    capped: NDArray[np.bool_]  # [N] the game has reached the frame limit


def no_answers(num_envs: int, obs_shape: tuple[int, ...]) -> Answers:
    """Answers of zeros, which are filled in place."""
    return Answers(
        obs=np.zeros((num_envs, *obs_shape), np.uint8),
        points=np.zeros(num_envs, np.float64),
        lives=np.zeros(num_envs, np.int64),
        ended=np.zeros(num_envs, np.bool_),
        capped=np.zeros(num_envs, np.bool_),
    )


class Referee:
    """Turn the answers of N emulators into a ``Step``, and decide the meaning of the next send to each env."""

    def __init__(self, *, num_envs: int, episodic_life: bool, clip: bool) -> None:
        self._episodic_life = episodic_life
        self._clip = clip
        self._lives = np.zeros(num_envs, np.int64)
        self._ended, self._capped = np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        self._env_ids = np.arange(num_envs)
        self._env_ids.flags.writeable = False
        self.lost = np.zeros(num_envs, np.bool_)  # [N] the next send begins the next life
        self.over = np.ones(num_envs, np.bool_)  # [N] the next send begins the next game
        # [N] the game ended while it began: its end is reported in the next step, without the emulator
        self.late = np.zeros(num_envs, np.bool_)

    def begin(self, lives: NDArray[np.int64]) -> None:
        """Begin a game in every env, with the lives ``[N]``."""
        self._lives = lives
        self.over[:] = False

    @property
    def active(self) -> NDArray[np.bool_]:
        """Mask of the envs whose emulators take part in the next step, ``[N]``."""
        return ~self.late

    def emulator_action(self, action: NDArray[np.integer]) -> NDArray[np.integer]:
        """The actions, ``[N]``, with the no-op where a life or a game begins next."""
        return np.where(self.lost | self.over, NOOP, action)

    def apply(self, answers: Answers) -> Step:
        """Return the step of all envs; an env whose life or game begins answers with its first observation alone."""
        live = ~(self.lost | self.over)
        ended = np.where(self.late, self._ended, answers.ended)
        capped = np.where(self.late, self._capped, answers.capped)
        lives = np.where(self.late, self._lives, answers.lives)
        score = np.where(live & ~self.late, answers.points, 0.0)
        lost = live & (lives > 0) & (lives < self._lives) & self._episodic_life
        over = live & (ended | capped)
        terminated = lost | (live & ended)
        self._lives, self._ended, self._capped = lives, ended, capped
        self.lost, self.over, self.late = lost & ~over, over, ~live & (ended | capped)
        return Step(
            obs=answers.obs,
            reward=(np.sign(score) if self._clip else score).astype(np.float32),
            terminated=terminated,
            truncated=over & ~terminated,
            env_id=self._env_ids,
            score=score,
            over=over,
        )


def referee(task: AtariTask, *, num_envs: int, training: bool) -> Referee:
    """Build the rules of a task; only training ends episodes with a life and clips rewards."""
    return Referee(num_envs=num_envs, episodic_life=training and task.episodic_life, clip=training and task.clip)


def atari_info(task: AtariTask, *, num_envs: int, actions: int, engine: str, package: str) -> EnvInfo:
    """Constants of the envs of a game: grey frames ``[size, size]``, discrete actions, engine and package version."""
    return EnvInfo(
        num_envs=num_envs,
        obs_shape=(task.size, task.size),
        obs_dtype=np.dtype(np.uint8),
        actions=Discrete(actions),
        versions=(("env", f"{engine}/{task.game}"), (package, version(package))),
    )


def one_seed_per_env(seeds: Sequence[int]) -> tuple[int, ...]:
    """Map the seeds to 1 … 2³¹−2, the range that every engine supports.

    Raises:
        UsageError: ``seeds`` is empty.
    """
    if not seeds:
        raise UsageError("seeds: at least one env is needed")
    return tuple(seed % (2**31 - 2) + 1 for seed in seeds)
