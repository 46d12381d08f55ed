"""The one face of every environment: a vector of lanes that is sent actions and answers with a ``Step``.

Next-step autoreset, everywhere: the answer that ends an episode carries its true final observation; the
next ``send`` to that lane ignores the action, resets, and answers with the first observation of the next
episode, reward 0 and no flag. Hence the next observation is always the next row, and a truncated episode
bootstraps from where it really stopped.

Continuous actions are sent in [−1, 1], float32: −1 stands for the lowest and 1 for the highest value the environment
takes, and what lies between is stretched linearly. So every learner's range is [−1, 1], and so is what a buffer holds.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rlbench.ops.state_dict import State

Frames: TypeAlias = NDArray[Any]
"""What N lanes show, ``[N, *obs_shape]``: the newest frame only, never a stack."""


class Discrete(NamedTuple):
    """Actions 0 … n−1."""

    n: int


class Box(NamedTuple):
    """Real vectors; sent in [−1, 1], which the adapter stretches to ``low`` … ``high``, both ``[A]`` and finite."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]


class EnvInfo(NamedTuple):
    """What does not change while a vector of environments lives."""

    lanes: int
    obs_shape: tuple[int, ...]  # of one lane's newest frame
    obs_dtype: np.dtype[Any]
    actions: Discrete | Box
    versions: tuple[
        tuple[str, str], ...
    ]  # what stepped it, for the record: (("env", "ale/pong"), ("ale-py", "0.12.1"))


class Step(NamedTuple):
    """What M lanes answer to one action each."""

    obs: Frames  # [M, *obs_shape]; the true final observation where an episode just ended; never overwritten later
    reward: NDArray[np.float32]  # [M] what the learner is paid: clipped where the task says so
    terminated: NDArray[np.bool_]  # [M] nothing to bootstrap from: the game, or in training a life, is lost
    truncated: NDArray[np.bool_]  # [M] stopped by a limit; never together with ``terminated``
    lane: NDArray[np.int64]  # [M] which lanes answer, ascending
    score: NDArray[np.float64]  # [M] raw points of this step, whatever ``reward`` was made of
    over: NDArray[np.bool_]  # [M] the whole game ended: with a lost life ``terminated`` is set and this is not


class VectorEnv(Protocol):
    """N environments side by side."""

    @property
    def info(self) -> EnvInfo:
        """Shapes, types and versions."""

    def reset(self) -> Frames:
        """Begin every lane's first episode, ``[N, ...]``; called once, before the first ``send``."""

    def send(self, action: NDArray[Any]) -> None:
        """Set all lanes going, ``[N]`` int64 or ``[N, A]`` float32 in [−1, 1]; returns at once where the engine can."""

    def recv(self) -> Step:
        """Wait for the answers to the last ``send``."""

    def close(self) -> None:
        """Let go of threads and memory; idempotent."""


class AsyncVectorEnv(Protocol):
    """N environments side by side, each answering when it can; otherwise as a ``VectorEnv``, autoreset included."""

    @property
    def info(self) -> EnvInfo:
        """Shapes, types and versions."""

    def reset(self) -> Frames:
        """Begin every lane's first episode, ``[N, ...]``; called once, before the first ``send``."""

    def send(self, action: NDArray[Any], lane: NDArray[np.int64]) -> None:
        """Set lanes ``[M]`` going that are not on their way; ``[M]`` int64 or ``[M, A]`` float32; returns at once."""

    def recv(self) -> Step:
        """Wait for the first lanes to answer, ``1 ≤ M ≤ N`` of those on their way; ``lane`` says which."""

    def close(self) -> None:
        """Let go of threads and memory; idempotent."""


@runtime_checkable
class Snapshot(VectorEnv, Protocol):
    """A ``VectorEnv`` that can be put where another of the same task and seeds stood, to the bit, at any step."""

    def state_dict(self) -> State:
        """Everything later answers depend on; called after ``reset``, and not between ``send`` and ``recv``."""

    def load_state_dict(self, state: State) -> None:
        """Stand there, instead of ``reset``; what is shown there is not told again.

        Raises:
            BrokenEnvironment: the state is another task's, or another version's.
        """
