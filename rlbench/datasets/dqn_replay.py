"""Dopamine's DQN-replay logs: gzipped numpy arrays, a million single frames per file, one file per column.

A log has no final observation of an episode: its last frame is repeated, and no target bootstraps from it. The last row
of a file has no successor, so it becomes a final observation. Where the ring buffer's head was in mid-file, the rows on
its two sides become two tracks. Before every episode Dopamine stores three rows of zeros for its first stack
(``OutOfGraphReplayBuffer.add``), which are dropped.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tokenize import TokenError
from typing import Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from rlbench.datasets.recording_format import FINAL, TERMINATED, Chunk, Steps, describe_invalid
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.datasets.rl_unplugged import ACTIONS
from rlbench.errors import RefusedFile, UsageError

NAME: Final = re.compile(r"\$store\$_observation_ckpt\.(\d+)\.gz")
COLUMNS: Final = {"observation": "|u1", "action": "<i4", "reward": "<f4", "terminal": "|u1"}
SIZE: Final = (84, 84)
ROWS: Final = 4_096  # decompressed together
PADDING: Final = 3  # rows of zeros before an episode


def logs(folder: Path) -> list[Path]:
    """List the files of frames in a folder, in order.

    Raises:
        UsageError: there is none.
    """
    files = {int(match[1]): path for path in folder.glob("*.gz") if (match := NAME.fullmatch(path.name))}
    if not files:
        raise UsageError(f"{folder}: holds no $store$_observation_ckpt.N.gz; give the folder replay_logs")
    return [files[number] for number in sorted(files)]


def columns(path: Path) -> list[Path]:
    """List all files of the log of one checkpoint, by its file of frames; some may be missing."""
    names = (*(f"$store$_{name}" for name in COLUMNS), "add_count")
    return [path.with_name(path.name.replace("$store$_observation", name)) for name in names]


def convert_log(path: Path, writer: RecordingWriter) -> dict[str, int]:
    """Convert the log of one checkpoint, and return its counts.

    Raises:
        RefusedFile: a file is missing, damaged or of another content; the message names it and the row.
    """
    with ExitStack() as stack:
        *paths, counter = columns(path)
        arrays = {name: Array(file, COLUMNS[name], stack) for name, file in zip(COLUMNS, paths, strict=True)}
        lengths = {name: array.length for name, array in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise RefusedFile(f"{path}: its columns have {lengths} rows; download them again")
        total = lengths["observation"]
        if total < 1:
            raise RefusedFile(f"{path}: holds no row; download it again")
        head = _head(counter, total)
        episodes, transitions, finals = 0, 0, dict[int, bool]()  # of each track: its last row is a final observation
        padding = dict.fromkeys((0, 1), PADDING)
        for start in range(0, total, ROWS):
            rows = {name: array.rows(min(ROWS, total - start)) for name, array in arrays.items()}
            episodes += int(np.count_nonzero(rows["terminal"]))
            for chunk in _chunks(rows, start, head, padding):
                if (reason := describe_invalid(chunk.steps, ACTIONS)) is not None:
                    raise RefusedFile(f"{path}: after row {start:,}, {reason}; download it and its columns again")
                finals[chunk.track] = bool(chunk.steps.final[-1])
                transitions += int((~chunk.steps.final).sum())
                writer.add(chunk)
    if not (transitions := transitions - sum(not end for end in finals.values())):
        raise RefusedFile(f"{path}: holds no transition; download it and its columns again")
    writer.flush()
    return {"transitions": transitions, "episodes": episodes}


class Array:
    """A gzipped npy file that is read row by row, until ``files`` closes it."""

    def __init__(self, path: Path, dtype: str, files: ExitStack) -> None:
        self.path, self.read = path, 0
        self.dtype: np.dtype[np.generic] = np.dtype(dtype)
        if not path.is_file():
            raise RefusedFile(f"{path}: missing; download it again")
        try:
            self.file = files.enter_context(gzip.open(path, "rb"))  # noqa: SIM115 - entered here
            shape, fortran, file_dtype = _header(self.file)
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise self._damage(str(error)) from None
        if fortran or not shape or file_dtype.str not in {self.dtype.str, self.dtype.str.replace("u", "b")}:
            raise RefusedFile(f"{path}: holds {file_dtype} {list(shape)}, {self.dtype} were expected")
        self.length, self.shape = shape[0], shape[1:]
        expected = SIZE if self.dtype == np.uint8 and "observation" in path.name else ()
        if self.shape != expected:
            raise RefusedFile(f"{path}: rows of the shape {list(self.shape)}, {list(expected)} were expected")

    def rows(self, count: int) -> NDArray[np.generic]:
        """Read the next rows, ``[count, …]``."""
        size = count * int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        try:
            raw = self.file.read(size)
            excess = self.file.read(1) if self.read + count == self.length else b""  # gzip then verifies its CRC
        except (OSError, EOFError, zlib.error) as error:
            raise self._damage(str(error)) from None
        if len(raw) < size or excess:
            raise self._damage("it has more rows than it says" if excess else "it ends before its last row")
        self.read += count
        return np.frombuffer(raw, self.dtype).reshape(count, *self.shape)

    def _damage(self, reason: str) -> RefusedFile:
        return RefusedFile(f"{self.path}: row {self.read:,} or later: {reason}; download it again")


def _chunks(columns: dict[str, NDArray[np.generic]], start: int, head: int, padding: dict[int, int]) -> Iterator[Chunk]:
    """Yield the chunks of some rows of a log: track 0 from the ring buffer's head on, track 1 the newer rows before it.

    ``padding``: the rows of zeros that each track may still have, updated in place.
    """
    count = len(columns["terminal"])
    border = min(max(head - start, 0), count)
    for track, rows in ((1, slice(0, border)), (0, slice(border, count))):
        own = {name: column[rows] for name, column in columns.items()}
        mask, padding[track] = _without_padding(own, padding[track])
        if mask.any():
            yield _chunk(track, {name: column[mask] for name, column in own.items()})


def _without_padding(columns: dict[str, NDArray[np.generic]], remaining: int) -> tuple[NDArray[np.bool_], int]:
    """Mask ``[n]`` of a track's rows without padding, with ``remaining`` of it first, and the padding that remains."""
    empty = ~columns["observation"].any((1, 2)) & (columns["action"] == 0) & (columns["reward"] == 0)
    mask = np.ones(len(empty), np.bool_)
    for row, (zeros, terminal) in enumerate(zip(empty.tolist(), columns["terminal"].tolist(), strict=True)):
        mask[row] = terminal or not zeros or not remaining
        remaining = PADDING if terminal else 0 if mask[row] else remaining - 1
    return mask, remaining


def _chunk(track: int, columns: dict[str, NDArray[np.generic]]) -> Chunk:
    """Build a chunk, with a final row after each end of an episode."""
    terminal = columns["terminal"].astype(np.bool_)
    source = np.repeat(np.arange(len(terminal)), 1 + terminal)
    live = np.r_[True, source[1:] != source[:-1]]
    flags = np.where(live, np.where(terminal[source], TERMINATED, 0), FINAL).astype(np.uint8)
    action = np.where(live, columns["action"][source].astype(np.int64), 0)
    reward = np.where(live, columns["reward"][source].astype(np.float32), np.float32(0))
    return Chunk(track, columns["observation"][source], Steps(action, reward, flags))


def _head(counter: Path, total: int) -> int:
    """Head of the ring buffer when it was saved; 0 without the file ``add_count``."""
    if not counter.is_file():
        return 0
    try:
        with gzip.open(counter, "rb") as file:
            shape, _, dtype = _header(file)
            if shape or dtype.kind not in "iu":  # a short header may claim an array of any size
                raise RefusedFile(f"{counter}: holds {dtype} {list(shape)}, one integer was expected")
            return int(np.frombuffer(file.read(dtype.itemsize), dtype)[0]) % total
    except (OSError, EOFError, zlib.error, ValueError, IndexError) as error:
        raise RefusedFile(f"{counter}: damaged ({error}); download it again") from None


def _header(file: gzip.GzipFile) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Shape, True for Fortran's order, and dtype of an npy file."""
    try:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("not version 1.0 of numpy's format")  # whose headers have 64 kB at most
        return npy.read_array_header_1_0(file)
    except (SyntaxError, TokenError, RecursionError, MemoryError) as error:  # numpy parses it as Python's literals
        raise ValueError(f"no header of numpy: {type(error).__name__}") from None
