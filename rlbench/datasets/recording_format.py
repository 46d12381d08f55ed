"""File format of recorded games: chunks of tracks, every frame once, compressed in blocks and checksummed.

``rlbench-frames-1 <SHA-256 of the rest>``, a line of JSON, then zlib streams: actions, rewards and flags of each chunk,
then its frames in blocks of 64. Frames of 84×84 repeat within zlib's window, so differences gain little: random Pong
takes 102 bytes a frame as it is, and 92 as differences, which take longer to decode.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench import disk
from rlbench.errors import RefusedFile, UsageError

MAGIC: Final = b"rlbench-frames-1 "
BLOCK: Final = 64  # frames of a zlib stream, decompressed together
LEVEL: Final = 1  # of zlib: 6 halves a frame of Pong to 53 bytes and takes 2.5 times as long
MAX_FRAME_BYTES: Final = 64 * 2**20  # bytes of a frame
MAX_FILE_BYTES: Final = 2**30  # bytes of a file
MAX_HEADER_BYTES: Final = 2**22  # bytes; parsing takes some twenty times as many
DIMENSIONS: Final = 8  # of a frame; numpy has 64
ACTIONS: Final = 2**16  # largest number of discrete actions
TERMINATED, TRUNCATED, FINAL = 1, 2, 4
HEAD: Final = len(MAGIC) + 64 + 1

Frames = NDArray[np.generic]


class Steps(NamedTuple):
    """Actions, rewards and flags of n rows, without their frames."""

    action: NDArray[np.int64]  # [n]
    reward: NDArray[np.float32]  # [n]
    flags: NDArray[np.uint8]  # [n] TERMINATED | TRUNCATED | FINAL

    @property
    def final(self) -> NDArray[np.bool_]:
        """Mask ``[n]`` of the rows without an action."""
        return (self.flags & FINAL) > 0

    def rows(self, start: int, stop: int) -> Steps:
        """Rows ``start`` to ``stop``."""
        return Steps(self.action[start:stop], self.reward[start:stop], self.flags[start:stop])


class Chunk(NamedTuple):
    """Consecutive rows of one track."""

    track: int
    obs: Frames  # [n, *shape]
    steps: Steps


@dataclass(frozen=True, slots=True)
class ChunkOffsets:
    """Offsets of a chunk in its file."""

    track: int
    rows: int
    steps: int  # offset of its steps
    sizes: tuple[int, ...]  # bytes of its steps, then of every block of frames


@dataclass(frozen=True, slots=True)
class Segment:
    """A file whose checksum is verified."""

    path: Path
    raw: bytes
    sha256: str  # of all after its first line
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    places: tuple[ChunkOffsets, ...]

    def steps(self, place: ChunkOffsets) -> Steps:
        """Read the steps of a chunk."""
        stream = self._decompress(place.steps, place.sizes[0], 13 * place.rows)
        action, reward, flags = np.split(stream, [8 * place.rows, 12 * place.rows])
        steps = Steps(action.view("<i8").astype(np.int64), reward.view("<f4").astype(np.float32), flags)
        if (reason := describe_invalid(steps)) is not None:
            raise refusal(self.path, f"byte {place.steps}: {reason}")
        return steps

    def fill(self, place: ChunkOffsets, out: Frames) -> None:
        """Decompress the first ``len(out)`` frames of a chunk into ``out``, ``[n, *shape]``, contiguous."""
        width = int(np.prod(self.shape)) * self.dtype.itemsize
        rows = out.reshape(len(out), -1).view(np.uint8)
        at = place.steps + place.sizes[0]
        for start, size in zip(range(0, len(out), BLOCK), place.sizes[1:], strict=False):
            count = min(BLOCK, place.rows - start)
            block = self._decompress(at, size, count * width).reshape(count, width)
            rows[start : start + count] = block[: len(rows) - start]
            at += size

    def _decompress(self, start: int, size: int, expected: int) -> NDArray[np.uint8]:
        stream = zlib.decompressobj()
        try:
            content = stream.decompress(self.raw[start : start + size], expected + 1)  # a limit for zip bombs
        except zlib.error as error:
            raise refusal(self.path, f"byte {start}: {error}") from None
        if len(content) != expected or not stream.eof:
            raise refusal(self.path, f"byte {start}: not the expected {expected} bytes")
        return np.frombuffer(content, np.uint8)


def describe_invalid(steps: Steps, actions: int = ACTIONS) -> str | None:
    """Describe the first invalid action or reward by its row; None where all are valid."""
    for row in np.flatnonzero((steps.action < 0) | (steps.action >= actions))[:1].tolist():
        return f"row {row}: the action {steps.action[row]}"
    for row in np.flatnonzero(~np.isfinite(steps.reward))[:1].tolist():
        return f"row {row}: the reward {steps.reward[row]}"
    return None


def pack(pieces: Sequence[Chunk]) -> bytes:
    """Serialize chunks as the bytes of a file."""
    streams: list[bytes] = []
    places: list[tuple[int, int, list[int]]] = []
    for piece in pieces:
        columns = (piece.steps.action.astype("<i8"), piece.steps.reward.astype("<f4"), piece.steps.flags)
        chunk = [zlib.compress(b"".join(column.tobytes() for column in columns), LEVEL), *_blocks(piece.obs)]
        places.append((piece.track, len(piece.obs), [len(stream) for stream in chunk]))
        streams += chunk
    first = pieces[0].obs
    head = {"shape": first.shape[1:], "dtype": first.dtype.newbyteorder("<").str, "pieces": places}
    rest = json.dumps(head, separators=(",", ":")).encode() + b"\n" + b"".join(streams)
    return MAGIC + sha256(rest).hexdigest().encode() + b"\n" + rest


def digest_name(raw: bytes) -> str:
    """SHA-256 in the first line of a file."""
    return raw[len(MAGIC) : HEAD - 1].decode("ascii", "replace")


def read_segment(path: Path) -> Segment:
    """Read a whole file.

    Raises:
        UsageError: it is not there, or may not be read.
        RefusedFile: it is damaged, too large, or not in this format.
    """
    try:
        with disk.open_regular(path, max_bytes=MAX_FILE_BYTES, links=True) as file:
            raw = file.read()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); check it, or restore the data set") from None
    if not raw.startswith(MAGIC):
        raise refusal(path, "is of another format, or of a newer rlbench")
    if sha256(memoryview(raw)[HEAD:]).hexdigest() != digest_name(raw) or raw[HEAD - 1] != ord("\n"):
        raise refusal(path, "its SHA-256 is not the one it names")
    try:
        end = raw.index(b"\n", HEAD, HEAD + MAX_HEADER_BYTES)
        head = json.loads(raw[HEAD:end])
        shape, dtype = tuple(int(size) for size in head["shape"]), np.dtype(str(head["dtype"]))
        places = tuple(_places(head["pieces"], end + 1))
    except (ValueError, KeyError, TypeError, SyntaxError, OverflowError, RecursionError) as error:
        raise refusal(path, f"its header is invalid ({error})") from None
    too_large = len(shape) > DIMENSIONS or prod(shape) * dtype.itemsize > MAX_FRAME_BYTES
    if dtype.kind not in "uif" or min(shape, default=1) < 1 or too_large:
        raise refusal(path, f"frames of {dtype} and the shape {shape}")
    return Segment(path, raw, digest_name(raw), shape, dtype, places)


def refusal(path: Path, reason: str) -> RefusedFile:
    """Return the refusal of a damaged file."""
    return RefusedFile(f"{path}: damaged: {reason}; restore it, import it again, or make it again with --force")


def _blocks(obs: Frames) -> Iterator[bytes]:
    little = np.ascontiguousarray(obs, obs.dtype.newbyteorder("<"))
    for start in range(0, len(little), BLOCK):
        yield zlib.compress(little[start : start + BLOCK].tobytes(), LEVEL)


def _places(chunks: list[tuple[int, int, list[int]]], at: int) -> Iterator[ChunkOffsets]:
    for track, rows, sizes in chunks:
        if len(sizes) != 1 - (-rows // BLOCK) or rows < 1:
            raise ValueError(f"a chunk of {rows} rows in {len(sizes)} streams")
        yield ChunkOffsets(int(track), int(rows), at, tuple(int(size) for size in sizes))
        at += sum(sizes)
