"""What a person would see of the first lane while it plays: environments that are watched, and cameras.

Watching moves nothing: a camera reads what is there, or plays the same game a second time beside it. Pictures are
``[H, W, 3]`` bytes, red, green and blue.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from traceback import clear_frames
from typing import Any, Final, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.base import EnvInfo, Frames, Step, VectorEnv
from rlbench.envs.gymnasium import Env
from rlbench.errors import BrokenEnvironment, UsageError

Frame: TypeAlias = NDArray[np.uint8]

SHORTEST: Final = 0.03  # seconds a picture should stand; many a viewer of GIFs shows shorter ones for longer
BLOCK: Final = 24  # pixels of a square of a toy's board
FRAME: Final = 1 / 60  # seconds of an emulator's frame


class Camera(Protocol):
    """Looks at one lane."""

    look: str  # what kind of picture it takes
    seconds: float  # of play in a step

    def begun(self, obs: Frames) -> None:
        """The lanes show their first ``[N, ...]``."""

    def moved(self, action: NDArray[Any], step: Step) -> None:
        """The lanes were sent ``[N, ...]`` and answered."""

    def frame(self) -> Frame:
        """What is to be seen now."""

    def close(self) -> None:
        """Let go of what it holds."""


class RecordVideo:
    """A vector of environments whose first lane is filmed, from the beginning of its first episode to the end."""

    def __init__(self, envs: VectorEnv, camera: Camera) -> None:
        self.envs, self.camera = envs, camera
        self.every = max(1, round(SHORTEST / camera.seconds))  # steps from one picture to the next
        self.steps, self.rolling = 0, True
        self._action: NDArray[Any] = np.zeros(0)
        self._pictures: list[Frame] = []

    @property
    def info(self) -> EnvInfo:
        """Of the environments."""
        return self.envs.info

    @property
    def seconds(self) -> float:
        """Of play from one picture to the next."""
        return self.every * self.camera.seconds

    def frames(self) -> list[Frame]:
        """Those that were taken since this was asked last."""
        taken, self._pictures = self._pictures, []
        return taken

    def reset(self) -> Frames:
        """The first observations ``[N, ...]``, and the first picture."""
        obs = self.envs.reset()
        self.camera.begun(obs)
        self._pictures.append(self.camera.frame())
        return obs

    def send(self, action: NDArray[Any]) -> None:
        """Pass the actions ``[N, ...]`` on."""
        self._action = action
        self.envs.send(action)

    def recv(self) -> Step:
        """The answers."""
        step = self.envs.recv()
        if self.rolling:
            self.camera.moved(self._action, step)
            self.steps, self.rolling = self.steps + 1, not step.over[0]
            if self.steps % self.every == 0 or not self.rolling:
                self._pictures.append(self.camera.frame())
        return step

    def close(self) -> None:
        """Let environments and camera go."""
        self.camera.close()
        self.envs.close()


class Board:
    """A toy that shows a board of bytes, in large squares."""

    look = "board"

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self._board: NDArray[Any] = np.zeros((1, 1), np.uint8)

    def begun(self, obs: Frames) -> None:
        """Remember what is shown, ``[1, ...]``."""
        self._board = obs[0]

    def moved(self, action: NDArray[Any], step: Step) -> None:  # noqa: ARG002 - what led there is not drawn
        """Remember what is shown, ``[1, ...]``."""
        self._board = step.obs[0]

    def frame(self) -> Frame:
        """The board, grey."""
        large = self._board.repeat(BLOCK, 0).repeat(BLOCK, 1).astype(np.uint8)
        return np.repeat(large[..., None], 3, axis=-1)

    def close(self) -> None:
        """Nothing to let go of."""


class Screen:
    """An emulator that shows its screen, as Gymnasium's does."""

    look = "screen"

    def __init__(self, lane: Env, *, frame_skip: int) -> None:
        self.seconds = frame_skip * FRAME
        self._lane = cast("Any", lane)

    def begun(self, obs: Frames) -> None:
        """Nothing: the screen ``[H, W, 3]`` says all."""

    def moved(self, action: NDArray[Any], step: Step) -> None:
        """Nothing: the screen ``[H, W, 3]`` says all."""

    def frame(self) -> Frame:
        """The screen, ``[210, 160, 3]``."""
        return np.array(self._lane.ale.getScreenRGB(), np.uint8)

    def close(self) -> None:
        """The lane is its owner's."""


class ShadowEmulator:
    """A second emulator in colour, with the same seed and the same actions: it plays the same game."""

    look = "screen"

    def __init__(self, envs: VectorEnv, *, frame_skip: int) -> None:
        self.seconds, self._envs = frame_skip * FRAME, envs
        self._shown: Frames = np.zeros(0, np.uint8)

    def begun(self, obs: Frames) -> None:  # noqa: ARG002 - its own are in colour
        """Begin the same game; its screens are ``[H, W, 3]``."""
        self._shown = self._envs.reset()

    def moved(self, action: NDArray[Any], step: Step) -> None:
        """Do the same ``[1]``.

        Raises:
            BrokenEnvironment: it led to something else.
        """
        self._envs.send(action[:1])
        own = self._envs.recv()
        if own.score[0] != step.score[0] or own.over[0] != step.over[0]:
            name = dict(self._envs.info.versions)["env"]
            raise BrokenEnvironment(f"{name}: two emulators with equal seeds and actions went apart; leave --video out")
        self._shown = own.obs

    def frame(self) -> Frame:
        """The screen, ``[210, 160, 3]``; of the frame that a game ends on the emulator takes no picture."""
        return np.array(self._shown[0], np.uint8)

    def close(self) -> None:
        """Let the second emulator go."""
        self._envs.close()


class Rendered:
    """A simulation as OpenGL renders it, from the task's own camera.

    Raises:
        UsageError: no OpenGL works here.
    """

    look = "rendered"

    def __init__(self, lane: Env) -> None:
        self._lane = cast("Any", lane)
        self.seconds = float(self._lane.dt)
        _probe(self.frame)

    def begun(self, obs: Frames) -> None:
        """Nothing: the simulation, not ``obs`` ``[1, ...]``, says all."""

    def moved(self, action: NDArray[Any], step: Step) -> None:
        """Nothing: the simulation, not ``obs`` ``[1, ...]``, says all."""

    def frame(self) -> Frame:
        """As Gymnasium shows it, ``[480, 480, 3]`` where the task does not say otherwise."""
        return np.array(self._lane.mujoco_renderer.render("rgb_array"), np.uint8)

    def close(self) -> None:
        """Let the context go; the lane is its owner's."""
        self._lane.mujoco_renderer.close()


def _probe(render: Callable[[], object]) -> None:
    """Render once, so that a machine without OpenGL is refused before anything is played.

    Raises:
        UsageError: nothing was rendered; the message names the remedy.
    """
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        os.environ.setdefault("MUJOCO_GL", "egl")  # Gymnasium would ask for a window
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # a context that is half built complains as it goes
    try:
        render()
    except Exception as error:  # noqa: BLE001 - PyOpenGL, GLFW, MuJoCo and Gymnasium each raise their own
        clear_frames(error.__traceback__)
        backend = os.environ.get("MUJOCO_GL", "glfw")
        raise UsageError(
            f"--video: OpenGL renders no simulation here (MUJOCO_GL={backend}: {type(error).__name__}); "
            "install libegl1 and set MUJOCO_GL=egl, or leave --video out"
        ) from None
    finally:
        sys.unraisablehook = hook
