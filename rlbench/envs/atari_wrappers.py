"""One Atari game behind the documented wrappers, each written out: slow, literal, the yardstick of the fast engines.

NoopReset → MaxAndSkip → EpisodicLife (training) → FireReset → Warp → Clip (training), on a single ``ale_py.AtariEnv``
that shows raw RGB frames. Two keys are added to every step's info: ``score``, the raw points, and ``over``, whether
the whole game ended. Known deviations from the documented chain: none; the frame stack is made in the ring buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, TypeAlias

import ale_py
import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlbench.config.tasks import AtariTask
from rlbench.envs.atari import FIRE, NOOP
from rlbench.envs.roms import rom_of
from rlbench.errors import UsageError

Frame: TypeAlias = NDArray[np.uint8]
Info: TypeAlias = dict[str, Any]
Game: TypeAlias = gymnasium.Env[Frame, Any]
Stepped: TypeAlias = tuple[Frame, float, bool, bool, Info]
REMEDY = 'pip install opencv-python-headless, or env = "ale"'


def documented(task: AtariTask, *, training: bool) -> Callable[[], Game]:
    """How one lane is made, once game and OpenCV are known to be there.

    Raises:
        UsageError: one of them is missing.
    """
    rom_of(task.game, "gymnasium")
    if find_spec("cv2") is None:
        raise UsageError(f"task.env: 'gymnasium' resizes Atari frames with OpenCV, which is not installed: {REMEDY}")
    return lambda: _chain(task, training=training)


def versions() -> tuple[tuple[str, str], ...]:
    """What steps and shows it, besides Gymnasium."""
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
    """After a reset, 1 … ``most`` raw frames of doing nothing, so that games begin differently."""

    def __init__(self, env: Game, most: int) -> None:
        super().__init__(env)
        self.most = most

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Frame, Info]:
        """The frame after the no-ops, ``[210, 160, 3]``."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self.most == 0:
            return obs, info
        for _ in range(int(self.unwrapped.np_random.integers(1, self.most + 1))):
            obs, _, terminated, truncated, info = self.env.step(NOOP)
            if terminated or truncated:
                obs, info = self.env.reset()
        return obs, info


class MaxAndSkip(gymnasium.Wrapper[Frame, Any, Frame, Any]):
    """The same action for ``skip`` frames; shows the maximum of the last two, which undoes flicker."""

    def __init__(self, env: Game, skip: int) -> None:
        super().__init__(env)
        self.skip = skip

    def step(self, action: Any) -> Stepped:  # noqa: ANN401  # Gymnasium's signature
        """One agent step; stops where the game stops."""
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
    """A lost life ends the episode, where ``ends`` says so, but only a lost game resets the emulator."""

    def __init__(self, env: Game, base: ale_py.AtariEnv, *, ends: bool) -> None:
        super().__init__(env)
        self.base, self.ends = base, ends
        self.lives, self.over = 0, True

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Frame, Info]:
        """The first frame of the next game, or the frame after one no-op agent step."""
        if self.over:
            obs, info = self.env.reset(seed=seed, options=options)
            self.over = False
        else:
            obs, _, _, _, info = self.env.step(NOOP)
        self.lives = self.base.ale.lives()
        return obs, info

    def step(self, action: Any) -> Stepped:  # noqa: ANN401  # Gymnasium's signature
        """Zero lives do not count as a loss: some games stay there for a while before they end."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.over = terminated or truncated
        lives, self.lives = self.lives, self.base.ale.lives()
        lost = self.ends and 0 < self.lives < lives
        return obs, float(reward), terminated or lost, truncated, {**info, "over": self.over}


class FireReset(gymnasium.Wrapper[Frame, Any, Frame, Any]):
    """After a reset, one FIRE agent step, for games that wait for it; what it answers but the frame is dropped."""

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Frame, Info]:
        """The frame after FIRE."""
        self.env.reset(seed=seed, options=options)
        obs, _, _, _, info = self.env.step(FIRE)
        return obs, info


class Warp(gymnasium.ObservationWrapper[Frame, Any, Frame]):
    """Grey and ``size`` × ``size`` pixels, area-interpolated."""

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
    """The sign of the reward, where ``signs`` says so; the points stay in the info."""

    def __init__(self, env: Game, *, signs: bool) -> None:
        super().__init__(env)
        self.signs = signs

    def step(self, action: Any) -> Stepped:  # noqa: ANN401  # Gymnasium's signature
        """The same step with its reward's sign."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        points = float(reward)
        return obs, float(np.sign(points)) if self.signs else points, terminated, truncated, {**info, "score": points}
