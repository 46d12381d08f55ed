"""Reader of D4RL's flat HDF5 layout: one row a step, episode after episode.

``terminals`` marks terminations, ``timeouts`` truncations; a step with both marks is terminated. Own data sets have the
same layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import h5py
import numpy as np
from numpy.typing import NDArray

from rlbench.datasets import hdf5
from rlbench.datasets.episodes import Discontinuities, discontinuities, join_episodes
from rlbench.datasets.types import Dataset
from rlbench.errors import RefusedFile

PROVENANCE = ("metadata/algorithm", "metadata/iteration")  # D4RL's metadata of the behavior policy
MAX_TEXT_BYTES: Final = 2**16  # bytes of a text


def read_d4rl(
    path: Path, *, limit: int | None = None, deduplicate: bool = False, max_bytes: int | None = None
) -> Dataset:
    """Read a whole file; with ``deduplicate`` each observation once, final observations of episodes in ``final`` rows.

    ``limit``: steps after which the task truncates an episode, for files that store neither ``timeouts`` nor
    ``next_observations`` (D4RL's version 0). ``max_bytes``: bytes of memory for the arrays.

    Raises:
        RefusedFile: a key is missing, damaged, of the wrong type or shape, or holds NaN; the message names it.
    """
    with hdf5.open_file(path, max_bytes=max_bytes) as file:
        obs = hdf5.read_numbers(file, "observations", rank=2)
        has_next_obs, has_timeouts = hdf5.has_key(file, "next_observations"), hdf5.has_key(file, "timeouts")
        for key in ("rewards", "terminals", *(["timeouts"] if has_timeouts else [])):
            if (rows := hdf5.array_shape(file, key, 1)[0]) != len(obs):  # before it is read: a header claims any number
                raise RefusedFile(f"{hdf5.array_name(file, key)}: {rows} rows, observations have {len(obs)}")
        action, reward = hdf5.read_actions(file, "actions"), hdf5.read_numbers(file, "rewards", rank=1)
        if len(action) != len(obs):
            raise RefusedFile(f"{hdf5.array_name(file, 'actions')}: {len(action)} rows, observations have {len(obs)}")
        terminated = hdf5.read_flags(file, "terminals")
        timeouts = hdf5.read_flags(file, "timeouts") if has_timeouts else None
        next_obs = hdf5.read_numbers(file, "next_observations", rank=2) if has_next_obs and not deduplicate else None
        if next_obs is not None and next_obs.shape != obs.shape:
            shapes = f"shape {list(next_obs.shape)}, observations have {list(obs.shape)}"
            raise RefusedFile(f"{hdf5.array_name(file, 'next_observations')}: {shapes}; check the file")
        jumps = _jumps(file, obs) if has_next_obs and deduplicate else None
        if timeouts is None:
            jump_mask = (
                discontinuities(obs, next_obs) if next_obs is not None else None if jumps is None else jumps.mask
            )
            timeouts = _infer_timeouts(file, jump_mask, terminated, limit)
    dataset = Dataset(obs, action, reward, terminated, timeouts & ~terminated, next_obs)
    return dataset if jumps is None else join_episodes(dataset, jumps)


def step_count(path: Path) -> int:
    """Number of rows of a file, from its header alone.

    Raises:
        RefusedFile: it has no rewards, or is damaged.
    """
    with hdf5.open_file(path) as file:
        return hdf5.array_shape(file, "rewards", 1)[0]


def widths(path: Path) -> tuple[int, int]:
    """Numbers in an observation and in an action of a file, from its headers alone.

    Raises:
        RefusedFile: it has no vectors of both, or is damaged.
    """
    with hdf5.open_file(path) as file:
        return hdf5.array_shape(file, "observations", 2)[1], hdf5.array_shape(file, "actions", 2)[1]


def provenance(path: Path) -> dict[str, str]:
    """Attributes of a file and D4RL's metadata of its policy, as far as they are texts or single numbers."""
    with hdf5.open_file(path) as file:
        metadata = {str(key): file.attrs[key] for key in file.attrs}
        for key in PROVENANCE:
            item = file.get(key)
            if isinstance(item, h5py.Dataset) and item.shape == () and item.nbytes <= MAX_TEXT_BYTES:
                metadata[key] = item[()] if item.dtype.kind in "OSiuf" else None
    return {key: text for key, value in metadata.items() if (text := _text(value)) is not None}


def _jumps(file: h5py.File, obs: NDArray[np.float32]) -> Discontinuities:
    """Find the steps that do not lead to the next row, chunk by chunk."""
    jump_mask, next_obs = np.ones(len(obs), np.bool_), []
    for start, piece in hdf5.read_chunks(file, "next_observations", obs.shape):
        follow = obs[start + 1 : start + len(piece) + 1]
        jump_mask[start : start + len(follow)] = (piece[: len(follow)] != follow).any(1)
        next_obs.append(piece[jump_mask[start : start + len(piece)]])
    return Discontinuities(jump_mask, np.concatenate(next_obs))


def _infer_timeouts(
    file: h5py.File, jump_mask: NDArray[np.bool_] | None, terminated: NDArray[np.bool_], limit: int | None
) -> NDArray[np.bool_]:
    """Mask of truncations ``[N]`` of a file without ``timeouts``."""
    if jump_mask is not None:
        truncated = jump_mask.copy()
        truncated[-1] = False  # the last row has no successor to compare
        return truncated & ~terminated
    if limit is None:
        raise RefusedFile(
            f"{hdf5.array_name(file, 'timeouts')}: missing, and next_observations too, so truncations are unknown; "
            f"take version 2 of the data set"
        )
    row = np.arange(len(terminated))
    began = np.maximum.accumulate(np.where(np.r_[True, terminated[:-1]], row, 0))
    full: NDArray[np.bool_] = (row - began) % limit == limit - 1
    return full & ~terminated


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if isinstance(value, str | int | float | np.number | np.bool_) else None
