"""Random streams by name from one root seed: a new consumer never shifts another's numbers."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Seeds:
    """A node in the tree of streams below one root."""

    root: int
    path: tuple[int, ...] = ()

    def child(self, *names: str | int) -> Seeds:
        """The stream called ``names``: equal names give equal streams, in any order of calls."""
        keys = tuple(n if isinstance(n, int) else zlib.crc32(n.encode()) for n in names)
        return Seeds(self.root, self.path + keys)

    def number(self) -> int:
        """One 32-bit integer seed, for libraries."""
        return int(self._sequence().generate_state(1)[0])

    def numbers(self, count: int) -> tuple[int, ...]:
        """``count`` distinct 31-bit seeds, one per env."""
        seeds = dict.fromkeys(int(n) >> 1 for n in self._sequence().generate_state(2 * count + 8))
        return tuple(seeds)[:count]

    def numpy(self) -> np.random.Generator:
        """A generator for the host."""
        return np.random.Generator(np.random.PCG64(self._sequence()))

    def torch(self, device: torch.device) -> torch.Generator:
        """A generator for ``device``."""
        import torch  # noqa: PLC0415 - layer 1 must stay importable without torch

        return torch.Generator(device).manual_seed(self.number())

    def _sequence(self) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.root, spawn_key=self.path)
