"""Record video of the first env while it plays, by a camera for each kind of environment.

Recording changes no state: a camera reads the env, or plays the same game in a second emulator. Frames are RGB bytes,
``[H, W, 3]``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from traceback import clear_frames
from typing import Any, ClassVar, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.base import Frames, Step, VectorEnv
from rlbench.envs.gymnasium import Env
from rlbench.errors import BrokenEnvironment, UsageError

Frame: TypeAlias = NDArray[np.uint8]

MIN_FRAME_SECONDS: Final = 0.03  # seconds of a frame; many viewers of GIFs slow shorter ones down
BLOCK: Final = 24  # pixels of a square of a board
FRAME: Final = 1 / 60  # seconds of an emulator's frame


class Camera:
    """Camera on one env; ``seconds`` of play pass in a step."""

    frame_kind: ClassVar[str]  # kind of frame, for the record

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds

    def on_reset(self, obs: Frames) -> None:
        """Take the first observations ``[N, ...]``."""

    def on_step(self, action: NDArray[Any], step: Step) -> None:
        """Take the actions ``[N, ...]`` and the answers of a step."""

    def frame(self) -> Frame:
        """Render the current frame."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the camera's resources; the owner of the env closes it."""


class RecordVideo:
    """A vector of environments that records the first episode of its first env."""

    def __init__(self, envs: VectorEnv, camera: Camera) -> None:
        self.envs, self.camera, self.info = envs, camera, envs.info
        self.every = max(1, round(MIN_FRAME_SECONDS / camera.seconds))  # steps from one frame to the next
        self.seconds = self.every * camera.seconds  # of play from one frame to the next
        self.steps, self.recording = 0, True
        self._action: NDArray[Any] = np.zeros(0)
        self._frames: list[Frame] = []

    def frames(self) -> list[Frame]:
        """Return and clear the frames since the last call."""
        frames, self._frames = self._frames, []
        return frames

    def reset(self) -> Frames:
        """Reset, record the first frame and return the first observations ``[N, ...]``."""
        obs = self.envs.reset()
        self.camera.on_reset(obs)
        self._frames.append(self.camera.frame())
        return obs

    def send(self, action: NDArray[Any]) -> None:
        """Send the actions ``[N, ...]``."""
        self._action = action
        self.envs.send(action)

    def recv(self) -> Step:
        """Return the answers, and record a frame where one is due."""
        step = self.envs.recv()
        if self.recording:
            self.camera.on_step(self._action, step)
            self.steps, self.recording = self.steps + 1, not step.game_over[0]
            if self.steps % self.every == 0 or not self.recording:
                self._frames.append(self.camera.frame())
        return step

    def close(self) -> None:
        """Close camera and environments."""
        self.camera.close()
        self.envs.close()


class BoardCamera(Camera):
    """Camera on a toy task whose observation is a board of bytes."""

    frame_kind = "board"
    _board: NDArray[Any]

    def on_reset(self, obs: Frames) -> None:
        """Store the board, ``[1, ...]``."""
        self._board = obs[0]

    def on_step(self, action: NDArray[Any], step: Step) -> None:  # noqa: ARG002 - actions are not drawn
        """Store the board, ``[1, ...]``."""
        self._board = step.obs[0]

    def frame(self) -> Frame:
        """Draw the board in grey, in large squares."""
        large = self._board.repeat(BLOCK, 0).repeat(BLOCK, 1).astype(np.uint8)
        return np.repeat(large[..., None], 3, axis=-1)


class ScreenCamera(Camera):
    """Camera on an emulator of Gymnasium, by its screen."""

    frame_kind = "screen"

    def __init__(self, env: Env, *, frame_skip: int) -> None:
        super().__init__(seconds=frame_skip * FRAME)
        self._env = cast("Any", env)

    def frame(self) -> Frame:
        """Read the screen, ``[210, 160, 3]``."""
        return np.array(self._env.ale.getScreenRGB(), np.uint8)


class ShadowEmulator(Camera):
    """Camera on ale-py's engine: a second emulator in colour plays the same game by equal seed and actions."""

    frame_kind = "screen"

    def __init__(self, envs: VectorEnv, *, frame_skip: int) -> None:
        super().__init__(seconds=frame_skip * FRAME)
        self._envs = envs
        self._obs: Frames = np.zeros(0, np.uint8)

    def on_reset(self, obs: Frames) -> None:  # noqa: ARG002 - its own observations are in colour
        """Begin the same game, with screens ``[H, W, 3]``."""
        self._obs = self._envs.reset()

    def on_step(self, action: NDArray[Any], step: Step) -> None:
        """Take the same action ``[1]``.

        Raises:
            BrokenEnvironment: the two games differ.
        """
        self._envs.send(action[:1])
        own = self._envs.recv()
        if own.score[0] != step.score[0] or own.game_over[0] != step.game_over[0]:
            name = dict(self._envs.info.versions)["env"]
            raise BrokenEnvironment(f"{name}: two emulators with equal seeds and actions differ; leave --video out")
        self._obs = own.obs

    def frame(self) -> Frame:
        """Return the screen, ``[210, 160, 3]``; the emulator does not render the frame on which a game ends."""
        return np.array(self._obs[0], np.uint8)

    def close(self) -> None:
        """Close the second emulator."""
        self._envs.close()


class MujocoCamera(Camera):
    """OpenGL camera on a MuJoCo simulation.

    Raises:
        UsageError: OpenGL cannot render on this machine.
    """

    frame_kind = "rendered"

    def __init__(self, env: Env) -> None:
        self._env = cast("Any", env)
        super().__init__(seconds=float(self._env.dt))
        _probe(self.frame)

    def frame(self) -> Frame:
        """Render the simulation by Gymnasium, ``[480, 480, 3]`` unless the task sets another size."""
        return np.array(self._env.mujoco_renderer.render("rgb_array"), np.uint8)

    def close(self) -> None:
        """Close the OpenGL context."""
        self._env.mujoco_renderer.close()


def _probe(render: Callable[[], object]) -> None:
    """Render once, so that a machine without OpenGL is refused before the first step."""
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        os.environ.setdefault("MUJOCO_GL", "egl")  # without it Gymnasium opens a window
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # the finalizer of a half-built context raises
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
