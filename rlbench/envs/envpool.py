"""Atari and MuJoCo by EnvPool: one pool of C++ threads under all envs; an optional extra, ``rlbench[envpool]``.

In Atari the pool skips, pools, greys and resizes frames, resets games and ends them at the step limit. Lives, FIRE and
rewards are decided here: the pool's episodic life adds no-ops after every loss, and its FIRE is one frame.

Remaining differences from the reference wrappers (NoopReset, MaxAndSkip, EpisodicLife, FireReset, Warp, Clip):

* grey comes from ALE's grey palette before the maximum over two frames, not from RGB after it;
* the answer that ends a game in mid-skip has its third frame alone or the observation before it. No target bootstraps
  from it;
* ``max_frames`` counts agent steps, with the steps after a loss and without the no-ops: a game may be up to
  ``noops + frame_skip − 1`` frames longer;
* the number of no-ops is uniform on 1 … ``noops`` too, but from the pool's generator; ``noops`` of 0, and a frame skip
  of 1 (which it pools with all earlier frames), are refused;
* emulator and ROM are EnvPool's, not ale-py's.

MuJoCo's tasks are stepped asynchronously or in step. EnvPool returns answers in batches of a fixed size: here the
greatest common divisor of the number of envs and ``async_batch``, so that no first observation stays in the pool.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from math import ceil, gcd
from pathlib import Path
from typing import Any, Final

import ale_py
import numpy as np
from numpy.typing import NDArray

from rlbench.config.tasks import AtariTask
from rlbench.envs.ale import rom_of
from rlbench.envs.atari import FIRE, AtariVector, one_seed_per_env
from rlbench.envs.base import EnvInfo, Frames, Step
from rlbench.envs.checks import Inspection
from rlbench.envs.gymnasium import MUJOCO, ActionScaling, registered_task
from rlbench.errors import UsageError
from rlbench.versions import version

REMEDY = 'pip install "rlbench[envpool]"'


class EnvPoolVector(AtariVector):
    """N envs of one game."""

    def __init__(self, *, task: AtariTask, seeds: Sequence[int], training: bool, threads: int) -> None:
        rom_of(task.game, "envpool")  # a missing ROM is refused by name
        pool_seeds = list(one_seed_per_env(seeds))
        if find_spec("envpool") is None:
            raise UsageError(f"task.env: EnvPool is not installed: {REMEDY}")
        if task.noops < 1 or task.frame_skip < 2:
            raise UsageError('task.env: EnvPool needs noops ≥ 1 and frame_skip ≥ 2; choose env = "ale"')
        name = "".join(word.capitalize() for word in task.game.split("_"))
        self._pool: Any = import_module("envpool").make(
            f"{name}-v5",
            env_type="gymnasium",
            num_envs=len(seeds),
            num_threads=threads,
            seed=pool_seeds,
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


def _actions(task: AtariTask) -> list[ale_py.Action]:
    """Actions of the game by name, which EnvPool does not return."""
    emulator = ale_py.ALEInterface()
    emulator.setLoggerMode(ale_py.LoggerMode.Error)
    emulator.loadROM(rom_of(task.game, "envpool"))
    return emulator.getLegalActionSet() if task.full_actions else emulator.getMinimalActionSet()


class EnvPoolMujoco:
    """N envs of one task, such as ``HalfCheetah-v4``; ``recv`` returns the first ``async_batch`` that answer, or all.

    ``limit``: agent steps an episode may last, else the task's.
    """

    def __init__(
        self, *, task: str, seeds: Sequence[int], threads: int, async_batch: int | None = None, limit: int | None = None
    ) -> None:
        _, steps = registered_task(task, package=MUJOCO)
        if find_spec("envpool") is None:
            raise UsageError(f"{task}: EnvPool is not installed: {REMEDY}")
        pool_seeds = list(one_seed_per_env(seeds))
        async_batch = len(seeds) if async_batch is None else async_batch
        self._batch, self._async_batch = gcd(len(seeds), async_batch), async_batch
        self._pool: Any = import_module("envpool").make(
            task,
            env_type="gymnasium",
            num_envs=len(seeds),
            batch_size=self._batch,
            num_threads=threads,
            seed=pool_seeds,
            max_episode_steps=steps if limit is None else limit,
            post_constraint=True,
        )
        _discard_warnings()
        self._scaling: Final = ActionScaling.of_space(task, self._pool.action_space)
        self.info: Final = EnvInfo(
            num_envs=len(seeds),
            obs_shape=tuple(self._pool.observation_space.shape),
            obs_dtype=np.dtype(np.float32),
            actions=self._scaling.actions,
            versions=(("env", f"envpool/{task}"), ("envpool", version("envpool")), ("mujoco", bundled_mujoco())),
        )
        self._inspection = Inspection(name=f"envpool/{task}", info=self.info, seeds=seeds)

    def reset(self) -> Frames:
        """Begin every env's first episode, ``[N, *obs_shape]``."""
        with self._inspection.engine_errors():
            self._pool.async_reset()
            return self._inspection.check_reset(self._receive(self.info.num_envs).obs)

    def send(self, action: NDArray[Any], env_id: NDArray[np.int64] | None = None) -> None:
        """Start a step of the idle envs ``[M]``, or of all ``[N]``; an env whose episode is over resets itself."""
        env_id = np.arange(self.info.num_envs) if env_id is None else env_id
        self._inspection.check_action(action, env_id)
        with self._inspection.engine_errors():
            self._pool.send(self._scaling(action).astype(np.float64), env_id)

    def recv(self) -> Step:
        """Wait until ``async_batch`` envs have answered."""
        with self._inspection.engine_errors():
            step = self._receive(self._async_batch)
        return self._inspection.check_step(step)

    def close(self) -> None:
        """Join the pool's threads; idempotent."""
        self._pool.close()

    def _receive(self, count: int) -> Step:
        """Return the next ``count`` answers, ascending by env."""
        batches = [self._pool.recv() for _ in range(count // self._batch)]
        env_id = np.concatenate([info["env_id"] for *_, info in batches]).astype(np.int64)
        order = np.argsort(env_id)
        obs, reward, terminated, truncated = (
            np.concatenate(column)[order] for column in zip(*(batch[:4] for batch in batches), strict=True)
        )
        return Step(
            obs=obs.astype(self.info.obs_dtype),
            reward=reward,
            terminated=terminated,
            truncated=truncated & ~terminated,
            env_id=env_id[order],
            score=reward.astype(np.float64),
            game_over=terminated | truncated,
        )


@cache
def bundled_mujoco() -> str:
    """Version of the MuJoCo inside EnvPool, read from its shared library, which has no function for it."""
    versions = set(re.findall(rb"\0([23]\.\d{1,2}\.\d{1,2})\0", path.read_bytes())) if (path := library()) else set()
    return versions.pop().decode() if len(versions) == 1 else "unknown"


def library() -> Path | None:
    """Path of the shared library with EnvPool's MuJoCo tasks; None if it is missing."""
    package = find_spec("envpool.mujoco")
    folders = list(package.submodule_search_locations or ()) if package else []
    return next((path for folder in folders for path in Path(folder).glob("mujoco_gym_envpool*.so")), None)


def _discard_warnings() -> None:
    """Discard warnings of the MuJoCo inside EnvPool by a C function; else they reach stdout and ``MUJOCO_LOG.TXT``."""
    if (path := library()) is not None:
        handler = ctypes.c_void_p.in_dll(ctypes.CDLL(str(path)), "mju_user_warning")
        handler.value = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
