"""A tree of tensors and plain values in a folder: safetensors, and JSON with a checksum of every file.

A checkpoint is written beside the old one and renamed into place, so that at any moment there is a whole one.
Reading takes all of it or refuses by name; nothing in it can run code.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlbench.errors import Halted, RefusedFile
from rlbench.ops.state import State
from rlbench.record import files

SHARD = 256 * 2**20  # bytes of one safetensors file, about: bounds what saving a large ring needs beside it
SEPARATOR = "/"


def save(folder: Path, state: State) -> None:
    """Write ``state`` so that ``folder`` holds all of it or what it held before."""
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    with files.writing(folder):
        recover(folder)
        fresh.mkdir(parents=True)
        try:
            _write(fresh, state)
            _swap(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def load(folder: Path) -> State:
    """The state in ``folder``, on the host.

    Raises:
        RefusedFile: a file is missing, damaged or newer; the message names it.
    """
    recover(folder)
    head = files.read_sealed(folder / "manifest.json")
    sums, values, split = head.get("files"), head.get("values"), head.get("split")
    if not isinstance(sums, dict) or not isinstance(values, dict) or not isinstance(split, dict):
        raise RefusedFile(f"{folder / 'manifest.json'}: not a checkpoint's; start over with --force")
    tensors: dict[str, Tensor] = {}
    filled: dict[str, int] = {}
    for name, checksum in sums.items():
        for key, piece in sorted(_shard(folder / name, folder, checksum).items()):
            whole = key.rpartition("@")[0]
            rows = split.get(whole)
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
    for key, value in {**values, **tensors}.items():
        _plant(state, key.split(SEPARATOR), value)
    return state


def _shard(path: Path, folder: Path, checksum: object) -> dict[str, Tensor]:
    """One file's tensors, whole or refused."""
    if path.parent != folder or not path.is_file() or _sum(path) != checksum:
        raise RefusedFile(f"{path}: missing or damaged; restore it, or start over with --force")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise RefusedFile(f"{path}: not safetensors ({error}); start over with --force") from None


def exists(folder: Path) -> bool:
    """Whether there is something to load."""
    recover(folder)
    return folder.is_dir()


def discard(folder: Path) -> None:
    """Remove a checkpoint that nothing will resume from."""
    recover(folder)
    shutil.rmtree(folder, ignore_errors=True)


def recover(folder: Path) -> None:
    """Finish a swap that a crash cut in two, and sweep away what a crash left half written; the lock is ours."""
    for left in folder.parent.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(left, ignore_errors=True)
    old = folder.with_name(f".{folder.name}.old")
    if old.is_dir():
        if folder.is_dir():
            shutil.rmtree(old)
        else:
            old.rename(folder)


def _write(folder: Path, state: State) -> None:
    sums, values, split = {}, {}, {}
    shard: dict[str, Tensor] = {}
    size = number = 0

    def flush() -> None:
        nonlocal shard, size, number
        path = folder / f"tensors-{number:03}.safetensors"
        try:
            save_file(shard, path)
        except SafetensorError as error:  # its own name for a disk that will take no more
            raise Halted(f"{path}: {error}; free some space and run the same command again: it resumes") from None
        _sync(path)
        sums[path.name] = _sum(path)
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
    files.replace(
        folder / "manifest.json",
        files.sealed({"schema_version": files.SCHEMA_VERSION, "files": sums, "values": values, "split": split}),
    )


def _swap(fresh: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.old")
    if folder.is_dir():
        folder.rename(old)
    fresh.rename(folder)
    files.sync_folder(folder.parent)
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


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
