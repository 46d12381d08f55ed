"""Which slots of a ring to learn from."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from rlbench.ops.state import State, tensor


class Span(NamedTuple):
    """The rows of a ring that may start a transition, in every lane: complete ahead, whole stack behind."""

    head: Tensor  # [] int64 the row being written
    youngest: int  # rows between the head and the newest that may be drawn
    rows: Tensor  # [] int64 how many, from there into the past
    length: int  # rows of the ring
    lanes: int


class Sampler(Protocol):
    """Draws slots; priorities, where there are any, live here and not in the ring."""

    def moved(self, fresh: int, dead: Tensor, stale: int) -> None:
        """Row ``fresh`` may be drawn from now on, in the lanes not ``dead`` ``[N]``; row ``stale`` no more."""

    def draw(self, batch: int, span: Span) -> tuple[Tensor, Tensor]:
        """``batch`` flat slots ``row · N + lane`` within ``span``, ``[B]`` int64, and their weights, ``[B]``."""

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Learned: these slots now have these priorities."""

    def state_dict(self) -> State:
        """Generator and priorities."""

    def load_state_dict(self, state: State) -> None:
        """Take them over."""


class Uniform:
    """Every slot alike, with replacement."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def moved(self, fresh: int, dead: Tensor, stale: int) -> None:
        """Nothing to note."""

    def draw(self, batch: int, span: Span) -> tuple[Tensor, Tensor]:
        """Slots drawn with 53 random bits, so that even 10⁸ of them are equally likely to 1 part in 10⁷."""
        device = self.generator.device
        coin = torch.rand(batch, generator=self.generator, device=device, dtype=torch.float64)
        index = (coin * (span.rows * span.lanes)).long()
        row = (span.head - span.youngest - index // span.lanes) % span.length
        weight = (span.rows > 0).float().expand(batch)  # where nothing is complete yet, nothing weighs
        return row * span.lanes + index % span.lanes, weight

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Nothing to note."""

    def state_dict(self) -> State:
        """The generator."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """The generator."""
        self.generator.set_state(tensor(state, "generator"))
