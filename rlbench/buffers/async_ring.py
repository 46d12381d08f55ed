"""A ring whose lanes do not wait for each other: every lane has its own cursor.

A lane's column of rows means what it means in the ring; only that the rows of two lanes were not written together. The
cursors live on the device alone, so nothing waits to know how full a lane is.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.buffers.ring import Ring
from rlbench.buffers.samplers import Ragged, Span
from rlbench.ops.state_dict import State, branch, tensor


class AsyncRing(Ring):
    """A ring written in some lanes ``[M]`` at a time; in all of them where none are named."""

    def observe(self, frames: NDArray[np.generic], lane: NDArray[np.int64] | None = None) -> Tensor:
        """Begin a row in each lane with what it shows, ``[M, ...]``; gives the same stacked, ``[M, (stack,) ...]``."""
        lanes = self._named(lane)
        head = self.head[lanes]
        self._begin((head, lanes), ((head - 1) % self.length, lanes), self._here(frames))
        return self.stacked(head * self.lanes + lanes)

    def newest(self) -> Tensor:
        """What every lane shows now, stacked, ``[N, (stack,) ...]``."""
        return self.stacked(self.head * self.lanes + self.lane)

    def record(
        self,
        action: Tensor,
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        lane: NDArray[np.int64] | None = None,
    ) -> None:
        """Complete the rows: what each lane did, ``[M, ...]``, and what it got for it, each ``[M]``."""
        lanes = self._named(lane)
        flags = self._here(terminated), self._here(terminated | truncated)
        self._complete((self.head[lanes], lanes), action, self._here(reward), *flags)
        self._move(lanes)

    def close(self) -> None:
        """Truncate every running episode at what its lane shows now: the environments go away."""
        self._cut((self.head, self.lane), ((self.head - 1) % self.length, self.lane))
        self._move(self.lane)

    def span(self) -> Span:
        """The rows that may be drawn, lane by lane."""
        behind = (self.stack - 1) * (self.size == self.length - 1)
        rows = (self.size - self.n_step + 1 - behind).clamp_min(0)
        return Ragged(self.head, self.n_step, rows, self.length)

    def state_dict(self) -> State:
        """Every row that holds something in some lane, the cursors, and the sampler's state."""
        cursors: State = {"head": self.head, "size": self.size}
        return {**self._filled(int(self.size.max())), **cursors, "sampler": self.sampler.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take the rows and cursors over."""
        self._fill(state)
        self.head.copy_(tensor(state, "head"))
        self.size.copy_(tensor(state, "size"))
        self.sampler.load_state_dict(branch(state, "sampler"))

    def _place_cursors(self, device: torch.device) -> None:
        self.head, self.size = (torch.zeros(self.lanes, dtype=torch.int64, device=device) for _ in range(2))

    def _named(self, lane: NDArray[np.int64] | None) -> Tensor:
        return self.lane if lane is None else self._here(lane)

    def _here(self, array: NDArray[np.generic]) -> Tensor:
        return torch.as_tensor(array, device=self.obs.device)

    def _move(self, lanes: Tensor) -> None:
        head, size = (self.head[lanes] + 1) % self.length, (self.size[lanes] + 1).clamp_max(self.length - 1)
        self.head[lanes], self.size[lanes] = head, size
        fresh, stale = (head - self.n_step) % self.length, (head + self.stack - 1) % self.length
        self.sampler.moved(fresh, self.dead[fresh, lanes] | (size < self.n_step), stale, lanes)
