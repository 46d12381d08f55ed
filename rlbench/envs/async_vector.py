"""Asynchronous vector of envs, each a synchronous vector of one env with a thread of its own.

C++ engines release the interpreter while they work. The observations of an env follow from its seed and actions; only
the order of answers depends on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlbench.envs.base import EnvInfo, Frames, Step, VectorEnv
from rlbench.errors import RlbenchError

ResultT = TypeVar("ResultT")


class AsyncVector:
    """N vectors of one env each; ``recv`` returns the first ``async_batch`` that answer."""

    def __init__(self, *, envs: Sequence[VectorEnv], async_batch: int) -> None:
        self._envs, self._async_batch = envs, async_batch
        self._threads = ThreadPoolExecutor(len(envs), thread_name_prefix="env")
        self._done: SimpleQueue[tuple[int, Future[Step]]] = SimpleQueue()  # in the order of completion
        self.info: Final[EnvInfo] = envs[0].info._replace(num_envs=len(envs))

    def reset(self) -> Frames:
        """Begin every env's first episode, ``[N, *obs_shape]``."""
        futures = [self._threads.submit(env.reset) for env in self._envs]
        return np.concatenate([_result(env_id, future) for env_id, future in enumerate(futures)])

    def send(self, action: NDArray[Any], env_id: NDArray[np.int64]) -> None:
        """Start a step of the idle envs ``[M]``."""
        for row, index in enumerate(env_id.tolist()):
            self._start(index, action[row : row + 1])

    def recv(self) -> Step:
        """Wait until any ``async_batch`` envs have answered."""
        first = sorted((self._done.get() for _ in range(self._async_batch)), key=lambda pair: pair[0])
        steps = [_result(env_id, future) for env_id, future in first]
        step = Step(*(np.concatenate(column) for column in zip(*steps, strict=True)))
        return step._replace(env_id=np.array([env_id for env_id, _ in first]))

    def close(self) -> None:
        """Wait for pending steps and close every env; idempotent."""
        self._threads.shutdown(cancel_futures=True)
        for env in self._envs:
            env.close()

    def _start(self, env_id: int, action: NDArray[Any]) -> None:
        with _errors_of(env_id):
            self._envs[env_id].send(action)
        future = self._threads.submit(self._envs[env_id].recv)
        future.add_done_callback(lambda done: self._done.put((env_id, done)))


def _result(env_id: int, future: Future[ResultT]) -> ResultT:
    with _errors_of(env_id):
        return future.result()


@contextmanager
def _errors_of(env_id: int) -> Iterator[None]:
    """Name the env in its errors, since a vector of one calls every env 0."""
    try:
        yield
    except RlbenchError as error:
        raise type(error)(f"async env {env_id}: {error}") from error
