"""One Atari game behind the reference wrappers, written out literally; tests compare the fast engines with it.

NoopReset → MaxAndSkip → EpisodicLife (training) → FireReset → Warp → Clip (training), on a single ``ale_py.AtariEnv``
that returns raw RGB frames. Every step's info has two more keys: ``SCORE``, the raw points, and ``OVER``, True at the
end of a whole game. There is no known difference from the reference; the ring buffer stacks the frames.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import ale_py
import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlbench.config.tasks import AtariTask
from rlbench.envs.ale import rom_of
from rlbench.envs.atari import FIRE, NOOP
from rlbench.envs.base import OVER, SCORE
from rlbench.errors import UsageError
from rlbench.versions import version

Frame: TypeAlias = NDArray[np.uint8]
Info: TypeAlias = dict[str, Any]
Game: TypeAlias = gymnasium.Env[Frame, Any]
StepResult: TypeAlias = tuple[Frame, float, bool, bool, Info]
REMEDY = 'pip install opencv-python-headless, or env = "ale"'


def reference_env(task: AtariTask, *, training: bool) -> Callable[[], Game]:
    """Return a factory of one env.

    Raises:
        UsageError: the game's ROM or OpenCV is missing.
    """
    rom_of(task.game, "gymnasium")
    if find_spec("cv2") is None:
        raise UsageError(f"task.env: 'gymnasium' resizes Atari frames with OpenCV, which is not installed: {REMEDY}")
    return lambda: _chain(task, training=training)


def versions() -> tuple[tuple[str, str], ...]:
    """Versions of ale-py and OpenCV, for the record."""
    return (("ale-py", version("ale-py")), ("opencv", str(import_module("cv2").__version__)))


def _chain(task: AtariTask, *, training: bool) -> Game:
    base = ale_py.AtariEnv(
        task.game,
        frameskip=1,
        repeat_action_probability=task.sticky,
        full_action_space=task.full_actions,
        max_num_frames_per_episode=task.max_frames,
    )
    game: Game = MaxAndSkip(NoopReset(base, task.noops), task.frame_skip)
    game = EpisodicLife(game, base, ends=training and task.episodic_life)
    if task.fire and "FIRE" in base.get_action_meanings():
        game = FireReset(game)
    return Clip(Warp(game, task.size), signs=training and task.clip)


class NoopReset(gymnasium.Wrapper[Frame, Any, Frame, Any]):
    """Take 1 … ``most`` no-op frames after a reset, so that games begin differently (Mnih et al. 2015)."""

    def __init__(self, env: Game, most: int) -> None:
        super().__init__(env)
        self.most = most

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Frame, Info]:
        """Return the frame after the no-ops, ``[210, 160, 3]``."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self.most == 0:
            return obs, info
        for _ in range(int(self.unwrapped.np_random.integers(1, self.most + 1))):
            obs, _, terminated, truncated, info = self.env.step(NOOP)
            if terminated or truncated:
                obs, info = self.env.reset()
        return obs, info


class MaxAndSkip(gymnasium.Wrapper[Frame, Any, Frame, Any]):
    """Repeat an action for ``skip`` frames; the observation is the maximum of the last two, against flicker."""

    def __init__(self, env: Game, skip: int) -> None:
        super().__init__(env)
        self.skip = skip

    def step(self, action: Any) -> StepResult:  # noqa: ANN401  # Gymnasium's signature
        """Take one agent step, up to the end of the game."""
        frames: list[Frame] = []
        points = 0.0
        terminated = truncated = False
        info: Info = {}
        while len(frames) < self.skip and not (terminated or truncated):
            obs, reward, terminated, truncated, info = self.env.step(action)
            frames.append(obs)
            points += float(reward)
        return np.maximum(*frames[-2:]) if len(frames) > 1 else frames[0], points, terminated, truncated, info


class EpisodicLife(gymnasium.Wrapper[Frame, Any, Frame, Any]):
    """End the episode with a lost life where ``ends`` is set; only the end of a game resets the emulator."""

    def __init__(self, env: Game, base: ale_py.AtariEnv, *, ends: bool) -> None:
        super().__init__(env)
        self.base, self.ends = base, ends
        self.lives, self.over = 0, True

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Frame, Info]:
        """Return the first frame of the next game, or of the next life after one no-op agent step."""
        if self.over:
            obs, info = self.env.reset(seed=seed, options=options)
            self.over = False
        else:
            obs, _, _, _, info = self.env.step(NOOP)
        self.lives = self.base.ale.lives()
        return obs, info

    def step(self, action: Any) -> StepResult:  # noqa: ANN401  # Gymnasium's signature
        """Take one step; zero lives are no loss, since some games stay there for a while before they end."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.over = terminated or truncated
        lives, self.lives = self.lives, self.base.ale.lives()
        lost = self.ends and 0 < self.lives < lives
        return obs, float(reward), terminated or lost, truncated, {**info, OVER: self.over}


class FireReset(gymnasium.Wrapper[Frame, Any, Frame, Any]):
    """Take one FIRE agent step after a reset, for games that wait for it, and keep its frame alone."""

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Frame, Info]:
        """Return the frame after FIRE."""
        self.env.reset(seed=seed, options=options)
        obs, _, _, _, info = self.env.step(FIRE)
        return obs, info


class Warp(gymnasium.ObservationWrapper[Frame, Any, Frame]):
    """Grey frames of ``size`` × ``size`` pixels, area-interpolated."""

    def __init__(self, env: Game, size: int) -> None:
        super().__init__(env)
        self.cv2, self.size = import_module("cv2"), size
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size), np.uint8)

    def observation(self, observation: Frame) -> Frame:
        """``[210, 160, 3]`` → ``[size, size]``."""
        grey = self.cv2.cvtColor(observation, self.cv2.COLOR_RGB2GRAY)
        small: Frame = self.cv2.resize(grey, (self.size, self.size), interpolation=self.cv2.INTER_AREA)
        return small


class Clip(gymnasium.Wrapper[Frame, Any, Frame, Any]):
    """Clip the reward to its sign where ``signs`` is set; the info keeps the points."""

    def __init__(self, env: Game, *, signs: bool) -> None:
        super().__init__(env)
        self.signs = signs

    def step(self, action: Any) -> StepResult:  # noqa: ANN401  # Gymnasium's signature
        """Take one step and clip its reward."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        points = float(reward)
        return obs, float(np.sign(points)) if self.signs else points, terminated, truncated, {**info, SCORE: points}
