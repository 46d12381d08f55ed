"""Write recorded experience in D4RL's flat layout with its metadata, whole or not at all.

Equal experience and attributes give equal bytes: HDF5 stores no times, in one version of its format. The file is built
in memory, since HDF5 ends the process where the disk is full.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from rlbench import disk, faults
from rlbench.datasets import checksums
from rlbench.datasets.types import Dataset
from rlbench.errors import UsageError

ROWS: Final = 4096  # of a chunk


class Written(NamedTuple):
    """A data set on disk."""

    path: Path
    sha256: str
    bytes: int


def write_hdf5(path: Path, dataset: Dataset, attributes: Mapping[str, str | float], *, replace: bool = True) -> Written:
    """Write a data set to ``path``, and its checksum beside it; ``replace`` allows overwriting another data set.

    Raises:
        UsageError: the folder cannot be written, or another process has written another data set there.
        ResourceExhausted: the disk is full.
    """
    part, folder = path.with_name(path.name + ".part"), None
    with disk.writing(path, elsewhere=" with RLBENCH_DATASETS", then="run the same command again"):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(path.parent, os.O_RDONLY)  # the lock itself, so that a killed process leaves none
            fcntl.flock(folder, fcntl.LOCK_EX)  # two processes that make the same set write it one after the other
            _write_bytes(part, _serialize(dataset, attributes))
            seal = checksums.compute_seal(part)
            if not replace and path.exists() and checksums.compute_seal(path).sha256 != seal.sha256:
                raise UsageError(f"{path}: another process has written another data set there; choose another --name")
            faults.point("dataset.filled")
            checksums.remove_seal(path)  # the seal of the replaced set
            faults.point("dataset.forgotten")
            part.replace(path)
            faults.point("dataset.placed")
            checksums.write_seal(path, seal)
        finally:
            if folder is not None:
                with suppress(OSError):
                    part.unlink(missing_ok=True)
                os.close(folder)
    return Written(path, seal.sha256, seal.size)


def columns(dataset: Dataset) -> dict[str, NDArray[np.generic]]:
    """Arrays ``[N, ...]`` by their names in D4RL's layout."""
    arrays: dict[str, NDArray[np.generic]] = {
        "observations": dataset.obs,
        "actions": dataset.action,
        "rewards": dataset.reward,
        "terminals": dataset.terminated,
        "timeouts": dataset.truncated,
    }
    return arrays if dataset.next_obs is None else {**arrays, "next_observations": dataset.next_obs}


def _serialize(dataset: Dataset, attributes: Mapping[str, str | float]) -> bytes:
    with h5py.File("memory", "w", libver="earliest", track_order=False, driver="core", backing_store=False) as file:
        for name, value in attributes.items():
            file.attrs[name] = value
        for name, array in columns(dataset).items():
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


def _write_bytes(path: Path, raw: bytes) -> None:
    path.unlink(missing_ok=True)  # of a crash or another program: no link is followed
    with path.open("xb") as file:
        file.write(faults.cut("dataset.torn", raw))
        file.flush()
        faults.point("dataset.torn")
        os.fsync(file.fileno())
