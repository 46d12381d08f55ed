"""Which slots of a ring to learn from."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from rlbench.ops.state_dict import State, tensor


class Span(Protocol):
    """The slots of a ring that may start a transition: complete ahead, whole stack behind."""

    def at(self, coin: Tensor) -> tuple[Tensor, Tensor]:
        """Flat slots ``row · N + lane``, ``[B]`` int64, for numbers in [0, 1), and weights: 0 where there is none."""


class Level(NamedTuple):
    """The same rows in every lane."""

    head: Tensor  # [] int64 the row being written
    youngest: int  # rows between the head and the newest that may be drawn
    rows: Tensor  # [] int64 how many, from there into the past
    length: int  # rows of the ring
    lanes: int  # of the ring

    def at(self, coin: Tensor) -> tuple[Tensor, Tensor]:
        """``[B]`` slots row by row, from the newest into the past."""
        index = (coin * (self.rows * self.lanes)).long()
        row = (self.head - self.youngest - index // self.lanes) % self.length
        weight = (self.rows > 0).float().expand(len(coin))  # where nothing is complete yet, nothing weighs
        return row * self.lanes + index % self.lanes, weight


class Ragged(NamedTuple):
    """Every lane its own rows."""

    head: Tensor  # [N] int64 the row being written in each lane
    youngest: int  # rows between a head and the newest that may be drawn
    rows: Tensor  # [N] int64 how many, from there into the past
    length: int  # rows of the ring

    def at(self, coin: Tensor) -> tuple[Tensor, Tensor]:
        """``[B]`` slots lane by lane, each from its newest row into the past."""
        ends, lanes = self.rows.cumsum(0), len(self.rows)
        index = (coin * ends[-1]).long()
        lane = torch.searchsorted(ends, index, right=True).clamp_max(lanes - 1)
        back = index - (ends[lane] - self.rows[lane])
        row = (self.head[lane] - self.youngest - back) % self.length
        return row * lanes + lane, (ends[-1] > 0).float().expand(len(coin))


class Sampler(Protocol):
    """Draws slots; priorities, where there are any, live here and not in the ring."""

    def moved(self, fresh: int | Tensor, dead: Tensor, stale: int | Tensor, lane: Tensor) -> None:
        """In lanes ``[M]`` row ``fresh`` may be drawn from now on, where not ``dead``, and row ``stale`` no more.

        Each is one row for all of them, or ``[M]``.
        """

    def draw(self, batch: int, span: Span) -> tuple[Tensor, Tensor]:
        """``batch`` flat slots ``row · N + lane`` within ``span``, ``[B]`` int64, and their weights, ``[B]``."""

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Learned: these slots ``[B]`` now have these priorities ``[B]``."""

    def state_dict(self) -> State:
        """Generator and priorities."""

    def load_state_dict(self, state: State) -> None:
        """Take them over."""


class Uniform:
    """Every slot alike, with replacement."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def moved(self, fresh: int | Tensor, dead: Tensor, stale: int | Tensor, lane: Tensor) -> None:
        """Nothing to note of lanes ``[M]``."""

    def draw(self, batch: int, span: Span) -> tuple[Tensor, Tensor]:
        """``[B]`` slots drawn with 53 random bits, so that even 10⁸ of them are equally likely to 1 part in 10⁷."""
        coin = torch.rand(batch, generator=self.generator, device=self.generator.device, dtype=torch.float64)
        return span.at(coin)

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Nothing to note of slots ``[B]``."""

    def state_dict(self) -> State:
        """The generator."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """The generator."""
        self.generator.set_state(tensor(state, "generator"))
