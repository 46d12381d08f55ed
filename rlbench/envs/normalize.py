"""Observations by their running mean and deviation: learned from in training, only applied in evaluation.

As in the documented tables: every observation that is shown counts before it is normalised, the final ones of episodes
too; what comes out is cut at ±10.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.envs.base import EnvInfo, Frames, Snapshot, Step, VectorEnv
from rlbench.ops.returns import Moments, fresh, merged
from rlbench.ops.state_dict import State, tensor

CUT: Final = 10.0
EPSILON: Final = float(np.finfo(np.float32).eps)


class Scaling(Protocol):
    """Shows observations otherwise than they are."""

    def __call__(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """``[N, ...]`` to the same."""


class Fixed(NamedTuple):
    """The scale of recorded observations, which nothing moves."""

    mean: NDArray[np.float32]  # [F]
    deviation: NDArray[np.float32]  # [F]

    def __call__(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """``[N, F]``, as the data were shown."""
        scaled: NDArray[np.float32] = (obs - self.mean) / self.deviation
        return scaled


class Scale:
    """What is known of observations of one shape; shared by training and evaluation."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.moments = fresh(shape, torch.empty(0))

    def count(self, obs: NDArray[np.float32]) -> None:
        """Take the rows of ``[N, ...]`` into account."""
        self.moments = merged(self.moments, torch.from_numpy(obs), torch.ones(len(obs)))

    def __call__(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """``[N, ...]``, with mean 0 and deviation 1 as far as is known."""
        mean, var = self.moments.mean.numpy(), self.moments.var.numpy()
        scaled: NDArray[np.float64] = (obs - mean) / np.sqrt(var + EPSILON)
        return scaled.clip(-CUT, CUT).astype(np.float32)

    def state_dict(self) -> State:
        """Mean, variance and count."""
        return {name: getattr(self.moments, name) for name in Moments._fields}

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        self.moments = Moments(*(tensor(state, name) for name in Moments._fields))


class Normalized:
    """A vector of environments that shows everything in ``scale``; with ``learning`` it moves a scale that moves."""

    def __init__(self, envs: VectorEnv, scale: Scaling, *, learning: bool) -> None:
        self.envs, self.scale, self.learned = envs, scale, scale if learning and isinstance(scale, Scale) else None

    @property
    def info(self) -> EnvInfo:
        """Of the environments."""
        return self.envs.info

    def reset(self) -> Frames:
        """The first observations, ``[N, ...]``."""
        return self._shown(self.envs.reset())

    def send(self, action: NDArray[Any]) -> None:
        """Pass the actions ``[N, ...]`` on."""
        self.envs.send(action)

    def recv(self) -> Step:
        """The answers."""
        step = self.envs.recv()
        return step._replace(obs=self._shown(step.obs))

    def close(self) -> None:
        """Let the environments go."""
        self.envs.close()

    def _shown(self, obs: Frames) -> Frames:
        if self.learned is not None:
            self.learned.count(obs)
        return self.scale(obs)


class NormalizedSnapshot(Normalized):
    """The same around environments that can tell where they stand; the scale is saved for itself."""

    def __init__(self, envs: Snapshot, scale: Scaling, *, learning: bool) -> None:
        super().__init__(envs, scale, learning=learning)
        self.told = envs

    def state_dict(self) -> State:
        """Of the environments."""
        return self.told.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Of the environments."""
        self.told.load_state_dict(state)
