"""Normalize observations by their running mean and std, which training updates and evaluation only applies.

As in the reference scores' code: every observation updates the statistics before it is normalized, the final ones of
episodes too; results are clipped to ±10.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.envs.base import Frames, Step, VectorEnv
from rlbench.ops.returns import RunningMoments, initial_moments, update_moments
from rlbench.ops.state_dict import State, tensor

CLIP: Final = 10.0
EPSILON: Final = float(np.finfo(np.float32).eps)


class ObsTransform(Protocol):
    """Transformation of observations."""

    def __call__(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """``[N, ...]`` to the same."""


class ObsNormalizer:
    """Running mean and std of observations of one shape; shared by training and evaluation."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.moments = initial_moments(shape, torch.empty(0))

    def update(self, obs: NDArray[np.float32]) -> None:
        """Update the statistics by the rows of ``[N, ...]``."""
        self.moments = update_moments(self.moments, torch.from_numpy(obs), torch.ones(len(obs)))

    def __call__(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """``[N, ...]``, with mean 0 and std 1 by the statistics so far."""
        mean, var = self.moments.mean.numpy(), self.moments.var.numpy()
        normalized_obs: NDArray[np.float64] = (obs - mean) / np.sqrt(var + EPSILON)
        return normalized_obs.clip(-CLIP, CLIP).astype(np.float32)

    def state_dict(self) -> State:
        """Mean, variance and count."""
        return {name: getattr(self.moments, name) for name in RunningMoments._fields}

    def load_state_dict(self, state: State) -> None:
        """Load mean, variance and count."""
        self.moments = RunningMoments(*(tensor(state, name) for name in RunningMoments._fields))


class Normalized:
    """Environments with normalized observations; with ``learning`` they update the running statistics."""

    def __init__(self, envs: VectorEnv, obs_transform: ObsTransform, *, learning: bool) -> None:
        self.envs, self.obs_transform, self.info = envs, obs_transform, envs.info
        self.updated = obs_transform if learning and isinstance(obs_transform, ObsNormalizer) else None

    def reset(self) -> Frames:
        """The first observations, ``[N, ...]``."""
        return self._normalize(self.envs.reset())

    def send(self, action: NDArray[Any]) -> None:
        """Send the actions ``[N, ...]``."""
        self.envs.send(action)

    def recv(self) -> Step:
        """Return the answers with normalized observations."""
        step = self.envs.recv()
        return step._replace(obs=self._normalize(step.obs))

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _normalize(self, obs: Frames) -> Frames:
        if self.updated is not None:
            self.updated.update(obs)
        return self.obs_transform(obs)


def unnormalized(envs: VectorEnv) -> VectorEnv:
    """The environments without the normalization of their observations."""
    return envs.envs if isinstance(envs, Normalized) else envs
