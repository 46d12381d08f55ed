"""Samplers: they choose the slots of a ring from which the learner's batch is gathered."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from rlbench.ops.state_dict import Composite


class CommonRange(NamedTuple):
    """The same rows for every env."""

    head: Tensor  # [] int64 the row being written
    n_step: int  # distance from the head back to the newest row that may be drawn
    rows: Tensor  # [] int64 how many may be drawn, from that row backwards
    length: int  # rows of the ring
    num_envs: int  # of the ring

    def at(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return flat slots ``row · N + env``, ``[B]`` int64, and weights ``[B]``, 0 in an empty ring.

        ``uniform`` are numbers ``[B]`` in [0, 1); they choose row by row, from the newest into the past.
        """
        index = (uniform * (self.rows * self.num_envs)).long()
        row = (self.head - self.n_step - index // self.num_envs) % self.length
        weight = (self.rows > 0).float().expand(len(uniform))  # 0 while no transition is complete
        return row * self.num_envs + index % self.num_envs, weight


class PerEnvRange(NamedTuple):
    """Rows that differ from env to env."""

    head: Tensor  # [N] int64 the row of each env that is being written
    n_step: int  # distance from the head back to the newest row that may be drawn
    rows: Tensor  # [N] int64 how many may be drawn, from that row backwards
    length: int  # rows of the ring

    def at(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """As ``CommonRange.at``, but env by env: slots ``[B]``, each env from its newest row into the past."""
        ends, num_envs = self.rows.cumsum(0), len(self.rows)
        index = (uniform * ends[-1]).long()
        env = torch.searchsorted(ends, index, right=True).clamp_max(num_envs - 1)
        back = index - (ends[env] - self.rows[env])
        row = (self.head[env] - self.n_step - back) % self.length
        return row * num_envs + env, (ends[-1] > 0).float().expand(len(uniform))


SampleRange: TypeAlias = CommonRange | PerEnvRange
"""The slots of a ring that may start a transition: its observations and their frame stacks are stored."""


class UniformSampler(Composite):
    """Uniform sampling with replacement."""

    saved = ("generator",)

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def admit(self, row: int | Tensor, final: Tensor, expired_row: int | Tensor, env_ids: Tensor) -> None:
        """Do nothing: no envs ``[M]`` have priorities."""

    def draw(self, batch: int, slots: SampleRange) -> tuple[Tensor, Tensor]:
        """Draw ``[B]`` slots and weights, by 53 random bits: even 10⁸ slots are equally likely to 1 part in 10⁷."""
        uniform = torch.rand(batch, generator=self.generator, device=self.generator.device, dtype=torch.float64)
        return slots.at(uniform)

    def update_priorities(self, slot: Tensor, priority: Tensor) -> None:
        """Do nothing: slots ``[B]`` have no priorities."""
