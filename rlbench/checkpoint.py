"""A tree of tensors and plain values in a folder: safetensors, and JSON with a checksum of every file.

A checkpoint is written to a temporary folder and renamed into place, so that a whole one exists at any moment.
Reading loads all of it or raises an error that names the file; nothing in it can run code.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlbench import disk, faults
from rlbench.errors import RefusedFile, ResourceExhausted
from rlbench.ops.state_dict import SEPARATOR, State
from rlbench.records import files, manifest
from rlbench.records.manifest import Manifest

SHARD_BYTES = 256 * 2**20  # about one safetensors file; bounds the extra memory of saving a large ring


def save(folder: Path, state: State) -> None:
    """Write ``state`` to ``folder``, whole or not at all."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    with files.writing(folder):
        recover(folder)
        folder.parent.mkdir(exist_ok=True)  # without parents: a run's folder that was moved away is not made anew
        temporary.mkdir()
        faults.point("checkpoint.begun")
        try:
            _write(temporary, state)
            _swap(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def load(folder: Path) -> State:
    """Load the state in ``folder`` on the host; write nothing, since a run may be using it.

    Raises:
        RefusedFile: a file is missing, damaged or newer; the message names it.
    """
    folder = manifest.current(folder)
    contents = manifest.read_manifest(folder)
    tensors: dict[str, Tensor] = {}
    row_counts: dict[str, int] = {}
    for name, digest in contents.files.items():
        for key, chunk in sorted(_load_shard(folder, name, digest).items()):
            tensor_name = key.rpartition("@")[0]
            rows = contents.split.get(tensor_name)
            if rows is None:
                tensors[tensor_name] = chunk
                continue
            try:
                if tensor_name not in tensors:  # filled shard by shard, so that memory holds one copy
                    tensors[tensor_name] = chunk.new_empty(rows, *chunk.shape[1:])
                start = row_counts.get(tensor_name, 0)
                tensors[tensor_name][start : start + len(chunk)] = chunk
            except (RuntimeError, TypeError) as error:  # another shape, or one that is too large
                raise RefusedFile(f"{folder / name}: {tensor_name} is not as the manifest says ({error})") from None
            row_counts[tensor_name] = start + len(chunk)
    state: State = {}
    for key, value in {**contents.values, **tensors}.items():
        _insert(state, key.split(SEPARATOR), value)
    return state


def _load_shard(folder: Path, name: str, digest: str) -> dict[str, Tensor]:
    try:
        with manifest.opened(folder, name, digest) as path:
            return load_file(path)
    except SafetensorError as error:
        raise RefusedFile(f"{folder / name}: not safetensors ({error}); start over with --force") from None


def exists(folder: Path) -> bool:
    """True if a checkpoint can be loaded."""
    return manifest.current(folder).is_dir()


def discard(folder: Path) -> None:
    """Remove a checkpoint at once, by a rename: half of one would be refused as damaged."""
    recover(folder)
    if folder.is_dir():
        with files.writing(folder):
            folder.rename(folder.with_name(f".{folder.name}.{os.getpid()}.tmp"))
        faults.point("checkpoint.discarded")
        recover(folder)


def recover(folder: Path) -> None:
    """Undo or finish a swap that a crash interrupted, and remove temporary folders; the caller holds the lock.

    Raises:
        RefusedFile: a link or a special file is in the place of a folder.
    """
    old = manifest.old(folder)
    for path in (folder.parent, folder, old):
        files.refuse_link(path)
    for leftover in folder.parent.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
        faults.point("checkpoint.swept")
    if old.is_dir():
        if folder.is_dir():
            shutil.rmtree(old)
        else:
            old.rename(folder)


def _write(folder: Path, state: State) -> None:
    sums: dict[str, str] = {}
    values: dict[str, manifest.Value] = {}
    split: dict[str, int] = {}
    shard: dict[str, Tensor] = {}
    size = number = 0

    def flush() -> None:
        nonlocal shard, size, number
        path = folder / f"tensors-{number:03}.safetensors"
        try:
            save_file(shard, path)
        except SafetensorError as error:  # its error for a full disk
            raise ResourceExhausted(
                f"{path}: {error}; free some space and run the same command again: it resumes"
            ) from None
        with suppress(PermissionError):  # of a disk without modes
            path.chmod(folder.stat().st_mode & 0o666)  # as all files here; safetensors' are its user's alone
        disk.sync(path)
        faults.point("checkpoint.shard")
        sums[path.name] = manifest.sha256_of(path)
        shard, size, number = {}, 0, number + 1

    for key, value in flatten(state):
        if not isinstance(value, Tensor):
            values[key] = value
            continue
        rows = max(1, SHARD_BYTES // max(1, value[:1].nbytes)) if value.dim() else 1
        splits = value.dim() > 0 and len(value) > rows
        if splits:
            split[key] = len(value)
        for i, chunk in enumerate(torch.split(value, rows) if splits else (value,)):
            shard[f"{key}@{i:06}"] = chunk.detach().contiguous().cpu()
            size += chunk.nbytes
            if size >= SHARD_BYTES:
                flush()
    flush()
    manifest.write_manifest(folder, Manifest(sums, values, split))


def _swap(temporary: Path, folder: Path) -> None:
    old = manifest.old(folder)
    if folder.is_dir():
        folder.rename(old)
        faults.point("checkpoint.out")
    temporary.rename(folder)
    faults.point("checkpoint.in")
    disk.sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def flatten(state: State, prefix: str = "") -> Iterator[tuple[str, Tensor | int | float | str]]:
    """Every tensor and plain value of a state, by its path."""
    for key, value in state.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}{SEPARATOR}")
        else:
            yield prefix + key, value


def _insert(state: State, path: list[str], value: Tensor | float | str) -> None:
    *branches, leaf = path
    for name in branches:
        below = state.setdefault(name, {})
        if not isinstance(below, dict):
            raise RefusedFile(f"{SEPARATOR.join(path)}: a value where a tree is expected")
        state = below
    state[leaf] = value
