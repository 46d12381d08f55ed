"""Checks of the contract between an engine and its adapter: actions, observations and rewards.

An environment that breaks the contract raises ``BrokenEnvironment`` with its name, the env index and seed where they
are known, and the step. So its errors differ from errors of rlbench.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.base import Discrete, EnvInfo, Frames, Step
from rlbench.errors import BrokenEnvironment, Diverged, RlbenchError
from rlbench.signals import INTERRUPTIONS, keep_process_state

BOOLS: Final = frozenset({bool, np.bool_})  # numbers and tensors that are 0 or 1 count as bools, too
UNRELATED: Final = (RlbenchError, MemoryError, *INTERRUPTIONS)  # not raised by an environment itself


class Inspection:
    """Check one vector of environments, and count its steps."""

    def __init__(self, *, name: str, info: EnvInfo, seeds: Sequence[int], external: bool = False) -> None:
        self.name: Final = name
        self.info: Final = info
        self.seeds: Final = tuple(seeds)  # of the envs
        self.external: Final = external  # code of another package, which may change the state of the process
        self.steps = 0
        self._pending = np.ones(info.num_envs, np.bool_)

    @contextmanager
    def engine_errors(self) -> Iterator[None]:
        """Raise any error of the engine as ``BrokenEnvironment``, with its cause."""
        try:
            with keep_process_state() if self.external else nullcontext():
                yield
        except UNRELATED:
            raise
        except BaseException as cause:
            message = f"{self.name}: step {self.steps}: {type(cause).__name__}: {cause}"
            raise BrokenEnvironment(message) from cause

    def env_error(self, env_id: int, cause: BaseException) -> BrokenEnvironment:
        """Return the error that names the env and what it raised."""
        return BrokenEnvironment(self._message(env_id, f"{type(cause).__name__}: {cause}"))

    def check_action(self, action: NDArray[Any], env_id: NDArray[np.int64] | None = None) -> None:
        """Check actions ``[M]`` or ``[M, A]`` before the engine gets them: some engines hang on a wrong one.

        Raises:
            RlbenchError: an action has the wrong shape or type, or is out of bounds.
            Diverged: an action is not finite.
        """
        actions, num_envs = self.info.actions, self.info.num_envs if env_id is None else len(env_id)
        shape = (num_envs,) if isinstance(actions, Discrete) else (num_envs, *actions.low.shape)
        if isinstance(actions, Discrete):
            if action.shape != shape or action.dtype.kind != "i":
                expected = f"[{num_envs}] integers"
            elif ((action < 0) | (action >= actions.n)).any():
                expected = f"numbers from 0 to {actions.n - 1}"
            else:
                return
        elif action.shape != shape or action.dtype != np.float32:
            expected = f"{list(shape)} float32"
        elif (np.abs(action) <= 1).all():  # no NaN is
            return
        else:
            bad = np.flatnonzero(_not_finite(action))
            if bad.size:
                where = f"{self.name}: env {bad[0] if env_id is None else env_id[bad[0]]}, step {self.steps}"
                raise Diverged(f"{where}: action is not finite; lower the learning rate")
            expected = f"from -1 to 1 ({np.abs(action).max():.6g} is outside)"
        message = f"{self.name}: step {self.steps}: actions must be {expected}, got {action.dtype} {list(action.shape)}"
        raise RlbenchError(message)

    def check_reset(self, obs: Frames) -> Frames:
        """Check and return the first observations, ``[N, *obs_shape]``.

        Raises:
            BrokenEnvironment: an env has none, or one of another shape or type.
        """
        if len(obs) != self.info.num_envs:
            raise BrokenEnvironment(f"{self.name}: {len(obs)} first observations, promised {self.info.num_envs}")
        for env_id, row in enumerate(obs):
            self.check_first_obs(env_id, row, self.info.obs_dtype)
        return obs

    def check_obs(self, env_id: int, obs: object, dtype: np.dtype[Any]) -> None:
        """Check the shape and type of one env's observation, which numpy would otherwise broadcast."""
        if not isinstance(obs, np.ndarray) or obs.shape != self.info.obs_shape or obs.dtype != dtype:
            self.check_first_obs(env_id, np.asarray(obs), dtype)

    def check_first_obs(self, env_id: int, obs: Frames, dtype: np.dtype[Any]) -> None:
        """Check shape, type and values of one env's observation ``[*obs_shape]``, as the engine returned it."""
        if obs.shape != self.info.obs_shape:
            self._error(env_id, f"observation of shape {list(obs.shape)}, promised {list(self.info.obs_shape)}")
        if obs.dtype != dtype:
            self._error(env_id, f"observation of type {obs.dtype}, promised {dtype}")
        if obs.dtype.kind == "f" and not np.isfinite(obs).all():
            self._error(env_id, "observation is not finite")

    def check_types(self, env_id: int, reward: object, terminated: object, truncated: object) -> None:
        """Check the types of one env's reward and ends: numpy converts texts and None."""
        if reward is None or isinstance(reward, str | bytes):
            self._error(env_id, f"reward is {reward!r}, promised a number")
        for name, end in (("terminated", terminated), ("truncated", truncated)):
            if type(end) not in BOOLS and end not in (0, 1):  # a comparison of numpy's bool is slow
                self._error(env_id, f"{name} is {end!r}, promised a bool")

    def check_step(self, step: Step) -> Step:
        """Check and return a step: finite rewards and float observations, and every env's first observation in full."""
        self.steps += 1
        finite = np.isfinite(step.reward) & np.isfinite(step.score)
        if not finite.all():
            self._error(int(step.env_id[~finite][0]), "reward is not finite")
        if step.obs.dtype.kind == "f" and not np.isfinite(step.obs).all():
            self._error(int(step.env_id[_not_finite(step.obs)][0]), "observation is not finite")
        if self._pending.any():
            for env_id, row in zip(step.env_id, step.obs, strict=True):
                if self._pending[env_id]:
                    self.check_first_obs(int(env_id), row, self.info.obs_dtype)
            self._pending[step.env_id] = False
        return step

    def _error(self, env_id: int, what: str) -> None:
        raise BrokenEnvironment(self._message(env_id, what))

    def _message(self, env_id: int, what: str) -> str:
        return f"{self.name}: env {env_id}, step {self.steps}: {what} (this env's seed is {self.seeds[env_id]})"


def _not_finite(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the rows with a number that is not finite, ``[M]``."""
    finite: NDArray[np.bool_] = np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
    return ~finite
