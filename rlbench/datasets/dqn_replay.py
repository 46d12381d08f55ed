"""Dopamine's DQN-replay logs: gzipped numpy arrays, a million single frames a file, one file a column.

A log holds no frame behind the last one of an episode: that one is shown again, and nobody bootstraps from it. The last
row of a file has no successor in it, so it only shows what the one before it led to. Where the ring buffer's head stood
in mid-file, the rows on both sides do not belong together and become two tracks. Before every episode Dopamine laid
three rows of zeros, to fill its first stack (``OutOfGraphReplayBuffer.add``): nobody did or saw anything in them, and
they are left out.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from rlbench.datasets.recording_format import FINAL, TERMINATED, Piece, Steps, odd
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.errors import RefusedFile, UsageError

NAME: Final = re.compile(r"\$store\$_observation_ckpt\.(\d+)\.gz")
COLUMNS: Final = {"observation": "|u1", "action": "<i4", "reward": "<f4", "terminal": "|u1"}
SIZE: Final = (84, 84)
ROWS: Final = 4_096  # unpacked in one go
PADDING: Final = 3  # rows of zeros before an episode


def logs(folder: Path) -> list[Path]:
    """The files of frames in a folder, in order; the others lie beside them.

    Raises:
        UsageError: there is none.
    """
    found = {int(match[1]): path for path in folder.glob("*.gz") if (match := NAME.fullmatch(path.name))}
    if not found:
        raise UsageError(f"{folder}: holds no $store$_observation_ckpt.N.gz; give the folder replay_logs")
    return [found[number] for number in sorted(found)]


def converted(path: Path, film: RecordingWriter) -> dict[str, int]:
    """Put one checkpoint's log on film, as one track; how much it was.

    Raises:
        RefusedFile: a file is missing, damaged or holds something else; the message names it and the row.
    """
    with ExitStack() as opened:
        arrays = {name: opened.enter_context(Array(_beside(path, name), dtype)) for name, dtype in COLUMNS.items()}
        lengths = {name: array.length for name, array in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise RefusedFile(f"{path}: its columns have {lengths} rows; download them again")
        total = lengths["observation"]
        if not total:
            raise RefusedFile(f"{path}: holds no row; download it again")
        head = _head(path, total)
        episodes, transitions, ended = 0, 0, {}
        padding = dict.fromkeys((0, 1), PADDING)
        for start in range(0, total, ROWS):
            columns = {name: array.rows(min(ROWS, total - start)) for name, array in arrays.items()}
            episodes += int(columns["terminal"].sum())
            for piece in _pieces(columns, start, head, padding):
                if (reason := odd(piece.steps)) is not None:
                    raise RefusedFile(f"{path}: behind row {start:,}, {reason}; download it and its columns again")
                ended[piece.track] = bool(piece.steps.final[-1])
                transitions += int((~piece.steps.final).sum())
                film.add(piece)
    film.flush()
    return {"transitions": transitions - sum(not end for end in ended.values()), "episodes": episodes}


class Array:
    """A gzipped npy file that is read row by row."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self.read = path, 0
        self.dtype: np.dtype[np.generic] = np.dtype(dtype)
        if not path.is_file():
            raise RefusedFile(f"{path}: missing; download it again")
        self.file = gzip.open(path, "rb")  # noqa: SIM115 - closed by __exit__
        shape = self._opened()
        self.length, self.shape = shape[0], shape[1:]
        due = SIZE if self.dtype == np.uint8 and "observation" in path.name else ()
        if self.shape != due:
            raise RefusedFile(f"{path}: rows of the shape {list(self.shape)}, {list(due)} were due")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def rows(self, count: int) -> NDArray[np.generic]:
        """The next rows, ``[count, …]``."""
        size = count * int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        try:
            raw = self.file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise self._damaged(str(error)) from None
        if len(raw) < size:
            raise self._damaged("it ends before its last row")
        self.read += count
        return np.frombuffer(raw, self.dtype).reshape(count, *self.shape)

    def _opened(self) -> tuple[int, ...]:
        try:
            version = npy.read_magic(self.file)
            reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = reader(self.file)
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise self._damaged(str(error)) from None
        if fortran or not shape or dtype.kind not in {self.dtype.kind, "b"} or dtype.itemsize != self.dtype.itemsize:
            raise RefusedFile(f"{self.path}: holds {dtype} {list(shape)}, {self.dtype} were due")
        return tuple(shape)

    def _damaged(self, reason: str) -> RefusedFile:
        return RefusedFile(f"{self.path}: row {self.read:,} or later: {reason}; download it again")


def _pieces(columns: dict[str, NDArray[np.generic]], start: int, head: int, padding: dict[int, int]) -> Iterator[Piece]:
    """Some rows of a log: track 0 from the ring buffer's head on, track 1 what is newer and lies before it.

    ``padding`` says of each track how many rows of zeros may come next, and is kept.
    """
    count = len(columns["terminal"])
    border = min(max(head - start, 0), count)
    for track, rows in ((1, slice(0, border)), (0, slice(border, count))):
        own = {name: column[rows] for name, column in columns.items()}
        kept, padding[track] = _kept(own, padding[track])
        if kept.any():
            yield _piece(track, {name: column[kept] for name, column in own.items()})


def _kept(columns: dict[str, NDArray[np.generic]], left: int) -> tuple[NDArray[np.bool_], int]:
    """The rows of a track in which something was done, ``[n]``; up to ``left`` of zeros may come first, and then."""
    empty = ~columns["observation"].any((1, 2)) & (columns["action"] == 0) & (columns["reward"] == 0)
    kept = np.ones(len(empty), np.bool_)
    for row, (nothing, ended) in enumerate(zip(empty.tolist(), columns["terminal"].tolist(), strict=True)):
        kept[row] = ended or not nothing or not left
        left = PADDING if ended else 0 if kept[row] else left - 1
    return kept, left


def _piece(track: int, columns: dict[str, NDArray[np.generic]]) -> Piece:
    """Rows with another one behind each that ends an episode."""
    terminal = columns["terminal"].astype(np.bool_)
    source = np.repeat(np.arange(len(terminal)), 1 + terminal)
    live = np.r_[True, source[1:] != source[:-1]]
    marks = np.where(live, np.where(terminal[source], TERMINATED, 0), FINAL).astype(np.uint8)
    action = np.where(live, columns["action"][source].astype(np.int64), 0)
    reward = np.where(live, columns["reward"][source].astype(np.float32), np.float32(0))
    return Piece(track, columns["observation"][source], Steps(action, reward, marks))


def _head(path: Path, total: int) -> int:
    """The row at which the ring buffer went on writing when it was saved, 0 where nothing says so."""
    counted = path.with_name(path.name.replace("$store$_observation", "add_count"))
    if not counted.is_file():
        return 0
    try:
        with gzip.open(counted, "rb") as file:
            reader = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = reader(file)
            if shape or dtype.kind not in "iu":  # the header of a few bytes may claim any number of numbers
                raise RefusedFile(f"{counted}: holds {dtype} {list(shape)}, one whole number was due")
            return int(np.frombuffer(file.read(dtype.itemsize), dtype)[0]) % total
    except (OSError, EOFError, zlib.error, ValueError, IndexError) as error:
        raise RefusedFile(f"{counted}: damaged ({error}); download it again") from None


def _beside(path: Path, column: str) -> Path:
    return path.with_name(path.name.replace("observation", column))
