"""Atari by EnvPool: one pool of C++ threads under all envs; an optional extra, ``pip install "rlbench[envpool]"``.

The pool skips, pools, greys and resizes frames, resets games and ends them at the step limit. Lives, FIRE and rewards
are decided here: the pool's episodic life adds no-ops after every loss, and its FIRE is one frame.

Remaining differences from the reference wrappers (NoopReset, MaxAndSkip, EpisodicLife, FireReset, Warp, Clip):

* grey comes from ALE's grey palette before the maximum over two frames, not from RGB after it;
* the answer that ends a game in mid-skip has its third frame alone or the observation before it. No target bootstraps
  from it;
* ``max_frames`` counts agent steps, with the steps after a loss and without the no-ops: a game may be up to
  ``noops + frame_skip − 1`` frames longer;
* the number of no-ops is uniform on 1 … ``noops`` too, but from the pool's generator; ``noops`` of 0, and a frame skip
  of 1 (which it pools with all earlier frames), are refused;
* emulator and ROM are EnvPool's, not ale-py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import Any, Protocol, cast

import ale_py
import numpy as np
from numpy.typing import NDArray

from rlbench.config.tasks import AtariTask
from rlbench.envs.ale import rom_of
from rlbench.envs.atari import FIRE, AtariVector, one_seed_per_env
from rlbench.errors import UsageError

REMEDY = 'pip install "rlbench[envpool]"'


class _Pool(Protocol):
    """Part of EnvPool's Gymnasium interface that is used here."""

    def reset(self) -> tuple[NDArray[np.uint8], dict[str, Any]]: ...
    def send(self, action: NDArray[Any], env_id: NDArray[Any]) -> None: ...
    def recv(self) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]: ...
    def close(self) -> None: ...


class EnvPoolVector(AtariVector):
    """N envs of one game."""

    def __init__(self, *, task: AtariTask, seeds: Sequence[int], training: bool, threads: int) -> None:
        rom_of(task.game, "envpool")  # a missing ROM is refused by name
        self._pool = _pool(task, one_seed_per_env(seeds), threads)
        super().__init__(
            task=task, seeds=seeds, training=training, actions=_actions(task), engine=("envpool", "envpool")
        )

    def close(self) -> None:
        """Join the pool's threads; idempotent."""
        self._pool.close()

    def _begin_games(self) -> None:
        obs, info = self._pool.reset()
        self._answers.obs[info["env_id"]] = obs[:, 0]
        self._answers.lives[info["env_id"]] = info["lives"]
        self._fire_reset(np.arange(self.info.num_envs))

    def _send(self, action: NDArray[np.integer], env_ids: NDArray[np.int64]) -> None:
        if env_ids.size:
            self._pool.send(action, env_ids)

    def _receive(self, env_ids: NDArray[np.int64]) -> None:
        if env_ids.size:
            self._store_answers()
        began = env_ids[(self._tracker.life_lost | self._tracker.game_over)[env_ids]]
        self._fire_reset(began[~(self._answers.ended | self._answers.capped)[began]])

    def _fire_reset(self, env_ids: NDArray[np.int64]) -> None:
        """Press FIRE for one agent step in these envs; its points are dropped."""
        if self._fire and env_ids.size:
            self._pool.send(np.full(env_ids.size, FIRE), env_ids)
            self._store_answers()

    def _store_answers(self) -> None:
        obs, points, _, capped, info = self._pool.recv()
        answers, env_ids = self._answers, info["env_id"]
        answers.obs[env_ids], answers.points[env_ids], answers.capped[env_ids] = obs[:, 0], points, capped
        answers.lives[env_ids], answers.ended[env_ids] = info["lives"], info["terminated"]


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
    """Actions of the game by name, which EnvPool does not return."""
    emulator = ale_py.ALEInterface()
    emulator.setLoggerMode(ale_py.LoggerMode.Error)
    emulator.loadROM(rom_of(task.game, "envpool"))
    return emulator.getLegalActionSet() if task.full_actions else emulator.getMinimalActionSet()
