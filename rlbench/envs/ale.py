"""Atari by the vector engine of ale-py, which has C++ threads.

Each env is an engine of its own with one thread. So one env can press FIRE while the others wait, and the answers do
not depend on timing. The engine skips, pools, greys and resizes frames. Lives, FIRE, the frame limit and rewards are
decided here: the engine's episodic life resets the whole game, its FIRE is one frame before the no-ops, and its limit
returns a stale last frame.

Remaining differences from the reference wrappers (NoopReset, MaxAndSkip, EpisodicLife, FireReset, Warp, Clip):

* grey comes from ALE's grey palette before the maximum over two frames, not from RGB after it;
* the answer that ends a game has the observation before it (or, pooled with it, one frame of the last step), since the
  engine does not render the frame on which a game ends. No target bootstraps from it;
* ``max_frames`` is checked after each agent step, so a game may be up to ``frame_skip − 1`` frames longer;
* the number of no-ops is uniform on 1 … ``noops`` too, but from the engine's generator, which draws from 0: after a 0
  the game is reset once more, which changes a pixel or two of a few games (Seaquest).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import ale_py
import numpy as np
from ale_py import roms
from numpy.typing import NDArray

from rlbench.config.tasks import AtariTask
from rlbench.envs.atari import FIRE, AtariVector, one_seed_per_env
from rlbench.errors import UnknownName, UsageError

SCREEN: Final = (210, 160, 3)
FULL_STRENGTH: Final = np.ones(1, np.float32)  # paddle strength of a continuous action
NEVER: Final = 2**30  # frames; a limit of the engine that no game reaches
ONLY_ENV: Final = np.zeros(1, np.int64)  # index of the one env of an engine


class AleVector(AtariVector):
    """N envs of one game; ``rgb`` ones return the screen, ``[N, 210, 160, 3]``."""

    def __init__(self, *, task: AtariTask, seeds: Sequence[int], training: bool, rgb: bool = False) -> None:
        rom = rom_of(task.game, "ale")
        self._seeds = one_seed_per_env(seeds)
        self._engines = [_engine(task, rom, rgb=rgb) for _ in seeds]
        super().__init__(
            task=task,
            seeds=seeds,
            training=training,
            actions=self._engines[0].get_action_set(),
            engine=("ale", "ale-py"),
            obs_shape=SCREEN if rgb else None,
        )
        self._frames = np.zeros(len(seeds), np.int64)  # [N] of the games so far, no-ops included

    def close(self) -> None:
        """Join the engines' threads; idempotent."""
        self._engines = []

    def _begin_games(self) -> None:
        for env_id, seed in enumerate(self._seeds):
            self._restart(env_id, seed)
            self._begin(env_id)

    def _send(self, action: NDArray[np.integer], env_ids: NDArray[np.int64]) -> None:
        for row, env_id in enumerate(env_ids.tolist()):
            self._engines[env_id].send(action[row : row + 1], FULL_STRENGTH)

    def _receive(self, env_ids: NDArray[np.int64]) -> None:
        for env_id in env_ids.tolist():
            self._store_answer(env_id)
            if self._tracker.life_lost[env_id]:
                self._fire_reset(env_id)
            elif self._tracker.game_over[env_id]:
                if self._frames[env_id] >= self._task.max_frames:  # a limit of ours, at which the engine has not reset
                    self._restart(env_id, seed=-1)
                self._begin(env_id)
        self._answers.capped[:] = self._frames >= self._task.max_frames

    def _begin(self, env_id: int) -> None:
        while self._frames[env_id] == 0 and self._task.noops > 0:  # the engine draws 0 … noops; 0 is drawn again
            self._restart(env_id, seed=-1)
        self._fire_reset(env_id)

    def _restart(self, env_id: int, seed: int) -> None:
        """Reset the emulator; a seed of −1 keeps the engine's generator."""
        obs, info = self._engines[env_id].reset(ONLY_ENV, np.array([seed]))
        self._store(env_id, obs, points=0, ended=False, info=info)

    def _fire_reset(self, env_id: int) -> None:
        if self._fire and not self._answers.ended[env_id]:
            self._engines[env_id].send(np.array([FIRE]), FULL_STRENGTH)
            self._store_answer(env_id)

    def _store_answer(self, env_id: int) -> None:
        obs, points, ended, _, info = self._engines[env_id].recv()
        self._store(env_id, obs, points=points[0], ended=ended[0], info=info)

    def _store(self, env_id: int, obs: NDArray[np.uint8], *, points: int, ended: bool, info: dict[str, Any]) -> None:
        answers = self._answers
        answers.obs[env_id], answers.points[env_id], answers.ended[env_id] = obs[0, 0], points, ended
        answers.lives[env_id], self._frames[env_id] = info["lives"][0], info["episode_frame_number"][0]


def _engine(task: AtariTask, rom: Path, *, rgb: bool) -> ale_py.ALEVectorInterface:
    return ale_py.ALEVectorInterface(
        rom_path=rom,
        num_envs=1,
        frame_skip=task.frame_skip,
        stack_num=1,
        img_height=SCREEN[0] if rgb else task.size,
        img_width=SCREEN[1] if rgb else task.size,
        grayscale=not rgb,
        maxpool=task.frame_skip > 1,
        noop_max=task.noops + 1,  # exclusive
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


vars(roms)["print"] = lambda *_: None  # with ALE_ROMS_DIR it prints a message on stdout, which is for results


def rom_of(game: str, where: str) -> Path:
    """Path of the ROM of a game; ``where`` names the engine in messages.

    Raises:
        UnknownName: there is no such game.
        UsageError: its ROM is missing, or differs from the one that ale-py expects.
    """
    games = roms.get_all_rom_ids()
    if game not in games:
        raise UnknownName("game", game, games, where=where)
    folder = os.environ.get("ALE_ROMS_DIR")
    remedy = f"correct ALE_ROMS_DIR={folder}, or unset it" if folder else "install ale-py again"
    if folder and (file := Path(folder, f"{game}.bin")).exists() and not file.is_file():  # ale-py waits for a pipe
        raise UsageError(f"{where}: no ROM of {game!r} (no regular file); {remedy}")
    try:
        rom = roms.get_rom_path(game)
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        raise UsageError(f"{where}: no ROM of {game!r} ({reason}); {remedy}") from None
    if rom is None:
        raise UsageError(f"{where}: the ROM of {game!r} is not in this ale-py")
    return rom
