"""Atari by EnvPool: one pool of C++ threads under all lanes; an optional extra, ``pip install "rlbench[envpool]"``.

The pool skips, pools, greys and resizes frames, resets games and ends them at the step limit; lives, FIRE and rewards
are decided here, because the pool's own episodic life presses no-ops after every loss and its own FIRE is one frame.

What is left that differs from the documented wrappers (NoopReset, MaxAndSkip, EpisodicLife, FireReset, Warp, Clip):

* grey comes from ALE's grey palette before the maximum over two frames, not from RGB after it;
* the answer that ends a game shows, where it ended in mid-skip, its third frame alone or the observation before it.
  Nobody bootstraps from it;
* ``max_frames`` is counted in agent steps, the steps after a loss included and the no-ops not: a game may be up to
  ``noops + frame_skip − 1`` frames longer;
* the numbers of no-ops are as uniform on 1 … ``noops``, but come from the pool's own generator; none at all, and a
  frame skip of 1 (which it pools with all frames before), are refused;
* the emulator and the ROM are those inside EnvPool, not those of ale-py.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import Any, Final, Protocol, cast

import ale_py
import numpy as np
from numpy.typing import NDArray

from rlbench.config.tasks import AtariTask
from rlbench.envs.atari import FIRE, Answers, one_seed_per_lane, played, referee
from rlbench.envs.base import Frames, Step
from rlbench.envs.checks import Inspection
from rlbench.envs.roms import rom_of
from rlbench.errors import UsageError

REMEDY = 'pip install "rlbench[envpool]"'


class _Pool(Protocol):
    """The part of EnvPool's Gymnasium face that is used."""

    def reset(self) -> tuple[NDArray[np.uint8], dict[str, Any]]: ...
    def send(self, action: NDArray[Any], env_id: NDArray[Any]) -> None: ...
    def recv(self) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]: ...
    def close(self) -> None: ...


class EnvPoolVector:
    """N lanes of one game."""

    def __init__(self, *, task: AtariTask, seeds: Sequence[int], training: bool, threads: int) -> None:
        rom_of(task.game, "envpool")  # before a pool is made of it
        self._pool = _pool(task, one_seed_per_lane(seeds), threads)
        actions = _actions(task)
        self._fire = task.fire and ale_py.Action.FIRE in actions
        self._referee = referee(task, lanes=len(seeds), training=training)
        self.info: Final = played(task, lanes=len(seeds), actions=len(actions), engine="envpool", package="envpool")
        self._inspection = Inspection(name=f"envpool/{task.game}", info=self.info, seeds=seeds)
        self._said = _silence(len(seeds), task.size)

    def reset(self) -> Frames:
        """Begin every lane's first game, ``[N, size, size]``."""
        with self._inspection.guarded():
            obs, info = self._pool.reset()
            self._said.obs[info["env_id"]] = obs[:, 0]
            self._said.lives[info["env_id"]] = info["lives"]
            self._press(np.arange(self.info.lanes), self._said)
        self._referee.begun(self._said.lives)
        return self._inspection.begun(self._said.obs)

    def send(self, action: NDArray[Any]) -> None:
        """Set lanes going, ``[N]``: one whose game is over resets itself, one that lost a life does nothing."""
        self._inspection.action(action)
        asked = np.flatnonzero(self._referee.asked)
        with self._inspection.guarded():
            if asked.size:
                self._pool.send(self._referee.chosen(action)[asked], asked)

    def recv(self) -> Step:
        """Wait for the answers to the last ``send``."""
        rules = self._referee
        said = _copied(self._said)  # of a lane that is not asked, what it said last
        with self._inspection.guarded():
            if rules.asked.any():
                self._hear(said)
            self._press(np.flatnonzero(rules.asked & (rules.lost | rules.over) & ~said.ended & ~said.capped), said)
        self._said = said
        return self._inspection.answered(rules.apply(said))

    def close(self) -> None:
        """Join the pool's threads; idempotent."""
        self._pool.close()

    def _press(self, lanes: NDArray[np.int64], said: Answers) -> None:
        """FIRE, for one agent step, on these lanes alone; what it scores is dropped with the row."""
        if self._fire and lanes.size:
            self._pool.send(np.full(lanes.size, FIRE), lanes)
            self._hear(said)

    def _hear(self, said: Answers) -> None:
        obs, points, _, capped, info = self._pool.recv()
        lane = info["env_id"]
        said.obs[lane] = obs[:, 0]
        said.points[lane] = points
        said.lives[lane] = info["lives"]
        said.ended[lane] = info["terminated"]
        said.capped[lane] = capped


def _copied(said: Answers) -> Answers:
    obs, points, lives, ended, capped = said
    return Answers(obs.copy(), points.copy(), lives.copy(), ended.copy(), capped.copy())


def _silence(lanes: int, size: int) -> Answers:
    return Answers(
        obs=np.zeros((lanes, size, size), np.uint8),
        points=np.zeros(lanes, np.float64),
        lives=np.zeros(lanes, np.int64),
        ended=np.zeros(lanes, np.bool_),
        capped=np.zeros(lanes, np.bool_),
    )


def _pool(task: AtariTask, seeds: tuple[int, ...], threads: int) -> _Pool:
    if find_spec("envpool") is None:
        raise UsageError(f"task.env: EnvPool is not installed: {REMEDY}")
    if task.noops < 1 or task.frame_skip < 2:
        raise UsageError('task.env: EnvPool needs noops ≥ 1 and frame_skip ≥ 2; choose env = "ale"')
    name = "".join(word.capitalize() for word in task.game.split("_"))
    pool = import_module("envpool").make(
        f"{name}-v5",
        env_type="gymnasium",
        num_envs=len(seeds),
        num_threads=threads,
        seed=list(seeds),
        stack_num=1,
        frame_skip=task.frame_skip,
        noop_max=task.noops,
        episodic_life=False,
        reward_clip=False,
        use_fire_reset=False,
        img_height=task.size,
        img_width=task.size,
        repeat_action_probability=task.sticky,
        full_action_space=task.full_actions,
        max_episode_steps=ceil(task.max_frames / task.frame_skip),
    )
    return cast("_Pool", pool)


def _actions(task: AtariTask) -> list[ale_py.Action]:
    """The game's actions by name, which EnvPool knows but does not tell."""
    emulator = ale_py.ALEInterface()
    emulator.setLoggerMode(ale_py.LoggerMode.Error)
    emulator.loadROM(rom_of(task.game, "envpool"))
    return emulator.getLegalActionSet() if task.full_actions else emulator.getMinimalActionSet()
