"""What every adapter checks of its engine: a lane's first answers wholly, every reward, action and real observation.

An environment that breaks its contract is told apart from a bug of ours: everything here raises
``BrokenEnvironment`` with the environment's name, the lane and its seed where they are known, and the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.base import Discrete, EnvInfo, Frames, Step
from rlbench.errors import BrokenEnvironment, Diverged, RlbenchError


class Inspection:
    """Watches one vector of environments; counts its steps."""

    def __init__(self, *, name: str, info: EnvInfo, seeds: Sequence[int]) -> None:
        self.name: Final = name
        self.info: Final = info
        self.seeds: Final = tuple(seeds)  # of the lanes
        self.steps = 0
        self._unseen = np.ones(info.lanes, np.bool_)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Whatever the engine raises inside comes out as ``BrokenEnvironment``, with its cause."""
        try:
            yield
        except (RlbenchError, MemoryError):
            raise
        except Exception as cause:
            message = f"{self.name}: step {self.steps}: {type(cause).__name__}: {cause}"
            raise BrokenEnvironment(message) from cause

    def broke(self, lane: int, cause: BaseException) -> BrokenEnvironment:
        """What a lane raised, as the error that names it."""
        return BrokenEnvironment(self._told(lane, f"{type(cause).__name__}: {cause}"))

    def action(self, action: NDArray[Any], lane: NDArray[np.int64] | None = None) -> None:
        """Refuse what no engine may see, ``[M]`` or ``[M, A]``: some hang on it instead of raising.

        Raises:
            RlbenchError: an action has the wrong shape or type, or is out of bounds.
        """
        actions, lanes = self.info.actions, self.info.lanes if lane is None else len(lane)
        shape = (lanes,) if isinstance(actions, Discrete) else (lanes, *actions.low.shape)
        if isinstance(actions, Discrete):
            if action.shape != shape or action.dtype.kind != "i":
                wanted = f"[{lanes}] integers"
            elif ((action < 0) | (action >= actions.n)).any():
                wanted = f"numbers from 0 to {actions.n - 1}"
            else:
                return
        elif action.shape != shape or action.dtype != np.float32:
            wanted = f"{list(shape)} float32"
        elif (np.abs(action) <= 1).all():  # no NaN is
            return
        else:
            self._finite(action, np.arange(lanes) if lane is None else lane)
            wanted = f"from -1 to 1 ({np.abs(action).max():.6g} is outside)"
        message = f"{self.name}: step {self.steps}: actions must be {wanted}, got {action.dtype} {list(action.shape)}"
        raise RlbenchError(message)

    def begun(self, obs: Frames) -> Frames:
        """The first observations, ``[N, *obs_shape]``, once they are what ``info`` promised."""
        for lane, row in enumerate(obs):
            self.first(lane, row, self.info.obs_dtype)
        return obs

    def alike(self, lane: int, obs: object, dtype: np.dtype[Any]) -> None:
        """Check the shape and type of one lane's observation in any step: what numpy would stretch is no answer."""
        if not isinstance(obs, np.ndarray) or obs.shape != self.info.obs_shape or obs.dtype != dtype:
            self.first(lane, np.asarray(obs), dtype)

    def first(self, lane: int, obs: Frames, dtype: np.dtype[Any]) -> None:
        """Check one lane's observation ``[*obs_shape]``, as the engine gave it."""
        if obs.shape != self.info.obs_shape:
            self._broken(lane, f"observation of shape {list(obs.shape)}, promised {list(self.info.obs_shape)}")
        if obs.dtype != dtype:
            self._broken(lane, f"observation of type {obs.dtype}, promised {dtype}")
        if obs.dtype.kind == "f" and not np.isfinite(obs).all():
            self._broken(lane, "observation is not finite")

    def answered(self, step: Step) -> Step:
        """The same step, once rewards and real observations are finite and first observations are whole."""
        self.steps += 1
        finite = np.isfinite(step.reward) & np.isfinite(step.score)
        if not finite.all():
            self._broken(int(step.lane[~finite][0]), "reward is not finite")
        if step.obs.dtype.kind == "f" and not np.isfinite(step.obs).all():
            self._broken(int(step.lane[_unsound(step.obs)][0]), "observation is not finite")
        if self._unseen.any():
            for lane, row in zip(step.lane, step.obs, strict=True):
                if self._unseen[lane]:
                    self.first(int(lane), row, self.info.obs_dtype)
            self._unseen[step.lane] = False
        return step

    def _finite(self, action: NDArray[Any], lane: NDArray[np.int64]) -> None:
        unsound = _unsound(action)
        if unsound.any():
            where = f"{self.name}: lane {lane[unsound][0]}, step {self.steps}"
            raise Diverged(f"{where}: action is not finite; lower the learning rate")

    def _broken(self, lane: int, what: str) -> None:
        raise BrokenEnvironment(self._told(lane, what))

    def _told(self, lane: int, what: str) -> str:
        return f"{self.name}: lane {lane}, step {self.steps}: {what} (this lane's seed is {self.seeds[lane]})"


def _unsound(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows hold a number that is not finite, ``[M]``."""
    sound: NDArray[np.bool_] = np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
    return ~sound
