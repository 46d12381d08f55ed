"""Manifest of a checkpoint: plain values, and every file of tensors with its SHA-256.

It shows if a checkpoint is whole, without torch and without reading a tensor.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import file_digest
from io import BufferedReader
from pathlib import Path
from typing import Final, NamedTuple

from rlbench import disk
from rlbench.config.run import Spec
from rlbench.errors import RefusedFile
from rlbench.records import files

NAME: Final = "manifest.json"

COPY_AGAIN: Final = "copy spec.json, epochs.jsonl, outcome.json and checkpoint/ from one machine, or use --force"
Value = int | float | str


class Manifest(NamedTuple):
    """Manifest of a checkpoint."""

    files: Mapping[str, str]  # by name, the SHA-256
    values: Mapping[str, Value]  # leaves of the state that are no tensors
    split: Mapping[str, int]  # total rows of tensors that are split over several files


def origin(spec: Spec, environment: Mapping[str, object]) -> dict[str, Value]:
    """Run and code of a checkpoint: the branch ``run`` of its state."""
    code = {name: str(environment.get(name) or "") for name in ("rlbench", "commit")}
    return {"spec": spec.id, "seed": spec.seed, **code}


def refuse_foreign(
    folder: Path, values: Mapping[str, Value], spec: Spec, environment_sums: Sequence[str], epoch_sums: Sequence[str]
) -> None:
    """Refuse the checkpoint in ``folder`` with the plain ``values``, where it belongs to another run or attempt.

    The sums are those of the run's record. A checkpoint that does not name its run or attempt is of older code, and
    passes.

    Raises:
        RefusedFile: it belongs to another run or attempt; the message names both runs.
    """
    owner, seed = values.get("run/spec", spec.id), values.get("run/seed", spec.seed)
    if (owner, seed) != (spec.id, spec.seed):
        raise RefusedFile(
            f"{folder}: belongs to {owner}, seed {seed}, not to {spec.id}, seed {spec.seed}; "
            "restore this run's own, or start over with --force"
        )
    for part, name, sums in (("environments", "spec.json", environment_sums), ("epochs", "epochs.jsonl", epoch_sums)):
        if values.get(f"run/{part}_sha256") not in (None, *sums):
            raise RefusedFile(f"{folder}: is of another attempt than {name}, or newer; {COPY_AGAIN}")


def is_foreign(folder: Path, spec: Spec, environment_sums: Sequence[str], epoch_sums: Sequence[str]) -> bool:
    """True if a checkpoint is known to belong to another run or attempt."""
    values: Mapping[str, Value] = {}
    with suppress(RefusedFile):  # missing or damaged
        values = read_manifest(current(folder)).values
    try:
        refuse_foreign(folder, values, spec, environment_sums, epoch_sums)
    except RefusedFile:
        return True
    return False


def is_earlier(folder: Path, epoch: int) -> bool:
    """True if a checkpoint's policy is known to be of an earlier epoch."""
    with suppress(RefusedFile):  # damaged
        own = read_manifest(current(folder)).values.get("epoch")
        return isinstance(own, int) and own < epoch
    return False


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest beside the files of a checkpoint, as its last file."""
    files.replace(folder / NAME, files.seal(manifest._asdict()))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of the checkpoint in ``folder``.

    Raises:
        RefusedFile: it is missing, damaged or newer, or its folder or the one above is a link.
    """
    files.refuse_link(folder.parent)
    files.refuse_link(folder)
    contents = files.read_sealed(folder / NAME)
    sums, values, split = contents.get("files"), contents.get("values"), contents.get("split")
    if not isinstance(sums, dict) or not isinstance(values, dict) or not isinstance(split, dict):
        raise RefusedFile(f"{folder / NAME}: not a checkpoint's; start over with --force")
    return Manifest(sums, values, split)


@contextmanager
def opened(folder: Path, name: str, digest: str) -> Iterator[str]:
    """Open a file of a checkpoint, verify its SHA-256, and yield a path in UTF-8, as safetensors needs.

    The path is that of the open file: another one that replaces it meanwhile is not read.

    Raises:
        RefusedFile: it is missing or damaged.
        OSError: the limit of open files is reached.
    """
    path = folder / name
    damage = RefusedFile(f"{path}: missing or damaged; restore it, or start over with --force")
    if path.parent != folder or not path.is_file():
        raise damage
    with _readable(path) as file:
        if file_digest(file, "sha256").hexdigest() != digest:
            raise damage
        try:
            yield f"/proc/self/fd/{file.fileno()}"
        except (FileNotFoundError, RuntimeError) as error:  # so safetensors and torch report a lack of descriptors
            limit = os.strerror(errno.EMFILE)
            if isinstance(error, RuntimeError) and limit not in str(error):
                raise
            raise OSError(errno.EMFILE, limit) from None


def current(folder: Path) -> Path:
    """Path of the checkpoint: its folder, or the name of the old one while a new one replaces it."""
    return folder if folder.is_dir() else old(folder)


def old(folder: Path) -> Path:
    """Name of the old checkpoint while a new one replaces it."""
    return folder.with_name(f".{folder.name}.old")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file.

    Raises:
        RefusedFile: it cannot be read.
    """
    with _readable(path) as file:
        return file_digest(file, "sha256").hexdigest()


@contextmanager
def _readable(path: Path) -> Iterator[BufferedReader]:
    try:
        file = disk.open_regular(path)
    except OSError as error:
        raise RefusedFile(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from None
    with file:
        yield file
