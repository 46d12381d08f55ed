"""A ring that is filled once, from a data set.

Its single env holds the steps in the order of the file. The observation after an episode's last step has a row of its
own, as in collection. A step whose next observation the file does not store becomes that row itself. So the ring
returns the file's own transitions and samples no final row. Recordings that contain such rows are used as they are,
their frames without a copy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.buffers.ring import ArraySpec, RingBuffer
from rlbench.buffers.samplers import SampleRange, UniformSampler
from rlbench.datasets.episodes import ObsScaler, ends, final_rows
from rlbench.datasets.hdf5 import CHUNK
from rlbench.datasets.types import Dataset
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


class RowLayout(NamedTuple):
    """The place in the ring of each of a file's N rows, and the flags of the ring's R rows."""

    place: NDArray[np.int64]  # [N] ascending rows of the ring
    has_next: NDArray[np.bool_]  # [N] the next row of the ring holds its final observation
    done: NDArray[np.bool_]  # [R]
    final: NDArray[np.bool_]  # [R]


def dataset_ring(
    dataset: Dataset,
    *,
    n_step: int,
    gamma: float,
    generator: torch.Generator,
    device: torch.device,
    scale: ObsScaler | None = None,
    stack: int = 1,
) -> RingBuffer:
    """Fill a ring of one env that samples every transition of the file uniformly, normalized by ``scale`` if given.

    Raises:
        RefusedFile: no step of the file has a next observation.
    """
    rows = _rows(dataset)
    starts = np.flatnonzero(~rows.final)
    if not len(starts):
        raise RefusedFile("data set: not one complete transition; every episode has a single step and no next one")
    buffer = RingBuffer(
        capacity=max(len(rows.final) + 1, n_step + stack + 1),
        num_envs=1,
        obs=_column(dataset.obs, rows=not _shares_memory(rows, scale)),
        action=_column(dataset.action),
        n_step=n_step,
        gamma=gamma,
        stack=stack,
        sampler=IndexSampler(torch.as_tensor(starts, device=device), generator),
        device=device,
    )
    _fill_flags(buffer, rows, dataset)
    _fill_arrays(buffer, rows, dataset, scale)
    if _shares_memory(rows, scale):
        buffer.obs = torch.as_tensor(dataset.obs, device=device)[:, None]  # on the host the file's own array
    buffer.set_cursors(head=len(rows.final), size=len(rows.final))
    return buffer


def _rows(dataset: Dataset) -> RowLayout:
    last, final_in_file = ends(dataset), final_rows(dataset)
    open_ended = last & ~final_in_file & ~np.r_[final_in_file[1:], False]  # no row holds the final observation
    has_next = open_ended & dataset.terminated if dataset.next_obs is None else open_ended
    place = np.arange(len(last)) + np.cumsum(has_next) - has_next
    final, done = np.zeros((2, len(last) + int(has_next.sum())), np.bool_)
    final[place[has_next] + 1] = True
    done[place[has_next]] = True
    unknown = np.flatnonzero(open_ended & ~has_next)  # such a row becomes the final observation of the step before it
    for row in (unknown, np.flatnonzero(final_in_file)):
        final[place[row]] = True
        done[place[row[row > 0]] - 1] = True
    return RowLayout(place, has_next, done & ~final, final)


def _fill_flags(ring: RingBuffer, rows: RowLayout, dataset: Dataset) -> None:
    count = len(rows.final)
    reward, terminated = np.zeros(count, np.float32), np.zeros(count, np.bool_)
    reward[rows.place], terminated[rows.place] = dataset.reward, dataset.terminated
    row = np.arange(count, dtype=np.int32)
    behind = np.r_[True, rows.final[:-1]]  # two final rows fill the stack of an episode recorded from its middle
    began = np.maximum.accumulate(np.where(behind & ~np.r_[True, behind[:-1]], row, 0))
    columns = {
        "reward": reward * ~rows.final,
        "terminated": terminated & ~rows.final,
        "done": rows.done,
        "final": rows.final,
        "age": row - began,
    }
    for name, values in columns.items():
        getattr(ring, name)[:count, 0] = torch.from_numpy(values)


def _fill_arrays(ring: RingBuffer, rows: RowLayout, dataset: Dataset, scale: ObsScaler | None) -> None:
    """Copy observations and actions in chunks, so that memory holds them only twice: in the file's arrays and here."""
    next_obs = dataset.obs if dataset.next_obs is None else dataset.next_obs  # after a termination it is never read
    for start in range(0, len(rows.place), CHUNK):
        steps = slice(start, start + CHUNK)
        place, has_next = rows.place[steps], rows.has_next[steps]
        first, stop = int(place[0]), int(place[-1]) + 1 + int(has_next[-1])
        action = np.zeros((stop - first, *dataset.action.shape[1:]), dataset.action.dtype)
        action[place - first] = dataset.action[steps]
        ring.action[first:stop, 0] = torch.from_numpy(action)
        if _shares_memory(rows, scale):
            continue
        obs = np.empty((stop - first, *dataset.obs.shape[1:]), dataset.obs.dtype)
        obs[place - first] = dataset.obs[steps]
        obs[place[has_next] - first + 1] = next_obs[steps][has_next]
        ring.obs[first:stop, 0] = torch.from_numpy(obs if scale is None else scale(obs))


def _shares_memory(rows: RowLayout, scale: ObsScaler | None) -> bool:
    """True if the ring can use the file's own array of observations: a million frames take 7 GB."""
    return scale is None and len(rows.place) == len(rows.final)


def _column(array: NDArray[np.generic], *, rows: bool = True) -> ArraySpec:
    """Shape and dtype of one row of ``array`` in the ring; without ``rows`` it takes no memory."""
    return ArraySpec(array.shape[1:] if rows else (0,), torch.from_numpy(np.empty(0, array.dtype)).dtype)
