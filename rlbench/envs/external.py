"""Environments of other packages: from Gymnasium's registry, or made by the suite of a plug-in.

Resuming replays the actions of a segment, unless a plug-in's own vector has snapshots. Observations become float32
vectors, or gray frames.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from math import isfinite
from typing import Any, Final, TypeAlias
from warnings import warn

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import Error
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from rlbench.config.names import printable
from rlbench.config.tasks import GYM, GymnasiumTask
from rlbench.envs.base import SCORE, Box, Discrete, Frames, Snapshot, Step, VectorEnv
from rlbench.envs.checks import UNRELATED, Inspection
from rlbench.envs.gymnasium import Env, GymnasiumVector
from rlbench.errors import BrokenEnvironment, UsageError
from rlbench.ops.state_dict import SEPARATOR, State
from rlbench.signals import keep_process_state

MakeEnv: TypeAlias = Callable[[str, Sequence[int]], object]
"""From a task and the seeds of its envs to a Gymnasium environment (called once a seed), or to a ``VectorEnv``."""


def external_vector(task: GymnasiumTask, *, seeds: tuple[int, ...], training: bool, make: MakeEnv | None) -> VectorEnv:
    """One env per seed, freshly made.

    Raises:
        UsageError: the registry has no such environment, or its observations do not suit the settings.
        BrokenEnvironment: the package raises.
    """

    def make_env() -> object:
        with _package_errors(task):
            return _make_env(task) if make is None else make(task.id, seeds)

    def prepare(env: object) -> Env:
        if not isinstance(env, gymnasium.Env):
            raise BrokenEnvironment(f"{task.id} of {task.package}: make_env returns {type(env).__name__}, no env")
        return GrayFrames(env, task, training=training) if task.size is not None else FlatVectors(env, task)

    first = make_env()
    if (mujoco := sys.modules.get("mujoco")) is not None:
        mujoco.set_mju_user_warning(warn)  # else into MUJOCO_LOG.TXT of the current folder
    envs = chain([first], (make_env() for _ in seeds[1:]))
    version = (task.package or "package", task.version)
    with _package_errors(task):
        if isinstance(first, Snapshot):
            return InspectedSnapshot(first, name=task.id, seeds=seeds)
        if isinstance(first, VectorEnv):
            return InspectedVector(first, name=task.id, seeds=seeds)
        return GymnasiumVector(
            name=task.id, factory=lambda: prepare(next(envs)), seeds=seeds, versions=(version,), external=True
        )


OBS_DTYPES: Final = ("uint8", "float32", "int64")
"""Types of observations that a replay buffer holds."""


class InspectedVector:
    """A package's own vector of environments, whose errors and answers are checked."""

    def __init__(self, envs: VectorEnv, *, name: str, seeds: Sequence[int]) -> None:
        self.envs, self.info = envs, envs.info
        if self.info.num_envs != len(seeds):
            raise ValueError(f"its info has {self.info.num_envs} envs for {len(seeds)} seeds")
        if isinstance(self.info.actions, Discrete) and self.info.actions.n < 1:
            raise ValueError(f"its info has {self.info.actions.n} actions")
        if isinstance(self.info.actions, Box) and len(shape := np.shape(self.info.actions.low)) != 1:
            raise ValueError(f"its info has actions of the shape {list(shape)}, promised vectors")
        if (dtype := np.dtype(self.info.obs_dtype)).name not in OBS_DTYPES:
            raise ValueError(f"its info has observations of {dtype}, promised uint8, float32 or int64")
        self._inspection = Inspection(name=name, info=envs.info, seeds=seeds, external=True)

    def reset(self) -> Frames:
        """The first observations, ``[N, ...]``."""
        with self._inspection.engine_errors():
            return self._inspection.check_reset(self.envs.reset())

    def send(self, action: NDArray[Any]) -> None:
        """Send the actions ``[N, ...]``."""
        self._inspection.check_action(action)
        with self._inspection.engine_errors():
            self.envs.send(action)

    def recv(self) -> Step:
        """Return the answers."""
        with self._inspection.engine_errors():
            step = self.envs.recv()
            self._check_columns(step)
            return self._inspection.check_step(step)

    def _check_columns(self, step: Step) -> None:
        """Check the shapes and types of a step's columns, which numpy would otherwise broadcast and convert."""
        promises = {"env_id": ("i", "integers"), "reward": ("fiu", "numbers"), "score": ("fiu", "numbers")}
        for name in Step._fields:
            column, is_obs = getattr(step, name), name == "obs"
            if not isinstance(column, np.ndarray):
                raise TypeError(f"{name} is of type {type(column).__name__}, promised an array")
            shape = (self.info.num_envs, *(self.info.obs_shape if is_obs else ()))
            kinds, noun = promises.get(name, ("b", "bools"))
            fits = column.dtype == self.info.obs_dtype if is_obs else column.dtype.kind in kinds
            if column.shape != shape or not fits:
                promise = f"{list(shape)} {self.info.obs_dtype if is_obs else noun}"
                raise ValueError(f"{name} of shape {list(column.shape)} and type {column.dtype}, promised {promise}")
        if (step.env_id != np.arange(self.info.num_envs)).any() or (step.terminated & step.truncated).any():
            raise ValueError("env_id is not 0 to N−1, or an end is both terminated and truncated")

    def close(self) -> None:
        """Close the environments; their errors change no result, so they are ignored."""
        with suppress(BrokenEnvironment), self._inspection.engine_errors():
            self.envs.close()


class InspectedSnapshot(InspectedVector):
    """A package's own vector of environments with snapshots."""

    envs: Snapshot

    def state_dict(self) -> State:
        """Snapshot of the environments.

        Raises:
            BrokenEnvironment: they raise, or give what no checkpoint holds.
        """
        with self._inspection.engine_errors():
            return _snapshot(self.envs.state_dict())

    def load_state_dict(self, state: State) -> None:
        """Restore the environments."""
        with self._inspection.engine_errors():
            self.envs.load_state_dict(state)


def _snapshot(state: object, name: str = "snapshot") -> State:
    """A copy of a snapshot, or of a part of it; what no checkpoint holds is refused."""
    if not isinstance(state, dict):
        raise TypeError(f"{name} is of type {type(state).__name__}, promised a dict")
    for key in state:
        if not isinstance(key, str) or SEPARATOR in key or not _is_unicode(key):
            raise TypeError(f"{name} has key {key!r}, promised a text without {SEPARATOR!r}")
    return {key: _snapshot_value(value, f"{name}[{key!r}]") for key, value in state.items()}


def _snapshot_value(value: object, name: str) -> Tensor | int | float | str | State:
    if isinstance(value, dict) and value:
        return _snapshot(value, name)
    if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_complex():
        return value.clone()  # of two that share memory a checkpoint would hold neither
    if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, str) and _is_unicode(value):
        return value
    what = str(value) if isinstance(value, float) else f"of type {type(value).__name__}"
    raise TypeError(f"{name} is {what}, promised a real dense tensor, finite number, text or filled dict of them")


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


class FlatVectors(gymnasium.ObservationWrapper[NDArray[np.float32], Any, Any]):
    """Observations as one float32 vector: boxes flattened, dictionaries and tuples concatenated, choices one-hot."""

    def __init__(self, env: Env, task: GymnasiumTask) -> None:
        super().__init__(env)
        space = env.observation_space
        if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1:
            raise UsageError(f"{task.id}: observations are frames {space.shape}; run it with settings of suite atari")
        try:
            size = spaces.flatdim(space)
        except (NotImplementedError, ValueError):
            raise UsageError(f"{task.id}: observations are {space}; no vector can be made of them") from None
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def observation(self, observation: object) -> NDArray[np.float32]:
        """``[F]``."""
        return np.asarray(spaces.flatten(self.env.observation_space, observation), np.float32)


class GrayFrames(gymnasium.ObservationWrapper[NDArray[np.uint8], Any, Any]):
    """Gray frames, reduced by area interpolation; in training the reward is its sign where the task says so."""

    def __init__(self, env: Env, task: GymnasiumTask, *, training: bool) -> None:
        super().__init__(env)
        space, side = env.observation_space, task.size or 0
        frames = isinstance(space, spaces.Box) and space.dtype == np.uint8
        if not (frames and (len(space.shape or ()) == 2 or (space.shape or ())[2:] in {(1,), (3,), (4,)})):
            raise UsageError(f"{task.id}: observations are {space}, no frames; run it with settings of mujoco or toy")
        self._side, self._clip = side, training and task.clip
        self.observation_space = spaces.Box(0, 255, (side, side), np.uint8)

    def step(self, action: object) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Take an agent step to the next frame ``[size, size]``; ``SCORE`` in the info is the raw reward."""
        obs, reward, terminated, truncated, info = super().step(action)
        raw: Any = reward
        score = float(raw + 0.0)  # the sum raises for a text, which float would convert
        return obs, float(np.sign(score)) if self._clip else score, terminated, truncated, {**info, SCORE: score}

    def observation(self, observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """``[size, size]``."""
        frame = Image.fromarray(observation.squeeze()).convert("L")
        return np.asarray(frame.resize((self._side, self._side), Image.Resampling.BOX))


def _make_env(task: GymnasiumTask) -> Env:
    name = task.id.removeprefix(GYM)
    try:
        return gymnasium.make(name, disable_env_checker=True)
    except Error as error:
        advice = "" if name in gymnasium.registry else f"; name its package with --import {task.package}"
        raise UsageError(f"{task.id}: {printable(str(error), 200).rstrip('.')}{advice}") from error


@contextmanager
def _package_errors(task: GymnasiumTask) -> Iterator[None]:
    """Name the task and its package in every error of the package; keep the state of the process."""
    try:
        with keep_process_state():
            yield
    except UNRELATED:
        raise
    except BaseException as error:
        reason = printable(f"{type(error).__name__}: {error}", 200)
        raise BrokenEnvironment(f"{task.id} of {task.package} {task.version}: {reason}") from error
