"""A ring that is filled once, from a data set.

Its single env holds the rows of the data in their order, the observations without a copy. The observation after an
episode's last step has a row of its own, as in collection. A step whose next observation is unknown becomes that row
itself. So the ring returns the data's own transitions and samples no final row.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.buffers.ring import ArraySpec, RingBuffer
from rlbench.buffers.samplers import SampleRange, UniformSampler
from rlbench.datasets.episodes import Dataset, ends
from rlbench.errors import RefusedFile


class IndexSampler(UniformSampler):
    """Uniform sampling with replacement from a list of slots; a range would include final rows."""

    def __init__(self, slots: Tensor, generator: torch.Generator) -> None:
        super().__init__(generator)
        self.slots = slots

    def draw(self, batch: int, slots: SampleRange) -> tuple[Tensor, Tensor]:  # noqa: ARG002 - the list is its range
        """Slots ``[batch]`` and weights of 1."""
        uniform = torch.rand(batch, generator=self.generator, device=self.generator.device, dtype=torch.float64)
        return self.slots[(uniform * len(self.slots)).long()], torch.ones_like(uniform, dtype=torch.float32)


def dataset_ring(
    dataset: Dataset, *, n_step: int, gamma: float, generator: torch.Generator, device: torch.device, stack: int = 1
) -> RingBuffer:
    """Fill a ring of one env that samples every transition of the data uniformly.

    Raises:
        RefusedFile: no step of the data has a next observation.
    """
    done, final = _ends(dataset)
    starts, count = np.flatnonzero(~final), len(final)
    if not len(starts):
        raise RefusedFile("data set: not one complete transition; every episode has a single step and no next one")
    buffer = RingBuffer(
        capacity=max(count + 1, n_step + stack + 1),
        num_envs=1,
        obs=_column(dataset.obs, (0,)),  # takes no memory
        action=_column(dataset.action, dataset.action.shape[1:]),
        n_step=n_step,
        gamma=gamma,
        stack=stack,
        sampler=IndexSampler(torch.as_tensor(starts, device=device), generator),
        device=device,
    )
    after_final = np.r_[True, final[:-1]]  # final rows fill the first stack of an episode recorded from its middle
    row = np.arange(count, dtype=np.int32)
    start = np.maximum.accumulate(np.where(after_final & ~np.r_[True, after_final[:-1]], row, 0))
    columns = {
        "action": dataset.action,
        "reward": dataset.reward * ~final,
        "terminated": dataset.terminated & ~final,
        "done": done,
        "final": final,
        "age": row - start,
    }
    for name, values in columns.items():
        getattr(buffer, name)[:count, 0] = torch.from_numpy(values)
    buffer.obs = torch.as_tensor(dataset.obs, device=device)[:, None]  # on the host the data's own array
    buffer.set_cursors(head=count, size=count)
    return buffer


def _ends(dataset: Dataset) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Flags ``[rows]`` of the last steps of episodes, and of the rows that hold the observation after them."""
    unknown = ends(dataset) & ~np.r_[dataset.final[1:], False]  # becomes the final observation of the step before it
    final = dataset.final | unknown
    return np.r_[final[1:], False] & ~final, final


def _column(array: NDArray[np.generic], shape: tuple[int, ...]) -> ArraySpec:
    """``shape`` of one row in the ring, with the dtype of ``array``."""
    return ArraySpec(shape, torch.from_numpy(np.empty(0, array.dtype)).dtype)
