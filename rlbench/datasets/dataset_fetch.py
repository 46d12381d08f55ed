"""Download or import data sets: each is checked and sealed before it gets its name."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rlbench import disk, faults
from rlbench.datasets import catalogue, checksums, download, minari
from rlbench.datasets.catalogue import MINARI_DATA, MINARI_METADATA, Location
from rlbench.datasets.checksums import Seal
from rlbench.datasets.download import DownloadProgress, part_of
from rlbench.datasets.hdf5 import open_file
from rlbench.datasets.loader import check_size, data_file, dataset_metadata, load_dataset
from rlbench.errors import RefusedFile, UsageError


def download_dataset(name: str, *, patience: float = download.PATIENCE) -> Iterator[DownloadProgress]:
    """Download a data set of D4RL or Minari into its folder; the download is complete when this is exhausted.

    Raises:
        UsageError: no server offers a data set of this name, or Minari is not installed.
        RefusedFile: the file is damaged, or not the file that was recorded on first use.
        ResourceExhausted: the server or the disk failed; the same call resumes.
    """
    location = catalogue.locate(name)
    if location.kind == "own":
        if not catalogue.is_present(location):
            raise UsageError(f"{name}: own data sets are made, not downloaded; {catalogue.remedy(location)}")
    elif catalogue.is_present(location):
        with suppress(OSError):
            download.discard(location.path)  # of a process that was killed after the last byte
    elif location.kind == "d4rl":
        with download.locked_download(location.path):
            if not location.path.is_file():  # the process that held the lock may have completed it
                yield from _fetch(name, location.path, patience)
    else:
        minari.download(name)
        if not catalogue.is_present(location):
            raise RefusedFile(f"{location.path}: has no {MINARI_DATA}; only the storage format hdf5 is read")
        checksums.seal_of(data_file(location.path))


def import_dataset(path: Path, name: str, *, max_bytes: int | None = None) -> Location:
    """Copy a file in D4RL's layout, or a folder in Minari's, to the place of ``name``.

    It is read in ``max_bytes`` of memory.

    Raises:
        UsageError: a data set of this name exists, or the name belongs to another layout.
        RefusedFile: the file cannot be read, or does not fit the D4RL set of this name.
    """
    location = catalogue.locate(name, of_folder=path.is_dir())
    files = (MINARI_DATA, MINARI_METADATA) if path.is_dir() else (Path(),)
    if _is_imported(path, location, files):
        return location
    if path.is_dir() != (location.kind == "minari"):
        layout = "a folder in Minari's layout" if location.kind == "minari" else "a file in D4RL's layout"
        raise UsageError(f"{path}: {name} names {layout}; name it {'NAMESPACE/NAME-v0' if path.is_dir() else 'rlb-…'}")
    own = dataset_metadata(path).get("name", "")
    if own.startswith("rlb-") and location.kind != "own":
        raise UsageError(f"{path}: is {own}, not {name}; import it under its own name")
    seals = {inside: checksums.compute_seal(path / inside) for inside in files}
    load_dataset(path, name, max_bytes=max_bytes)
    check_size(path, name)
    with disk.writing(location.path, then="try again"), disk.locked(location.path.parent, patience=math.inf):
        if _is_imported(path, location, files):  # by another process meanwhile
            return location
        target = location.path / files[0]
        first = checksums.read_seal(target)
        if first is not None and seals[files[0]].sha256 != first.sha256:
            raise RefusedFile(
                f"{path / files[0]}: is not the file that {target.name} was when it was first used (SHA-256 "
                f"{first.sha256[:12]}…); delete {target}{checksums.SUFFIX} if it is to be another"
            )
        _copy(path, seals, location.path)
        checksums.seal_of(data_file(location.path))
    return location


def _is_imported(path: Path, location: Location, files: Sequence[Path]) -> bool:
    """True if the data set has these files of ``path``, False if it is missing; another one is refused."""
    if not catalogue.is_present(location):
        return False
    if not all(_equal(path / inside, location.path / inside) for inside in files):
        raise UsageError(f"{location.name}: is in {location.path} already; choose another name, or remove it first")
    checksums.seal_of(data_file(location.path))  # a process that was killed here has not written it
    return True


def _equal(*paths: Path) -> bool:
    return all(path.is_file() for path in paths) and len({checksums.compute_seal(path).sha256 for path in paths}) == 1


def _fetch(name: str, target: Path, patience: float) -> Iterator[DownloadProgress]:
    url = catalogue.d4rl()[name].url
    seal = checksums.read_seal(target)
    yield from download.fetch_file(url, target, size=seal.size if seal else None, patience=patience)
    part = part_of(target)
    now = checksums.compute_seal(part, url)
    if seal is not None and seal.sha256 != now.sha256:
        download.discard(target)
        raise RefusedFile(
            f"{url}: SHA-256 {now.sha256[:12]}…, recorded on first use was {seal.sha256[:12]}…; not kept, try again"
        )
    if target.suffix == ".hdf5":
        try:
            with open_file(part):
                pass
            check_size(part, name)
        except RefusedFile as error:
            download.discard(target)
            problem = str(error).removeprefix(f"{part}: ").partition("; ")[0]
            remedy = f"it was not kept, try again later, or set {catalogue.MIRROR}"
            raise RefusedFile(f"{url}: {problem}; {remedy}") from None
    download.complete(target)
    if target.suffix == ".hdf5":
        checksums.write_seal(target, now)


def _copy(path: Path, seals: Mapping[Path, Seal], target: Path) -> None:
    """Copy the files with these seals, all of them or none."""
    temporaries = {inside: disk.temporary_of(target / inside) for inside in seals}
    try:
        for inside, temporary in temporaries.items():
            temporary.parent.mkdir(parents=True, exist_ok=True)
            disk.sweep(temporary)
            shutil.copyfile(path / inside, temporary)
            if checksums.compute_seal(temporary).sha256 != seals[inside].sha256:
                raise RefusedFile(f"{path / inside}: changed while it was read; run the same command again")
            faults.point("copy.written")
        for inside, temporary in temporaries.items():
            temporary.replace(target / inside)
            faults.point("copy.placed")
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
