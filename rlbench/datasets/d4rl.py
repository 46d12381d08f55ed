"""D4RL's flat HDF5 layout: one row a step, episode after episode.

``terminals`` marks real ends, ``timeouts`` where an episode was cut; a step that is marked as both has really ended.
Own data sets have the same layout, so that one reader serves both.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from rlbench.datasets.episodes import Jumps, breaks, laid
from rlbench.datasets.hdf5 import continuous, flags, named, numbers, opened, pieces, present, rows
from rlbench.datasets.types import Recorded
from rlbench.errors import RefusedFile

PROVENANCE = ("metadata/algorithm", "metadata/iteration")  # what D4RL says of the policy that made the data


def read(path: Path, *, limit: int | None = None, once: bool = False, room: int | None = None) -> Recorded:
    """A whole file; with ``once`` no observation twice: what ends led to stands in rows of its own, ``final``.

    ``limit``: steps after which the task cuts an episode, for files that store neither ``timeouts`` nor
    ``next_observations`` (D4RL's version 0). ``room``: bytes of memory that the numbers may take.

    Raises:
        RefusedFile: a key is missing, damaged, of the wrong type or shape, or holds NaN; the message names it.
    """
    with opened(path, room=room) as file:
        obs = numbers(file, "observations", rank=2)
        action = continuous(file, "actions")
        reward = numbers(file, "rewards", rank=1)
        terminated = flags(file, "terminals")
        stored = present(file, "next_observations")
        next_obs = numbers(file, "next_observations", rank=2) if stored and not once else None
        timeouts = flags(file, "timeouts") if present(file, "timeouts") else None
        arrays = {"actions": action, "rewards": reward, "terminals": terminated, "timeouts": timeouts}
        for key, array in arrays.items():
            if array is not None and len(array) != len(obs):
                raise RefusedFile(f"{named(file, key)}: {len(array)} rows, observations have {len(obs)}")
        if next_obs is not None and next_obs.shape != obs.shape:
            shapes = f"shape {list(next_obs.shape)}, observations have {list(obs.shape)}"
            raise RefusedFile(f"{named(file, 'next_observations')}: {shapes}; check the file")
        jumps = _jumps(file, obs) if stored and once else None
        if timeouts is None:
            broken = breaks(obs, next_obs) if next_obs is not None else None if jumps is None else jumps.broken
            timeouts = _guessed(file, broken, terminated, limit)
    recorded = Recorded(obs, action, reward, terminated, timeouts & ~terminated, next_obs)
    return recorded if jumps is None else laid(recorded, jumps)


def steps(path: Path) -> int:
    """Rows of a file, from its head alone.

    Raises:
        RefusedFile: it names no rewards, or is damaged.
    """
    with opened(path) as file:
        return rows(file, "rewards")


def provenance(path: Path) -> dict[str, str]:
    """What a file says of itself: its attributes, and D4RL's word on the policy; texts and single numbers alone."""
    with opened(path) as file:
        told = {str(key): file.attrs[key] for key in file.attrs}
        for key in PROVENANCE:
            stored = file.get(key)
            if isinstance(stored, h5py.Dataset) and stored.shape == () and stored.dtype.kind in "OSiuf":
                told[key] = stored[()]
    return {key: text for key, value in told.items() if (text := _text(value)) is not None}


def _jumps(file: h5py.File, obs: NDArray[np.float32]) -> Jumps:
    """Where a step of the file does not lead to its next row, looked up piece by piece."""
    broken, led_to = np.ones(len(obs), np.bool_), []
    for start, piece in pieces(file, "next_observations", obs.shape):
        follow = obs[start + 1 : start + len(piece) + 1]
        broken[start : start + len(follow)] = (piece[: len(follow)] != follow).any(1)
        led_to.append(piece[broken[start : start + len(piece)]])
    return Jumps(broken, np.concatenate(led_to))


def _guessed(
    file: h5py.File,
    broken: NDArray[np.bool_] | None,
    terminated: NDArray[np.bool_],
    limit: int | None,
) -> NDArray[np.bool_]:
    """Where episodes were cut in a file that does not say so, ``[N]``."""
    if broken is not None:
        cut = broken.copy()
        cut[-1] = False  # nobody knows
        return cut & ~terminated
    if limit is None:
        raise RefusedFile(
            f"{named(file, 'timeouts')}: missing, and next_observations too, so nobody can tell where an episode was "
            f"cut; take version 2 of the data set"
        )
    row = np.arange(len(terminated))
    began = np.maximum.accumulate(np.where(np.r_[True, terminated[:-1]], row, 0))
    full: NDArray[np.bool_] = (row - began) % limit == limit - 1
    return full & ~terminated


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if isinstance(value, str | int | float | np.number | np.bool_) else None
