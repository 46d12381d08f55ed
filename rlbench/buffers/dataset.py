"""A ring that is filled once, from recorded experience, and never added to.

One lane holds the steps in the order of the file. Behind each episode's last step lies what it led to, in a dead row,
as if it had been collected; a step whose next observation nobody stored is itself that row. So what the ring hands out
are the file's own transitions, and the rows that start none are never drawn. Recordings that hold such rows already are
taken as they are, their frames without a copy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.buffers.ring import Column, Ring
from rlbench.buffers.samplers import Span
from rlbench.datasets.episodes import ends, shown
from rlbench.datasets.hdf5 import CHUNK
from rlbench.datasets.normalization import Scale
from rlbench.datasets.types import Recorded
from rlbench.errors import RefusedFile
from rlbench.ops.state_dict import State, tensor


class IndexSampler:
    """A sampler of listed slots, each alike, with replacement; a span would count dead rows too."""

    def __init__(self, slots: Tensor, generator: torch.Generator) -> None:
        self.slots, self.generator = slots, generator

    def moved(self, fresh: int | Tensor, dead: Tensor, stale: int | Tensor, lane: Tensor) -> None:
        """Nothing to note of lanes ``[M]``: nothing is added."""

    def draw(self, batch: int, span: Span) -> tuple[Tensor, Tensor]:  # noqa: ARG002 - the list is the span
        """Slots ``[batch]``, and weights of 1."""
        coin = torch.rand(batch, generator=self.generator, device=self.generator.device, dtype=torch.float64)
        return self.slots[(coin * len(self.slots)).long()], torch.ones_like(coin, dtype=torch.float32)

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """Nothing to note of slots ``[B]``."""

    def state_dict(self) -> State:
        """The generator; the list comes from the file."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """The generator."""
        self.generator.set_state(tensor(state, "generator"))


class Rows(NamedTuple):
    """Where each of a file's N rows lies in the ring, and what is true of its R rows."""

    place: NDArray[np.int64]  # [N] the row of each, growing
    followed: NDArray[np.bool_]  # [N] a row of its own after it holds what it led to
    done: NDArray[np.bool_]  # [R]
    dead: NDArray[np.bool_]  # [R]


def ring(
    recorded: Recorded,
    *,
    n_step: int,
    gamma: float,
    generator: torch.Generator,
    device: torch.device,
    scale: Scale | None = None,
    stack: int = 1,
) -> Ring:
    """A full ring of one lane that draws every transition of the file alike, with observations on ``scale`` if given.

    Raises:
        RefusedFile: not one step of the file says what it led to.
    """
    rows = _rows(recorded)
    live = np.flatnonzero(~rows.dead)
    if not len(live):
        raise RefusedFile("data set: not one complete transition; every episode has a single step and no next one")
    made = Ring(
        capacity=max(len(rows.dead) + 1, n_step + stack + 1),
        lanes=1,
        obs=_column(recorded.obs, rows=not _as_it_is(rows, scale)),
        action=_column(recorded.action),
        n_step=n_step,
        gamma=gamma,
        stack=stack,
        sampler=IndexSampler(torch.as_tensor(live, device=device), generator),
        device=device,
    )
    _fill_marks(made, rows, recorded)
    _fill_arrays(made, rows, recorded, scale)
    if _as_it_is(rows, scale):
        made.obs = torch.as_tensor(recorded.obs, device=device)[:, None]  # on the host the file's own array
    made.load_state_dict({**made.state_dict(), "head": len(rows.dead), "size": len(rows.dead)})
    return made


def _rows(recorded: Recorded) -> Rows:
    last, final = ends(recorded), shown(recorded)
    open_ended = last & ~final & ~np.r_[final[1:], False]  # no row of its own shows what it led to
    followed = open_ended & recorded.terminated if recorded.next_obs is None else open_ended
    place = np.arange(len(last)) + np.cumsum(followed) - followed
    dead, done = np.zeros((2, len(last) + int(followed.sum())), np.bool_)
    dead[place[followed] + 1] = True
    done[place[followed]] = True
    (unknown,) = np.nonzero(open_ended & ~followed)  # where it led was not stored: it is what the step before it led to
    for row in (unknown, np.flatnonzero(final)):
        dead[place[row]] = True
        done[place[row[row > 0]] - 1] = True
    return Rows(place, followed, done & ~dead, dead)


def _fill_marks(ring: Ring, rows: Rows, recorded: Recorded) -> None:
    count = len(rows.dead)
    reward, terminated = np.zeros(count, np.float32), np.zeros(count, np.bool_)
    reward[rows.place], terminated[rows.place] = recorded.reward, recorded.terminated
    row = np.arange(count, dtype=np.int32)
    behind = np.r_[
        True, rows.dead[:-1]
    ]  # what is behind two final rows was recorded from mid-game: they fill its stack
    began = np.maximum.accumulate(np.where(behind & ~np.r_[True, behind[:-1]], row, 0))
    columns = {
        "reward": reward * ~rows.dead,
        "terminated": terminated & ~rows.dead,
        "done": rows.done,
        "dead": rows.dead,
        "age": row - began,
    }
    for name, values in columns.items():
        getattr(ring, name)[:count, 0] = torch.from_numpy(values)


def _fill_arrays(ring: Ring, rows: Rows, recorded: Recorded, scale: Scale | None) -> None:
    """Observations and actions, chunk by chunk, so that they are in memory but twice: in the file's arrays and here."""
    led_to = recorded.obs if recorded.next_obs is None else recorded.next_obs  # after a real end it is never looked at
    for start in range(0, len(rows.place), CHUNK):
        steps = slice(start, start + CHUNK)
        place, followed = rows.place[steps], rows.followed[steps]
        first, stop = int(place[0]), int(place[-1]) + 1 + int(followed[-1])
        action = np.zeros((stop - first, *recorded.action.shape[1:]), recorded.action.dtype)
        action[place - first] = recorded.action[steps]
        ring.action[first:stop, 0] = torch.from_numpy(action)
        if _as_it_is(rows, scale):
            continue
        obs = np.empty((stop - first, *recorded.obs.shape[1:]), recorded.obs.dtype)
        obs[place - first] = recorded.obs[steps]
        obs[place[followed] - first + 1] = led_to[steps][followed]
        ring.obs[first:stop, 0] = torch.from_numpy(obs if scale is None else scale.applied(obs))


def _as_it_is(rows: Rows, scale: Scale | None) -> bool:
    """Whether the file's own observations can serve as the ring's: a million frames are 7 GB."""
    return scale is None and len(rows.place) == len(rows.dead)


def _column(array: NDArray[np.generic], *, rows: bool = True) -> Column:
    """How one row of ``array`` lies in the ring; without ``rows`` it takes no room."""
    return Column(array.shape[1:] if rows else (0,), torch.from_numpy(np.empty(0, array.dtype)).dtype)
