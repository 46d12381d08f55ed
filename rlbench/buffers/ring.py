"""A ring of vector steps, and the one place where n-step returns and frame stacks are made.

Row (t, n) holds what lane n saw and did at ring time t, and nothing twice: the next observation is the observation
of the next row. With next-step autoreset that is the true final observation after an episode's end, so a truncated
episode bootstraps from where it really stopped. The row that holds a final observation starts no transition; it is
marked ``dead``.

A row is written in two halves: ``observe`` puts down what the lanes show (and gives it back, stacked, to act on),
``record`` what was done and how it was answered.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.buffers.samplers import Level, Sampler, Span
from rlbench.ops.state_dict import State, branch, tensor, whole
from rlbench.ops.types import Transition

Place: TypeAlias = int | tuple[Tensor, Tensor]
"""What a column ``[T, N, …]`` is asked for: one row of every lane, or rows ``[M]`` of lanes ``[M]``, a slot each."""


class Column(NamedTuple):
    """Shape and type of one lane's observation or action."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Ring:
    """``capacity // lanes`` rows of ``lanes`` slots, preallocated; no step costs more when more is stored."""

    def __init__(
        self,
        *,
        capacity: int,
        lanes: int,
        obs: Column,
        action: Column,
        n_step: int,
        gamma: float,
        stack: int,
        sampler: Sampler,
        device: torch.device,
    ) -> None:
        self.length, self.lanes = capacity // lanes, lanes
        self.n_step, self.stack, self.sampler = n_step, stack, sampler
        if self.length < n_step + stack + 1:
            raise ValueError(f"capacity {capacity} leaves {self.length} rows a lane; needs {n_step + stack + 1}")
        shape = (self.length, lanes)
        self.obs = _blank((*shape, *obs.shape), obs.dtype, device)
        self.action = _blank((*shape, *action.shape), action.dtype, device)
        self.reward = torch.zeros(shape, device=device)
        self.terminated, self.done, self.dead = (torch.zeros(shape, dtype=torch.bool, device=device) for _ in range(3))
        self.age = torch.zeros(shape, dtype=torch.int32, device=device)  # steps since the episode began
        self.dead[-1] = True  # so that the very first row begins an episode like any other after an end
        self._place_cursors(device)
        self.powers = torch.tensor([gamma**k for k in range(n_step + 1)], device=device)
        self.ahead = torch.arange(n_step, device=device)
        self.back = torch.arange(stack - 1, -1, -1, device=device)
        self.lane = torch.arange(lanes, device=device)

    def observe(self, frames: NDArray[np.generic]) -> Tensor:
        """Begin a row with what every lane shows, ``[N, ...]``; gives the same stacked, ``[N, (stack,) ...]``."""
        self._begin(self._head, (self._head - 1) % self.length, torch.from_numpy(frames))
        return self.newest()

    def newest(self) -> Tensor:
        """What every lane shows now, stacked, ``[N, (stack,) ...]``."""
        return self.stacked(self._head * self.lanes + self.lane)

    def record(
        self, action: Tensor, reward: NDArray[np.float32], terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]
    ) -> None:
        """Complete the row: what every lane did, ``[N, ...]``, and what it got for it, each ``[N]``."""
        flags = torch.from_numpy(terminated), torch.from_numpy(terminated | truncated)
        self._complete(self._head, action, torch.from_numpy(reward), *flags)
        self._advance()

    def close(self) -> None:
        """Truncate every running episode at what its lane shows now: the environments go away."""
        self._cut(self._head, (self._head - 1) % self.length)
        self._advance()

    def sample(self, batch: int) -> Transition:
        """``batch`` transitions of up to ``n_step`` steps; those drawn at a dead row weigh 0."""
        slot, weight = self.sampler.draw(batch, self.span())
        return self.gather(slot, weight)

    def span(self) -> Span:
        """The rows that may be drawn: ``n_step`` complete rows ahead, ``stack − 1`` of their own past behind."""
        behind = (self.stack - 1) * (self.size == self.length - 1)  # before the ring is full nothing is overwritten
        return Level(
            self.head, self.n_step, (self.size - self.n_step + 1 - behind).clamp_min(0), self.length, self.lanes
        )

    def gather(self, slot: Tensor, weight: Tensor) -> Transition:
        """The transitions that start at flat slots ``[B]``."""
        row, lane = slot // self.lanes, slot % self.lanes
        path = (row[:, None] + self.ahead) % self.length * self.lanes + lane[:, None]  # [B, horizon] flat
        counted = self.counted(path)
        steps = counted.sum(1).long()  # rewards summed, 1 … horizon
        last = (row + steps - 1) % self.length * self.lanes + lane
        after = (row + steps) % self.length * self.lanes + lane
        return Transition(
            obs=self.stacked(slot),
            action=self.action.flatten(0, 1)[slot],
            reward=(self.reward.view(-1)[path] * counted * self.powers[:-1]).sum(1),
            discount=self.powers[steps] * ~self.terminated.view(-1)[last],
            next_obs=self.stacked(after),
            weight=weight * ~self.dead.view(-1)[slot],
            slot=slot,
        )

    def onward(self, slot: Tensor, rows: Tensor) -> Tensor:
        """The flat slots ``[...]`` so many ``rows`` after flat slots in the same lanes; the two broadcast."""
        return (slot // self.lanes + rows) % self.length * self.lanes + slot % self.lanes

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Tell the sampler what was learned of slots ``[B]``."""
        self.sampler.reprioritize(slot, priority)

    def state_dict(self) -> State:
        """Every row that holds something, and the sampler's state."""
        return {
            **self._filled(self._size),
            "head": self._head,
            "size": self._size,
            "sampler": self.sampler.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Take the rows over; a full column as it is, so that it is never twice in memory."""
        self._fill(state)
        self._head, self._size = whole(state, "head"), whole(state, "size")
        self.head.fill_(self._head)
        self.size.fill_(self._size)
        self.sampler.load_state_dict(branch(state, "sampler"))

    def _filled(self, size: int) -> dict[str, Tensor]:
        rows = self.length if size == self.length - 1 else size + 1
        return {name: column[:rows] for name, column in self._columns().items()}

    def _fill(self, state: State) -> None:
        for name, column in self._columns().items():
            stored = tensor(state, name)
            if stored.shape == column.shape and stored.device == column.device:
                setattr(self, name, stored)
            else:
                column[: len(stored)] = stored

    def _columns(self) -> dict[str, Tensor]:
        names = ("obs", "action", "reward", "terminated", "done", "dead", "age")
        return {name: getattr(self, name) for name in names}

    def _place_cursors(self, device: torch.device) -> None:
        self._head = self._size = 0  # the same two numbers for the host
        self.head = torch.zeros((), dtype=torch.int64, device=device)  # the row being written
        self.size = torch.zeros((), dtype=torch.int64, device=device)  # complete rows, at most length − 1

    def _begin(self, now: Place, before: Place, frames: Tensor) -> None:
        self.obs[now] = frames
        self.dead[now] = self.done[before]
        self.age[now] = torch.where(self.dead[before], 0, self.age[before] + 1)

    def _complete(self, now: Place, action: Tensor, reward: Tensor, terminated: Tensor, done: Tensor) -> None:
        live = ~self.dead[now]
        self.action[now] = action
        self.reward[now] = reward
        self.terminated[now] = terminated
        self.done[now] = done
        for column in (self.reward, self.terminated, self.done):
            column[now] *= live

    def _cut(self, now: Place, before: Place) -> None:
        self.done[before] |= ~self.dead[before]
        self.dead[now] = True
        for column in (self.action, self.reward, self.terminated, self.done):
            column[now] = 0

    def _advance(self) -> None:
        self._head, self._size = (self._head + 1) % self.length, min(self._size + 1, self.length - 1)
        self.head.fill_(self._head)
        self.size.fill_(self._size)
        if self._size >= self.n_step:
            fresh, stale = self._head - self.n_step, self._head + self.stack - 1
            dead = self.dead[fresh % self.length]
            self.sampler.moved(fresh % self.length, dead, stale % self.length, self.lane)

    def counted(self, path: Tensor) -> Tensor:
        """1 up to and with the step that ends the episode, then 0, along paths ``[B, n_step]`` of flat slots."""
        done = self.done.view(-1)[path]
        return (done.cumsum(1) - done.long() == 0).float()

    def stacked(self, slot: Tensor) -> Tensor:
        """The last ``stack`` observations of each slot's own episode, the first one repeated, ``[B, (stack,) ...]``."""
        flat = self.obs.flatten(0, 1)
        if self.stack == 1:
            return flat.index_select(0, slot)
        back = torch.minimum(self.back, self.age.view(-1)[slot][:, None])  # [B, stack]
        row = (slot[:, None] // self.lanes - back) % self.length
        frames = flat.index_select(0, (row * self.lanes + slot[:, None] % self.lanes).flatten())
        return frames.view(len(slot), self.stack, *self.obs.shape[2:])


def _blank(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on the host a page is taken when it is written, so that a loaded state does not lie beside them."""
    if device.type != "cpu" or 0 in shape:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(shape)
