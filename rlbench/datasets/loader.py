"""Read a data set of any supported layout."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rlbench.datasets import catalogue, checksums, d4rl, hdf5, minari, recording_reader
from rlbench.datasets.catalogue import CONTENTS, MINARI_DATA
from rlbench.datasets.episodes import Dataset
from rlbench.errors import RefusedFile, UsageError

SIZE_TOLERANCE = 0.05  # of D4RL's number of steps, which it rounds


def load_dataset(
    path: Path, name: str | None = None, *, features: int | None = None, max_bytes: int | None = None
) -> Dataset:
    """Read the steps of D4RL's file, Minari's folder or recorded games at ``path``, the data set ``name``.

    ``features``: numbers that an observation of D4RL's file keeps if all others are 0. ``max_bytes``: bytes of memory
    for the arrays.

    Raises:
        RefusedFile: it cannot be read, or it is not the D4RL set of that name.
    """
    if catalogue.is_recording(path):
        return recording_reader.read_recording(path, max_bytes=max_bytes)
    if (folder := _minari_folder(path)) is not None:
        return minari.read_minari(folder, max_bytes=max_bytes)
    entry = catalogue.d4rl().get(name or "")
    if entry:
        widths = zip(("observations", "actions"), d4rl.widths(path), (entry.features, entry.actions), strict=True)
        for key, theirs, width in widths:
            if width not in {None, theirs}:
                problem = f"{path}: {key}: {theirs} numbers a step, {entry.name} has {width}"
                raise RefusedFile(f"{problem}; it is another data set")
    return d4rl.read_d4rl(path, limit=entry.limit if entry else None, features=features, max_bytes=max_bytes)


def check_size(path: Path, name: str) -> None:
    """Refuse a file of another number of steps than the D4RL set of this name has, as far as D4RL states it.

    Raises:
        RefusedFile: the numbers differ by more than a twentieth, or it is damaged.
    """
    entry = catalogue.d4rl().get(name)
    if (
        path.is_file()
        and entry
        and entry.steps
        and abs((steps := d4rl.step_count(path)) - entry.steps) > SIZE_TOLERANCE * entry.steps
    ):
        raise RefusedFile(f"{path}: has {steps:,} steps, {name} about {entry.steps:,}; it is another data set")


def rows(path: Path) -> int | None:
    """Number of rows of a data set as read: its steps and final observations; None where its metadata lack it.

    Raises:
        RefusedFile: it is damaged.
    """
    if catalogue.is_recording(path):
        count = recording_reader.metadata(path).get("steps")
        return count if isinstance(count, int) else None
    if (folder := _minari_folder(path)) is not None:
        header = minari.minari_metadata(folder)
        return None if header.steps is None else header.steps + (header.episodes or 0)
    return d4rl.row_count(path)


def rows_here(name: str, file: Path | None = None) -> int | None:
    """Rows of a data set on this machine; None where it is not here, or its metadata do not tell.

    A file is read only when its bytes are those that were hashed: damage could end the process.
    """
    with suppress(UsageError, RefusedFile, OSError):  # which the run itself reports
        path = catalogue.find(name, file)
        checksums.seal_of(data_file(path))
        return rows(path)
    return None


def dataset_metadata(path: Path) -> dict[str, str]:
    """Metadata of a data set: D4RL's attributes, Minari's metadata, or the origin of recorded games."""
    if catalogue.is_recording(path):
        return {key: str(value) for key, value in recording_reader.metadata(path).items()}
    if (folder := _minari_folder(path)) is not None:
        fields = minari.minari_metadata(folder)._asdict()
        return {key: str(value) for key, value in fields.items() if value is not None}
    return d4rl.provenance(path)


def has_next_observations(path: Path) -> bool:
    """True if a file of D4RL's or a folder of Minari's stores the final observations of all episodes."""
    if _minari_folder(path) is not None:
        return True
    with hdf5.open_file(path) as file:
        return hdf5.has_key(file, "next_observations")


def _minari_folder(path: Path) -> Path | None:
    """Folder of Minari's data set at ``path``, or around this file of one; None for another layout."""
    if path.parts[-2:] == MINARI_DATA.parts:
        return path.parents[1]
    return path if path.is_dir() else None


def data_file(path: Path) -> Path:
    """File that the checksum of a data set covers: the arrays, or the list of their files.

    Raises:
        UsageError: the data set holds unfinished recorded games, which have no such list.
    """
    if catalogue.is_recording(path):
        if not catalogue.is_complete(path):
            raise UsageError(
                f"{path}: is unfinished; make a data set of its steps with rlbench data subset, or record it again"
            )
        return path / CONTENTS
    return path / MINARI_DATA if path.is_dir() else path
