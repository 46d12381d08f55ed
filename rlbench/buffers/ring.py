"""A ring of vector steps, which computes n-step returns and stacks frames.

Slot (t, n) of row t holds env n's observation and action at ring time t. The next observation is stored once, as the
observation of the next row. With next-step autoreset that is the true final observation after an episode's end, so a
truncated episode bootstraps from it. The row of a final observation starts no transition; it is marked ``final``.

A row is written in two halves: ``add_observations`` stores the observations and returns their frame stacks, on which
the policy acts; ``add_transitions`` stores the actions, the rewards and the ends.
"""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.buffers.prioritized import PrioritizedSampler
from rlbench.buffers.samplers import CommonRange, SampleRange, UniformSampler
from rlbench.ops.state_dict import State, integer, subtree, tensor
from rlbench.ops.types import Transition

COLUMNS: Final = ("obs", "action", "reward", "terminated", "done", "final", "age")
SAVED_NAMES: Final = {"final": "dead"}  # in a checkpoint, where they differ

RowIndex: TypeAlias = int | tuple[Tensor, Tensor]
"""An index into a column ``[T, N, …]``: one row of every env, or rows ``[M]`` of envs ``[M]``, one slot each."""


class ArraySpec(NamedTuple):
    """Shape and dtype of one env's observation or action."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class RingBuffer:
    """``capacity // num_envs`` rows of ``num_envs`` slots, preallocated; a step costs the same at any size."""

    def __init__(
        self,
        *,
        capacity: int,
        num_envs: int,
        obs: ArraySpec,
        action: ArraySpec,
        n_step: int,
        gamma: float,
        stack: int,
        sampler: UniformSampler | PrioritizedSampler,
        device: torch.device,
    ) -> None:
        self.length, self.num_envs = capacity // num_envs, num_envs
        self.n_step, self.stack, self.sampler = n_step, stack, sampler
        if self.length < n_step + stack + 1:
            raise ValueError(f"capacity {capacity} leaves {self.length} rows per env; needs {n_step + stack + 1}")
        shape = (self.length, num_envs)
        self.obs = _zeros((*shape, *obs.shape), obs.dtype, device)
        self.action = _zeros((*shape, *action.shape), action.dtype, device)
        self.reward = torch.zeros(shape, device=device)
        self.terminated, self.done, self.final = (torch.zeros(shape, dtype=torch.bool, device=device) for _ in range(3))
        self.age = torch.zeros(shape, dtype=torch.int32, device=device)  # steps since the episode began
        self.final[-1] = True  # so that the very first row begins an episode like any other after an end
        self._place_cursors(device)
        self.discounts = torch.tensor([gamma**k for k in range(n_step + 1)], device=device)
        self.step_offsets = torch.arange(n_step, device=device)
        self.stack_offsets = torch.arange(stack - 1, -1, -1, device=device)
        self.env_ids = torch.arange(num_envs, device=device)

    def add_observations(self, frames: NDArray[np.generic]) -> Tensor:
        """Begin a row with every env's observation ``[N, ...]``; return the frame stacks, ``[N, (stack,) ...]``."""
        self._begin(self._head, (self._head - 1) % self.length, torch.from_numpy(frames))
        return self.newest_observations()

    def newest_observations(self) -> Tensor:
        """The frame stack of every env's newest observation, ``[N, (stack,) ...]``."""
        return self.stack_frames(self._head * self.num_envs + self.env_ids)

    def add_transitions(
        self, action: Tensor, reward: NDArray[np.float32], terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]
    ) -> None:
        """Complete the row with every env's action ``[N, ...]``, reward and end, each ``[N]``."""
        flags = torch.from_numpy(terminated), torch.from_numpy(terminated | truncated)
        self._complete(self._head, action, torch.from_numpy(reward), *flags)
        self._advance()

    def truncate_episodes(self) -> None:
        """Truncate every running episode at its env's newest observation: the environments are about to be replaced."""
        self._truncate(self._head, (self._head - 1) % self.length)
        self._advance()

    def sample(self, batch: int) -> Transition:
        """``batch`` transitions of up to ``n_step`` steps; a transition sampled at a final row has weight 0."""
        slot, weight = self.sampler.draw(batch, self.sample_range())
        return self.gather_transitions(slot, weight)

    def sample_range(self) -> SampleRange:
        """The rows that may be sampled: their frame stacks and ``n_step`` successors are still stored."""
        margin = (self.stack - 1) * (self.size == self.length - 1)  # before the ring is full nothing is overwritten
        return CommonRange(
            self.head, self.n_step, (self.size - self.n_step + 1 - margin).clamp_min(0), self.length, self.num_envs
        )

    def gather_transitions(self, slot: Tensor, weight: Tensor) -> Transition:
        """The n-step transitions ``[B]`` that start at flat slots ``[B]``.

        An n-step return stops at the end of an episode; it bootstraps there unless the episode terminated.
        """
        path = self.shift_slots(slot[:, None], self.step_offsets)  # [B, n_step]
        mask = self.episode_mask(path)
        steps = mask.sum(1).long()  # rewards summed, 1 … n_step
        last, end = self.shift_slots(slot, steps - 1), self.shift_slots(slot, steps)
        return Transition(
            obs=self.stack_frames(slot),
            action=self.action.flatten(0, 1)[slot],
            reward=(self.reward.view(-1)[path] * mask * self.discounts[:-1]).sum(1),
            discount=self.discounts[steps] * ~self.terminated.view(-1)[last],
            next_obs=self.stack_frames(end),
            weight=weight * ~self.final.view(-1)[slot],
            slot=slot,
        )

    def shift_slots(self, slot: Tensor, rows: Tensor | int) -> Tensor:
        """The flat slots ``[...]`` that lie ``rows`` after flat slots of the same envs; the two broadcast."""
        return (slot // self.num_envs + rows) % self.length * self.num_envs + slot % self.num_envs

    def update_priorities(self, slot: Tensor, priority: Tensor) -> None:
        """Set the priorities ``[B]`` of slots ``[B]`` in the sampler."""
        self.sampler.update_priorities(slot, priority)

    def state_dict(self) -> State:
        """The rows in use, and the sampler's state."""
        return {**self._rows_in_use(), "head": self._head, "size": self._size, "sampler": self.sampler.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore the rows; a full column is taken without a copy, so that it is in memory once."""
        self.set_cursors(integer(state, "head"), integer(state, "size"))
        self._load_rows(state)
        self.sampler.load_state_dict(subtree(state, "sampler"))

    def set_cursors(self, head: int, size: int) -> None:
        """Set the row that is being written, and the number of complete rows."""
        self._head, self._size = head, size
        self.head.fill_(head)
        self.size.fill_(size)

    def _rows_in_use(self) -> dict[str, Tensor]:
        size = int(self.size.max())
        rows = self.length if size == self.length - 1 else size + 1
        return {SAVED_NAMES.get(name, name): getattr(self, name)[:rows] for name in COLUMNS}

    def _load_rows(self, state: State) -> None:
        if any(not 0 <= int(cursor) < self.length for cursor in (*self.head.view(-1), *self.size.view(-1))):
            raise TypeError(f"a cursor lies outside a ring of {self.length} rows")
        for name, (saved_name, rows) in zip(COLUMNS, self._rows_in_use().items(), strict=True):
            saved_rows = tensor(state, saved_name, like=rows)
            if len(rows) == self.length and saved_rows.device == rows.device:
                setattr(self, name, saved_rows)
            else:
                rows.copy_(saved_rows)

    def _place_cursors(self, device: torch.device) -> None:
        self._head = self._size = 0  # head and size again, on the host
        self.head = torch.zeros((), dtype=torch.int64, device=device)  # the row being written
        self.size = torch.zeros((), dtype=torch.int64, device=device)  # complete rows, at most length − 1

    def _begin(self, now: RowIndex, previous: RowIndex, frames: Tensor) -> None:
        self.obs[now] = frames
        self.final[now] = self.done[previous]
        self.age[now] = torch.where(self.final[previous], 0, self.age[previous] + 1)

    def _complete(self, now: RowIndex, action: Tensor, reward: Tensor, terminated: Tensor, done: Tensor) -> None:
        has_action = ~self.final[now]
        self.action[now] = action
        self.reward[now] = reward
        self.terminated[now] = terminated
        self.done[now] = done
        for column in (self.reward, self.terminated, self.done):
            column[now] *= has_action

    def _truncate(self, now: RowIndex, previous: RowIndex) -> None:
        self.done[previous] |= ~self.final[previous]
        self.final[now] = True
        for column in (self.action, self.reward, self.terminated, self.done):
            column[now] = 0

    def _advance(self) -> None:
        self.set_cursors((self._head + 1) % self.length, min(self._size + 1, self.length - 1))
        if self._size >= self.n_step:
            row, expired_row = self._head - self.n_step, self._head + self.stack - 1
            final = self.final[row % self.length]
            self.sampler.admit(row % self.length, final, expired_row % self.length, self.env_ids)

    def episode_mask(self, path: Tensor) -> Tensor:
        """1 up to and including the step that ends the episode, then 0, along paths ``[B, n_step]`` of flat slots."""
        done = self.done.view(-1)[path]
        return (done.cumsum(1) - done.long() == 0).float()

    def stack_frames(self, slot: Tensor) -> Tensor:
        """The last ``stack`` observations of each slot's episode, ``[B, (stack,) ...]``; the first pads the stack."""
        flat = self.obs.flatten(0, 1)
        if self.stack == 1:
            return flat.index_select(0, slot)
        age = torch.minimum(self.stack_offsets, self.age.view(-1)[slot][:, None])  # [B, stack]
        frames = flat.index_select(0, self.shift_slots(slot[:, None], -age).flatten())
        return frames.view(len(slot), self.stack, *self.obs.shape[2:])


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on the host a page is allocated when it is first written, so loading a state needs no second copy."""
    if device.type != "cpu" or 0 in shape:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(shape)
