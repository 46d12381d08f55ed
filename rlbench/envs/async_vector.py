"""Lanes that do not wait for each other, each a vector of one: whatever engine it is, a lane is its synchronous self.

Every lane has a thread, which waits for it alone; engines in C++ let go of the interpreter while they work. What a lane
shows follows from its seed and its actions; only which lanes answer first is the machine's.
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
from rlbench.errors import RlbenchError, UsageError

AnswerT = TypeVar("AnswerT")


class AsyncVector:
    """N vectors of one lane each, of which ``recv`` gives the first ``async_batch`` that are done."""

    def __init__(self, *, lanes: Sequence[VectorEnv], async_batch: int) -> None:
        if not 1 <= async_batch <= len(lanes):
            raise UsageError(f"async_batch={async_batch}: from 1 to {len(lanes)} lanes can answer")
        self._lanes, self._answers = lanes, async_batch
        self._threads = ThreadPoolExecutor(len(lanes), thread_name_prefix="lane")
        self._done: SimpleQueue[tuple[int, Future[Step]]] = SimpleQueue()  # in the order of completion
        self.info: Final[EnvInfo] = lanes[0].info._replace(lanes=len(lanes))

    def reset(self) -> Frames:
        """Begin every lane's first episode, ``[N, *obs_shape]``."""
        begun = [self._threads.submit(lane.reset) for lane in self._lanes]
        return np.concatenate([_answer(number, one) for number, one in enumerate(begun)])

    def send(self, action: NDArray[Any], lane: NDArray[np.int64]) -> None:
        """Set lanes ``[M]`` going that are not on their way."""
        for row, number in enumerate(lane.tolist()):
            self._set_going(number, action[row : row + 1])

    def recv(self) -> Step:
        """Wait until ``async_batch`` lanes are done, whichever they are."""
        first = sorted((self._done.get() for _ in range(self._answers)), key=lambda one: one[0])
        steps = [_answer(number, future) for number, future in first]
        joined = Step(*(np.concatenate(column) for column in zip(*steps, strict=True)))
        return joined._replace(lane=np.array([number for number, _ in first]))

    def close(self) -> None:
        """Wait for what is on its way and let every lane go; idempotent."""
        self._threads.shutdown(cancel_futures=True)
        for lane in self._lanes:
            lane.close()

    def _set_going(self, number: int, action: NDArray[Any]) -> None:
        with _named(number):
            self._lanes[number].send(action)
        future = self._threads.submit(self._lanes[number].recv)
        future.add_done_callback(lambda done: self._done.put((number, done)))


def _answer(lane: int, future: Future[AnswerT]) -> AnswerT:
    with _named(lane):
        return future.result()


@contextmanager
def _named(lane: int) -> Iterator[None]:
    """To itself every lane is lane 0: say which it is."""
    try:
        yield
    except RlbenchError as error:
        raise type(error)(f"of the lanes apart, number {lane}: {error}") from error
