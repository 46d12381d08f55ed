"""D4RL's flat HDF5 layout, read and written: one row per step, episode after episode.

``terminals`` marks terminations, ``timeouts`` truncations; a step with both marks is terminated. Own data sets have the
same layout, and are written whole or not at all. Equal experience and attributes give equal bytes: HDF5 stores no
times, in one version of its format. The file is built in memory, since HDF5 ends the process where the disk is full.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from rlbench import disk, faults
from rlbench.datasets import checksums, hdf5
from rlbench.datasets.episodes import Dataset, insert_final_rows
from rlbench.errors import RefusedFile, UsageError

PROVENANCE = ("metadata/algorithm", "metadata/iteration")  # D4RL's metadata of the behavior policy
MAX_TEXT_BYTES: Final = 2**16  # bytes of a text
ROWS: Final = 4096  # of a chunk
COLUMNS: Final = {"observations": 2, "actions": 2, "rewards": 1, "terminals": 1}  # of every file, and their ranks


def read_d4rl(
    path: Path, *, limit: int | None = None, features: int | None = None, max_bytes: int | None = None
) -> Dataset:
    """Read a whole file, each observation once, which halves the memory.

    ``limit``: steps after which the task truncates an episode, for files that store neither ``timeouts`` nor
    ``next_observations`` (D4RL's version 0). ``features``: numbers that an observation keeps if all others are 0.
    ``max_bytes``: bytes of memory for the arrays.

    Raises:
        RefusedFile: a key is missing, damaged, of the wrong type or shape, or holds NaN; the message names it.
    """
    with hdf5.open_file(path, max_bytes=max_bytes) as file:
        obs = _read_observations(file, features)
        has_next_obs, has_timeouts = hdf5.has_key(file, "next_observations"), hdf5.has_key(file, "timeouts")
        for key in ("rewards", "terminals", *(["timeouts"] if has_timeouts else [])):
            if (rows := hdf5.array_shape(file, key, 1)[0]) != len(obs):  # before it is read: a header claims any number
                what = f"{rows} rows, observations have {len(obs)}"
                raise RefusedFile(f"{hdf5.array_name(file, key)}: {what}; download or write the file again")
        action, reward = hdf5.read_actions(file, "actions"), hdf5.read_numbers(file, "rewards", rank=1)
        if len(action) != len(obs):
            what = f"{len(action)} rows, observations have {len(obs)}"
            raise RefusedFile(f"{hdf5.array_name(file, 'actions')}: {what}; download or write the file again")
        terminated = hdf5.read_flags(file, "terminals")
        timeouts = hdf5.read_flags(file, "timeouts") if has_timeouts else None
        last, final_obs = terminated, obs[terminated]  # no target bootstraps from it
        if has_next_obs:
            last, final_obs = _ends(file, obs, terminated if timeouts is None else terminated | timeouts)
        if timeouts is None:
            timeouts = _infer_timeouts(file, last if has_next_obs else None, terminated, limit)
    steps = Dataset(obs, action, reward, terminated, timeouts & ~terminated, np.zeros(len(obs), np.bool_))
    return insert_final_rows(steps, last, final_obs)


def step_count(path: Path) -> int:
    """Number of steps of a file, from its headers alone.

    Raises:
        RefusedFile: it lacks a column, its columns differ in length, or it is damaged.
    """
    with hdf5.open_file(path) as file:
        steps = {key: hdf5.written_rows(file, key, rank) for key, rank in COLUMNS.items()}
    if len({*steps.values()}) > 1:
        raise RefusedFile(f"{path}: its columns differ in length ({steps}); delete it, and download it again")
    return steps["rewards"]


def row_count(path: Path) -> int:
    """Number of rows of a data set as read: a row per step, and a final one for each mark of an episode's end.

    Raises:
        RefusedFile: it has no rewards, or is damaged.
    """
    with hdf5.open_file(path) as file:
        steps = hdf5.array_shape(file, "rewards", 1)[0]
        marks = sum(hdf5.count_nonzero(file, key) for key in ("terminals", "timeouts") if hdf5.has_key(file, key))
        return steps + min(steps, marks)


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
        metadata = hdf5.scalar_attributes(file)
        for key in PROVENANCE:
            item = file.get(key)
            if isinstance(item, h5py.Dataset) and hdf5.is_number_or_text(item) and item.nbytes <= MAX_TEXT_BYTES:
                metadata[key] = item[()]
    return {key: text for key, value in metadata.items() if (text := _text(value)) is not None}


def _read_observations(file: h5py.File, features: int | None) -> NDArray[np.float32]:
    """Observations ``[N, F]``; their first ``features`` numbers if all others are 0."""
    rows, width = hdf5.array_shape(file, "observations", 2)
    if features is None or width <= features:
        return hdf5.read_numbers(file, "observations", rank=2)
    obs = np.empty((rows, features), np.float32)
    for start, piece in hdf5.read_chunks(file, "observations", (rows, width)):
        if piece[:, features:].any():
            return hdf5.read_numbers(file, "observations", rank=2)
        obs[start : start + len(piece)] = piece[:, :features]
    return obs


def _ends(
    file: h5py.File, obs: NDArray[np.float32], marks: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """The steps with ``marks`` and those that do not lead to the next row, ``[N]``, and their next observations."""
    last, final_obs, shape = np.ones(len(obs), np.bool_), [], hdf5.array_shape(file, "observations", 2)
    for start, wide_piece in hdf5.read_chunks(file, "next_observations", shape):
        piece = wide_piece[:, : obs.shape[1]]
        if wide_piece[:, obs.shape[1] :].any():
            where = hdf5.array_name(file, "next_observations")
            raise RefusedFile(
                f"{where}: not zero where observations are, from column {obs.shape[1]} on; check the file"
            )
        rows, follow = slice(start, start + len(piece)), obs[start + 1 : start + len(piece) + 1]
        last[start : start + len(follow)] = (piece[: len(follow)] != follow).any(1)
        last[rows] |= marks[rows]
        final_obs.append(piece[last[rows]])
    return last, np.concatenate(final_obs)


def _infer_timeouts(
    file: h5py.File, last: NDArray[np.bool_] | None, terminated: NDArray[np.bool_], limit: int | None
) -> NDArray[np.bool_]:
    """Mask of truncations ``[N]`` of a file without ``timeouts``, from the ``last`` steps of episodes if known."""
    if last is not None:
        truncated = last.copy()
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


class D4RLArrays(NamedTuple):
    """Arrays of a file of N steps by their keys, as it is written."""

    observations: NDArray[np.float32]  # [N, F]
    actions: NDArray[np.float32]  # [N, A] in [−1, 1]
    rewards: NDArray[np.float32]  # [N]
    terminals: NDArray[np.bool_]  # [N]
    timeouts: NDArray[np.bool_]  # [N]
    next_observations: NDArray[np.float32]  # [N, F] the true final observations of episodes included


class DatasetFile(NamedTuple):
    """A data set on disk."""

    path: Path
    sha256: str
    bytes: int


def write_hdf5(
    path: Path, columns: D4RLArrays, attributes: Mapping[str, str | float], *, replace: bool = True
) -> DatasetFile:
    """Write a data set to ``path``, and its checksum beside it; ``replace`` allows overwriting another data set.

    Raises:
        UsageError: the folder cannot be written, or another process has written another data set there.
        ResourceExhausted: the disk is full.
    """
    part = path.with_name(path.name + ".part")
    writing = disk.writing(path, elsewhere=" with RLBENCH_DATASETS", then="run the same command again")
    with writing, disk.locked(path.parent, patience=math.inf):
        try:
            disk.replace(part, _serialize(columns, attributes), part.with_name(f"{part.name}.tmp"))
            seal = checksums.compute_seal(part)
            if not replace and path.exists() and checksums.compute_seal(path).sha256 != seal.sha256:
                raise UsageError(f"{path}: another process has written another data set there; choose another --name")
            checksums.remove_seal(path)  # the seal of the replaced set
            part.replace(path)
            faults.point("dataset.placed")
            checksums.write_seal(path, seal)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
    return DatasetFile(path, seal.sha256, seal.size)


def _serialize(columns: D4RLArrays, attributes: Mapping[str, str | float]) -> bytes:
    with h5py.File("memory", "w", libver="earliest", track_order=False, driver="core", backing_store=False) as file:
        for name, value in attributes.items():
            file.attrs[name] = value
        for name, array in columns._asdict().items():
            file.create_dataset(
                name,
                data=array,
                chunks=(min(ROWS, len(array)), *array.shape[1:]),
                compression="gzip",
                fletcher32=True,
                track_times=False,
            )
        file.flush()
        image: bytes = file.id.get_file_image()
    return image
