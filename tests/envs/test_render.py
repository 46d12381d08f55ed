"""Videos show the played episode, and recording changes nothing."""

import gc
import os
import sys
from typing import Any

import numpy as np
import pytest

from rlbench.config.tasks import AtariTask
from rlbench.envs.ale import AleVector
from rlbench.envs.base import Step, VectorEnv
from rlbench.envs.mujoco import MujocoVector
from rlbench.envs.render import BoardCamera, Frame, MujocoCamera, RecordVideo, ShadowEmulator
from rlbench.envs.toy import Catch
from rlbench.errors import BrokenEnvironment, UsageError
from tests.envs.factories import answer_to, draw

BREAKOUT = AtariTask(id="BreakoutNoFrameskip-v4", game="breakout", max_frames=400)


def play(envs: VectorEnv, steps: int) -> list[Step]:
    """Some steps of random actions."""
    envs.reset()
    rows = draw(envs.info.actions, seed=0, size=(steps, envs.info.num_envs))
    return [answer_to(envs, row) for row in rows]


class Renderer:
    """Shows where the first joint is, without OpenGL."""

    def __init__(self, env_id: Any) -> None:
        self.env_id = env_id

    def render(self, mode: str) -> Frame:
        assert mode == "rgb_array"
        return np.full((4, 4, 3), round(1000 * float(self.env_id.data.qpos[0])) % 256, np.uint8)


def rendered(envs: MujocoVector) -> MujocoCamera:
    """A camera whose frames need no OpenGL."""
    env_id: Any = envs.unwrapped()[0]
    env_id.mujoco_renderer = Renderer(env_id)
    return MujocoCamera(env_id)


def test_video_of_a_toy_task_ends_with_its_first_episode() -> None:
    video_env = RecordVideo(Catch(seeds=(3, 4)), BoardCamera(seconds=0.25))
    answers = play(video_env, 20)
    images = video_env.frames()
    assert len(images) == 10 and video_env.frames() == [] and video_env.seconds == 0.25
    for answer, image in zip(answers, images[1:], strict=False):
        assert (image[::24, ::24, 0] == answer.obs[0]).all() and image.shape == (240, 120, 3)


def test_recording_video_changes_no_episode() -> None:
    def envs_of() -> MujocoVector:
        return MujocoVector(task="Hopper-v4", seeds=(1, 2))

    plain, envs = play(envs_of(), 60), envs_of()
    video_env = play(RecordVideo(envs, rendered(envs)), 60)
    for one, other in zip(plain, video_env, strict=True):
        assert all((a == b).all() for a, b in zip(one, other, strict=True))


def test_video_skips_frames_but_includes_the_last() -> None:
    envs = MujocoVector(task="Hopper-v4", seeds=(1,))
    video_env = RecordVideo(envs, rendered(envs))
    ended = next(i for i, answer in enumerate(play(video_env, 200), 1) if answer.game_over[0])
    assert video_env.every == 4 and video_env.seconds == pytest.approx(0.032)
    assert len(video_env.frames()) == 1 + -(-ended // 4)


def test_shadow_emulator_plays_the_same_game_in_colour() -> None:
    envs = AleVector(task=BREAKOUT, seeds=(5, 6), training=False)
    double = AleVector(task=BREAKOUT, seeds=(5,), training=False, rgb=True)
    video_env = RecordVideo(envs, ShadowEmulator(double, frame_skip=4))
    answers = play(video_env, 110)
    images = video_env.frames()
    ended = next(i for i, answer in enumerate(answers, 1) if answer.game_over[0])
    assert len(images) == ended + 1 and video_env.seconds == pytest.approx(1 / 15)
    assert {image.shape for image in images} == {(210, 160, 3)}
    assert len({image.tobytes() for image in images}) > ended / 2
    for answer, image in list(zip(answers, images[1:], strict=False))[: ended - 1]:
        grey = image @ np.array([0.299, 0.587, 0.114])
        small = grey[: 210 // 5 * 5].reshape(42, 5, 32, 5).mean((1, 3))
        same = answer.obs[0].astype(float)[:84, :].reshape(42, 2, 84).mean(1)[:, np.linspace(1, 82, 32).astype(int)]
        assert np.corrcoef(small.ravel(), same.ravel())[0, 1] > 0.8


def test_diverging_shadow_emulator_is_detected() -> None:
    task = BREAKOUT.model_copy(update={"max_frames": 200})
    envs = AleVector(task=BREAKOUT, seeds=(5,), training=False)
    double = AleVector(task=task, seeds=(5,), training=False, rgb=True)
    with pytest.raises(BrokenEnvironment, match="differ; leave --video out"):
        play(RecordVideo(envs, ShadowEmulator(double, frame_skip=4)), 110)


@pytest.mark.parametrize("backend", ["disable", "glfw"])
def test_mujoco_video_without_opengl_is_refused_with_a_remedy(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MUJOCO_GL", backend)
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    env_id = MujocoVector(task="InvertedPendulum-v4", seeds=(1,)).unwrapped()[0]
    with pytest.raises(UsageError, match=rf"MUJOCO_GL={backend}: \w+\); .* set MUJOCO_GL=egl, or leave --video out"):
        MujocoCamera(env_id)
    del env_id
    gc.collect()
    assert not complaints


def test_offscreen_rendering_is_used_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    rendered(MujocoVector(task="InvertedPendulum-v4", seeds=(1,)))
    assert os.environ["MUJOCO_GL"] == "egl"
