"""A tree of tensors and plain values in a folder: safetensors, and JSON with a checksum of every file.

A checkpoint is written beside the old one and renamed into place, so that at any moment there is a whole one.
Reading takes all of it or refuses by name; nothing in it can run code.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlbench import disk, faults
from rlbench.errors import RefusedFile, ResourceExhausted
from rlbench.ops.state_dict import State
from rlbench.records import files, manifest
from rlbench.records.manifest import Manifest

SHARD = 256 * 2**20  # bytes of one safetensors file, about: bounds what saving a large ring needs beside it
SEPARATOR = "/"


def save(folder: Path, state: State) -> None:
    """Write ``state`` so that ``folder`` holds all of it or what it held before."""
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    with files.writing(folder):
        recover(folder)
        fresh.mkdir(parents=True)
        faults.point("checkpoint.begun")
        try:
            _write(fresh, state)
            _swap(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def load(folder: Path) -> State:
    """The state in ``folder``, on the host; changes nothing there, for a run may be at work.

    Raises:
        RefusedFile: a file is missing, damaged or newer; the message names it.
    """
    folder = manifest.standing(folder)
    head = manifest.read(folder)
    tensors: dict[str, Tensor] = {}
    filled: dict[str, int] = {}
    for name, digest in head.files.items():
        for key, piece in sorted(_shard(manifest.check(folder, name, digest)).items()):
            whole = key.rpartition("@")[0]
            rows = head.split.get(whole)
            if rows is None:
                tensors[whole] = piece
                continue
            try:
                if whole not in tensors:  # filled shard by shard, so that no second copy is ever in memory
                    tensors[whole] = piece.new_empty(rows, *piece.shape[1:])
                at = filled.get(whole, 0)
                tensors[whole][at : at + len(piece)] = piece
            except (RuntimeError, TypeError) as error:  # torch's words for another shape, and for too large a one
                raise RefusedFile(f"{folder / name}: {whole} is not as the manifest says ({error})") from None
            filled[whole] = at + len(piece)
    state: State = {}
    for key, value in {**head.values, **tensors}.items():
        _plant(state, key.split(SEPARATOR), value)
    return state


def _shard(path: Path) -> dict[str, Tensor]:
    """One file's tensors."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise RefusedFile(f"{path}: not safetensors ({error}); start over with --force") from None


def exists(folder: Path) -> bool:
    """Whether there is something to load."""
    return manifest.standing(folder).is_dir()


def discard(folder: Path) -> None:
    """Remove a checkpoint that nothing will resume from, whole: half of one would be taken for damaged."""
    recover(folder)
    if folder.is_dir():
        with files.writing(folder):
            folder.rename(folder.with_name(f".{folder.name}.{os.getpid()}.tmp"))
        faults.point("checkpoint.discarded")
        recover(folder)


def recover(folder: Path) -> None:
    """Finish a swap that a crash cut in two, and sweep away what a crash left half written; the lock is ours."""
    for left in folder.parent.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(left, ignore_errors=True)
        faults.point("checkpoint.swept")
    old = manifest.before(folder)
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
        except SafetensorError as error:  # its own name for a disk that will take no more
            raise ResourceExhausted(
                f"{path}: {error}; free some space and run the same command again: it resumes"
            ) from None
        manifest.sync(path)
        faults.point("checkpoint.shard")
        sums[path.name] = manifest.sha256_of(path)
        shard, size, number = {}, 0, number + 1

    for key, value in _leaves(state):
        if not isinstance(value, Tensor):
            values[key] = value
            continue
        rows = max(1, SHARD // max(1, value[:1].nbytes)) if value.dim() else 1
        divided = value.dim() > 0 and len(value) > rows
        if divided:
            split[key] = len(value)
        for i, piece in enumerate(torch.split(value, rows) if divided else (value,)):
            shard[f"{key}@{i:06}"] = piece.detach().contiguous().cpu()
            size += piece.nbytes
            if size >= SHARD:
                flush()
    flush()
    manifest.write(folder, Manifest(sums, values, split))


def _swap(fresh: Path, folder: Path) -> None:
    old = manifest.before(folder)
    if folder.is_dir():
        folder.rename(old)
        faults.point("checkpoint.out")
    fresh.rename(folder)
    faults.point("checkpoint.in")
    disk.sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _leaves(state: State, prefix: str = "") -> Iterator[tuple[str, Tensor | int | float | str]]:
    for key, value in state.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}{SEPARATOR}")
        else:
            yield prefix + key, value


def _plant(state: State, path: list[str], value: Tensor | float | str) -> None:
    *branches, leaf = path
    for name in branches:
        below = state.setdefault(name, {})
        if not isinstance(below, dict):
            raise RefusedFile(f"{SEPARATOR.join(path)}: a value where a tree was due")
        state = below
    state[leaf] = value
