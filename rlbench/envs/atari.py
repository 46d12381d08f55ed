"""What the Atari adapters share: which games exist, and who rules over lives, ends and clipped rewards.

The emulators are asked for raw points and whole games only; an episode that ends with a life is made here,
as the documented wrappers do: the game goes on, and what follows the loss is one no-op agent step (and one
FIRE agent step where the game has it), never a reset of the emulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench.config.tasks import AtariTask
from rlbench.envs.base import Discrete, EnvInfo, Step
from rlbench.errors import UnknownName, UsageError

NOOP: Final = 0
FIRE: Final = 1  # the place of FIRE in every action set that has it


class Answers(NamedTuple):
    """What N emulators say after one agent step each; a lane that was not asked says anything but its observation."""

    obs: NDArray[np.uint8]  # [N, size, size]
    points: NDArray[np.float64]  # [N] raw
    lives: NDArray[np.int64]  # [N] left
    ended: NDArray[np.bool_]  # [N] the game is over
    capped: NDArray[np.bool_]  # [N] the game has reached the frame limit


class Referee:
    """Turns what N emulators say into a ``Step``, and knows what the next send to each lane means."""

    def __init__(self, *, lanes: int, episodic_life: bool, clip: bool) -> None:
        self._episodic_life = episodic_life
        self._clip = clip
        self._lives = np.zeros(lanes, np.int64)
        self._ended, self._capped = np.zeros(lanes, np.bool_), np.zeros(lanes, np.bool_)
        self._lane = np.arange(lanes)
        self._lane.flags.writeable = False
        self.lost = np.zeros(lanes, np.bool_)  # [N] the next send begins the next life
        self.over = np.ones(lanes, np.bool_)  # [N] the next send begins the next game
        self.late = np.zeros(lanes, np.bool_)  # [N] the game ended while it was begun: not to be asked, it says so next

    def begun(self, lives: NDArray[np.int64]) -> None:
        """Every lane stands at the start of a game with that many lives, ``[N]``."""
        self._lives = lives
        self.over[:] = False

    @property
    def asked(self) -> NDArray[np.bool_]:
        """Which lanes' emulators take part in the next step, ``[N]``."""
        return ~self.late

    def chosen(self, action: NDArray[np.integer]) -> NDArray[np.integer]:
        """The actions, ``[N]``, with the no-op where a life or a game is about to begin."""
        return np.where(self.lost | self.over, NOOP, action)

    def apply(self, said: Answers) -> Step:
        """One row per lane; a lane that was lost or over answers with a first observation and nothing else."""
        live = ~(self.lost | self.over)
        ended = np.where(self.late, self._ended, said.ended)
        capped = np.where(self.late, self._capped, said.capped)
        lives = np.where(self.late, self._lives, said.lives)
        score = np.where(live & ~self.late, said.points, 0.0)
        lost = live & (lives > 0) & (lives < self._lives) & self._episodic_life
        over = live & (ended | capped)
        terminated = lost | (live & ended)
        self._lives, self._ended, self._capped = lives, ended, capped
        self.lost, self.over, self.late = lost & ~over, over, ~live & (ended | capped)
        return Step(
            obs=said.obs,
            reward=(np.sign(score) if self._clip else score).astype(np.float32),
            terminated=terminated,
            truncated=over & ~terminated,
            lane=self._lane,
            score=score,
            over=over,
        )


def referee(task: AtariTask, *, lanes: int, training: bool) -> Referee:
    """Life episodes and clipped rewards belong to training; evaluation plays whole games for raw points."""
    return Referee(lanes=lanes, episodic_life=training and task.episodic_life, clip=training and task.clip)


def played(task: AtariTask, *, lanes: int, actions: int, engine: str, package: str) -> EnvInfo:
    """What the lanes of a game are: grey frames ``[size, size]``, discrete actions, and who plays it."""
    return EnvInfo(
        lanes=lanes,
        obs_shape=(task.size, task.size),
        obs_dtype=np.dtype(np.uint8),
        actions=Discrete(actions),
        versions=(("env", f"{engine}/{task.game}"), (package, version(package))),
    )


def known(game: str, games: Sequence[str], *, where: str) -> str:
    """The game, if it is one of them.

    Raises:
        UnknownName: it is none.
    """
    if game not in games:
        raise UnknownName("game", game, games, where=where)
    return game


def one_seed_per_lane(seeds: Sequence[int]) -> tuple[int, ...]:
    """The seeds, folded into 1 … 2³¹−2, which every engine takes for a seed.

    Raises:
        UsageError: there is none.
    """
    if not seeds:
        raise UsageError("seeds: at least one lane is needed")
    return tuple(seed % (2**31 - 2) + 1 for seed in seeds)
