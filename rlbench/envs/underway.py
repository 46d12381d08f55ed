"""Lanes that are under way between ``send`` and ``recv``, though their engine steps in the call of its ``recv``.

A thread waits for them, so that whoever has sent may do something else. The answers are the same, to the bit: the
thread does what the caller would have done, between the same two calls.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from numpy.typing import NDArray

from rlbench.envs.base import EnvInfo, Frames, Snapshot, Step, VectorEnv
from rlbench.ops.state import State


class Underway:
    """A vector of environments that steps while nobody waits for it."""

    def __init__(self, envs: VectorEnv) -> None:
        self.envs = envs
        self._thread = ThreadPoolExecutor(1, "underway")
        self._answer: Future[Step] | None = None

    @property
    def info(self) -> EnvInfo:
        """Of the environments."""
        return self.envs.info

    def reset(self) -> Frames:
        """The first observations, ``[N, ...]``."""
        return self.envs.reset()

    def send(self, action: NDArray[Any]) -> None:
        """Set all lanes going; the actions ``[N, ...]`` must not change under way."""
        self.envs.send(action)
        self._answer = self._thread.submit(self.envs.recv)

    def recv(self) -> Step:
        """Wait for the answers.

        Raises:
            RuntimeError: nothing was sent.
        """
        if self._answer is None:
            raise RuntimeError("send actions first")
        answer, self._answer = self._answer, None
        return answer.result()

    def close(self) -> None:
        """Wait for what is under way and let it go; idempotent."""
        self._thread.shutdown(cancel_futures=True)
        self.envs.close()


class UnderwaySnapshot(Underway):
    """The same of environments that can tell where they stand."""

    def __init__(self, envs: Snapshot) -> None:
        super().__init__(envs)
        self.told = envs

    def state_dict(self) -> State:
        """Of the environments, which must not be under way."""
        return self.told.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Put them there."""
        self.told.load_state_dict(state)


def underway(envs: VectorEnv) -> VectorEnv:
    """The same environments, stepped in a thread."""
    return UnderwaySnapshot(envs) if isinstance(envs, Snapshot) else Underway(envs)
