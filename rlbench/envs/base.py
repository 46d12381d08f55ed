"""Interface of every environment: a vector of envs that takes actions and answers with a ``Step``.

Next-step autoreset, as Gymnasium calls it: the answer that ends an episode carries its true final observation. The
next ``send`` to that env ignores the action, resets, and answers with the first observation of the next episode,
reward 0 and no flag. So the next observation is always the next row, and a truncated episode bootstraps from its true
last observation.

Continuous actions are float32 in [−1, 1], scaled linearly to the bounds of the environment. So learners and buffers
hold actions in [−1, 1] alone.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rlbench.ops.state_dict import State

Frames: TypeAlias = NDArray[Any]
"""Observations of N envs, ``[N, *obs_shape]``: the newest frame only, never a stack."""


SCORE: Final = "rlbench/score"
OVER: Final = "rlbench/over"
"""Names by which wrappers put ``Step.score`` and ``Step.game_over`` into Gymnasium's info; no environment uses them."""


class Discrete(NamedTuple):
    """Actions 0 … n−1."""

    n: int


class Box(NamedTuple):
    """Continuous actions in [−1, 1], which the adapter scales to ``low`` … ``high``, both ``[A]`` and finite."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]


class EnvInfo(NamedTuple):
    """Constants of a vector of environments."""

    num_envs: int
    obs_shape: tuple[int, ...]  # of one env's newest frame
    obs_dtype: np.dtype[Any]
    actions: Discrete | Box
    versions: tuple[tuple[str, str], ...]  # for the record: (("env", "ale/pong"), ("ale-py", "0.12.1"))


class Step(NamedTuple):
    """Answers of M envs to one action each."""

    obs: Frames  # [M, *obs_shape]; the true final observation where an episode just ended; never overwritten later
    reward: NDArray[np.float32]  # [M] the learner's reward: clipped where the task says so
    terminated: NDArray[np.bool_]  # [M] no bootstrap: a terminal state, or on Atari in training a lost life
    truncated: NDArray[np.bool_]  # [M] stopped by a limit; never together with ``terminated``
    env_id: NDArray[np.int64]  # [M] index of each env that answers, ascending
    score: NDArray[np.float64]  # [M] raw points of this step, before clipping
    game_over: NDArray[np.bool_]  # [M] the whole game ended; a lost life sets ``terminated`` alone


class Environments(Protocol):
    """N environments, stepped together or asynchronously."""

    @property
    def info(self) -> EnvInfo:
        """Shapes, types and versions."""

    def reset(self) -> Frames:
        """Begin every env's first episode, ``[N, ...]``; called once, before the first ``send``."""

    def recv(self) -> Step:
        """Wait for the answers to ``send``: of all envs, or of the first ``M`` of asynchronous ones."""

    def close(self) -> None:
        """Release threads and memory; idempotent."""


@runtime_checkable
class VectorEnv(Environments, Protocol):
    """N environments, stepped together."""

    def send(self, action: NDArray[Any]) -> None:
        """Start a step of all envs with actions ``[N]`` int64 or ``[N, A]`` float32 in [−1, 1]."""


class AsyncVectorEnv(Environments, Protocol):
    """N environments, each of which answers when it can; autoreset as in a ``VectorEnv``."""

    def send(self, action: NDArray[Any], env_id: NDArray[np.int64]) -> None:
        """Start a step of the idle envs ``env_id`` ``[M]``, with actions ``[M]`` int64 or ``[M, A]`` float32."""


@runtime_checkable
class Snapshot(VectorEnv, Protocol):
    """A ``VectorEnv`` whose state can be saved and restored at any step, to the bit."""

    def state_dict(self) -> State:
        """State of envs and generators; called after ``reset``, and not between ``send`` and ``recv``."""

    def load_state_dict(self, state: State) -> None:
        """Restore the state, instead of ``reset``; the observation is not part of it.

        Raises:
            BrokenEnvironment: the state belongs to another task or version.
        """
