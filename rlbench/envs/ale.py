"""Atari by ale-py's own vector engine: C++ threads, one emulator a lane, nothing but ale-py needed.

Each lane is an engine of its own with one thread: only so can one lane press FIRE while the others wait, and the
answers cannot depend on timing. The engine skips, pools, greys and resizes frames; lives, FIRE, the frame limit and
rewards are decided here, because the engine's own episodic life resets the whole game, its own FIRE is one frame
pressed before the no-ops, and its own limit shows a stale last frame.

What is left that differs from the documented wrappers (NoopReset, MaxAndSkip, EpisodicLife, FireReset, Warp, Clip):

* grey comes from ALE's grey palette before the maximum over two frames, not from RGB after it;
* the answer that ends a game shows the observation before it (or, pooled with it, one frame of the last step): the
  engine takes no picture of the frame a game ends on. Nobody bootstraps from it;
* ``max_frames`` is looked at after each agent step, so a game may be up to ``frame_skip − 1`` frames longer;
* the numbers of no-ops are as uniform on 1 … ``noops``, but come from the engine's own generator, which draws from 0:
  where it draws 0 the game is reset once more, and a few games (Seaquest) remember that in a pixel or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import ale_py
import numpy as np
from numpy.typing import NDArray

from rlbench.config.tasks import AtariTask
from rlbench.envs.atari import FIRE, Answers, one_seed_per_lane, played, referee
from rlbench.envs.base import Frames, Step
from rlbench.envs.checks import Inspection
from rlbench.envs.roms import rom_of

SCREEN: Final = (210, 160, 3)
FULL_STRENGTH: Final = np.ones(1, np.float32)  # of the paddle
NEVER: Final = 2**30  # frames; the engine's own limit, out of reach
SOLE: Final = np.zeros(1, np.int64)  # the one lane of an engine


class _Said(NamedTuple):
    """One engine's answer."""

    obs: NDArray[np.uint8]  # [1, *obs_shape]
    points: int = 0
    lives: int = 0
    ended: bool = False
    frames: int = 0  # of this game so far, no-ops included


class AleVector:
    """N lanes of one game; ``coloured`` ones show the screen as people see it, ``[N, 210, 160, 3]``."""

    def __init__(self, *, task: AtariTask, seeds: Sequence[int], training: bool, coloured: bool = False) -> None:
        rom = rom_of(task.game, "ale")
        self._task = task
        self._seeds = one_seed_per_lane(seeds)
        self._engines = [_engine(task, rom, coloured=coloured) for _ in seeds]
        actions = self._engines[0].get_action_set()
        self._fire = task.fire and ale_py.Action.FIRE in actions
        self._referee = referee(task, lanes=len(seeds), training=training)
        info = played(task, lanes=len(seeds), actions=len(actions), engine="ale", package="ale-py")
        self.info: Final = info._replace(obs_shape=SCREEN) if coloured else info
        self._inspection = Inspection(name=f"ale/{task.game}", info=self.info, seeds=seeds)
        self._shown = np.zeros((len(seeds), *self.info.obs_shape), np.uint8)

    def reset(self) -> Frames:
        """Begin every lane's first game, ``[N, size, size]``."""
        with self._inspection.guarded():
            said = [self._opened(lane, self._restart(lane, seed)) for lane, seed in enumerate(self._seeds)]
        self._shown = np.concatenate([one.obs for one in said])
        self._referee.begun(np.array([one.lives for one in said]))
        return self._inspection.begun(self._shown)

    def send(self, action: NDArray[Any]) -> None:
        """Set lanes going, ``[N]``: one whose game is over resets itself, one that lost a life does nothing."""
        self._inspection.action(action)
        chosen = self._referee.chosen(action)
        with self._inspection.guarded():
            for lane in np.flatnonzero(self._referee.asked):
                self._engines[lane].send(chosen[lane : lane + 1], FULL_STRENGTH)

    def recv(self) -> Step:
        """Wait for the answers to the last ``send``."""
        with self._inspection.guarded():
            said = [self._answer(lane) for lane in range(self.info.lanes)]
        self._shown = np.concatenate([one.obs for one in said])
        answers = Answers(
            obs=self._shown,
            points=np.array([one.points for one in said], np.float64),
            lives=np.array([one.lives for one in said]),
            ended=np.array([one.ended for one in said]),
            capped=np.array([one.frames >= self._task.max_frames for one in said]),
        )
        return self._inspection.answered(self._referee.apply(answers))

    def close(self) -> None:
        """Join the engines' threads; idempotent."""
        self._engines = []

    def _answer(self, lane: int) -> _Said:
        rules = self._referee
        if not rules.asked[lane]:
            return _Said(self._shown[lane : lane + 1])
        said = _received(self._engines[lane])
        if rules.lost[lane]:
            return self._fired(lane, said)
        if rules.over[lane]:
            capped = said.frames >= self._task.max_frames  # our limit: the engine knows nothing of it and went on
            return self._opened(lane, self._restart(lane, seed=-1) if capped else said)
        return said

    def _opened(self, lane: int, said: _Said) -> _Said:
        """What a lane shows whose emulator was just reset, after at least one no-op and FIRE."""
        while said.frames == 0 and self._task.noops > 0:  # the engine draws 0 … noops; 0 is drawn again
            said = self._restart(lane, seed=-1)
        return self._fired(lane, said)

    def _restart(self, lane: int, seed: int) -> _Said:
        """Reset the emulator; a seed of −1 goes on with the engine's generator."""
        obs, info = self._engines[lane].reset(SOLE, np.array([seed]))
        return _Said(obs[0], lives=int(info["lives"][0]), frames=int(info["episode_frame_number"][0]))

    def _fired(self, lane: int, said: _Said) -> _Said:
        if not self._fire or said.ended:
            return said
        self._engines[lane].send(np.array([FIRE]), FULL_STRENGTH)
        return _received(self._engines[lane])


def _engine(task: AtariTask, rom: Path, *, coloured: bool) -> ale_py.ALEVectorInterface:
    return ale_py.ALEVectorInterface(
        rom_path=rom,
        num_envs=1,
        frame_skip=task.frame_skip,
        stack_num=1,
        img_height=SCREEN[0] if coloured else task.size,
        img_width=SCREEN[1] if coloured else task.size,
        grayscale=not coloured,
        maxpool=task.frame_skip > 1,
        noop_max=task.noops + 1,  # it draws below this number
        use_fire_reset=False,
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        max_episode_steps=NEVER,
        repeat_action_probability=task.sticky,
        full_action_space=task.full_actions,
        batch_size=0,
        num_threads=1,
        thread_affinity_offset=-1,
        autoreset_mode="NextStep",
    )


def _received(engine: ale_py.ALEVectorInterface) -> _Said:
    obs, points, ended, _, info = engine.recv()
    return _Said(
        obs[0],
        points=int(points[0]),
        lives=int(info["lives"][0]),
        ended=bool(ended[0]),
        frames=int(info["episode_frame_number"][0]),
    )
