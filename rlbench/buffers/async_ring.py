"""A ring whose envs do not wait for each other: every env has its own cursor.

An env's column of rows means the same as in ``RingBuffer``, but the rows of two envs are not written together. The
cursors are on the device alone, so the host never waits to learn how full an env's column is.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.buffers.ring import RingBuffer
from rlbench.buffers.samplers import PerEnvRange, SampleRange
from rlbench.ops.state_dict import State, subtree, tensor


class AsyncRingBuffer(RingBuffer):
    """A ring written for some envs ``[M]`` at a time, or for all of them by default."""

    def add_observations(self, frames: NDArray[np.generic], env_id: NDArray[np.int64] | None = None) -> Tensor:
        """Begin a row of each env with its observation ``[M, ...]``; return the frame stacks, ``[M, (stack,) ...]``."""
        envs = self._resolve_envs(env_id)
        head = self.head[envs]
        self._begin((head, envs), ((head - 1) % self.length, envs), self._to_device(frames))
        return self.stack_frames(head * self.num_envs + envs)

    def newest_observations(self) -> Tensor:
        """The frame stack of every env's newest observation, ``[N, (stack,) ...]``."""
        return self.stack_frames(self.head * self.num_envs + self.env_ids)

    def add_transitions(
        self,
        action: Tensor,
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        env_id: NDArray[np.int64] | None = None,
    ) -> None:
        """Complete the rows with each env's action ``[M, ...]``, reward and end, each ``[M]``."""
        envs = self._resolve_envs(env_id)
        flags = self._to_device(terminated), self._to_device(terminated | truncated)
        self._complete((self.head[envs], envs), action, self._to_device(reward), *flags)
        self._advance_envs(envs)

    def truncate_episodes(self) -> None:
        """Truncate every running episode at its env's newest observation: the environments are about to be replaced."""
        self._truncate((self.head, self.env_ids), ((self.head - 1) % self.length, self.env_ids))
        self._advance_envs(self.env_ids)

    def sample_range(self) -> SampleRange:
        """The rows of each env that may be sampled."""
        margin = (self.stack - 1) * (self.size == self.length - 1)
        rows = (self.size - self.n_step + 1 - margin).clamp_min(0)
        return PerEnvRange(self.head, self.n_step, rows, self.length)

    def state_dict(self) -> State:
        """The rows in use by any env, the cursors, and the sampler's state."""
        cursors: State = {"head": self.head, "size": self.size}
        return {**self._rows_in_use(), **cursors, "sampler": self.sampler.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore the rows, the cursors and the sampler."""
        self.head.copy_(tensor(state, "head"))
        self.size.copy_(tensor(state, "size"))
        self._load_rows(state)
        self.sampler.load_state_dict(subtree(state, "sampler"))

    def _place_cursors(self, device: torch.device) -> None:
        self.head, self.size = (torch.zeros(self.num_envs, dtype=torch.int64, device=device) for _ in range(2))

    def _resolve_envs(self, env_id: NDArray[np.int64] | None) -> Tensor:
        return self.env_ids if env_id is None else self._to_device(env_id)

    def _to_device(self, array: NDArray[np.generic]) -> Tensor:
        return torch.as_tensor(array, device=self.obs.device)

    def _advance_envs(self, envs: Tensor) -> None:
        head, size = (self.head[envs] + 1) % self.length, (self.size[envs] + 1).clamp_max(self.length - 1)
        self.head[envs], self.size[envs] = head, size
        row, expired_row = (head - self.n_step) % self.length, (head + self.stack - 1) % self.length
        self.sampler.admit(row, self.final[row, envs] | (size < self.n_step), expired_row, envs)
