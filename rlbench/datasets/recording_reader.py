"""Read recorded games: track after track, in single frames, with a row after each episode for its final observation.

The set of a killed process reads up to its last file: the last row of every track is then a final observation. A track
may begin in mid-game; the frames before its first action then precede it in ``final`` rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import groupby
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench.config.footprint import size_text
from rlbench.datasets import recording_format, recording_writer
from rlbench.datasets.catalogue import SUFFIX, is_complete
from rlbench.datasets.episodes import Dataset
from rlbench.datasets.recording_format import FINAL, TERMINATED, TRUNCATED, Chunk, Frames, Steps
from rlbench.errors import RefusedFile, UsageError

MAX_THREADS = 4  # zlib releases the interpreter; beyond this disk and memory are the limit
ROW = 64  # bytes of a row while its chunks are read and joined, without its frame; 52 were measured
COPIES = 2  # of the frames of a chunk: decompressed and joined, or compressed


class ChunkOfSet(NamedTuple):
    """A chunk in the order of reading."""

    path: Path
    sha256: str  # of its file
    number: int  # index of the chunk in its file
    track: tuple[str, int]  # source, and track of the source
    steps: Steps


def read_recording(path: Path, steps: int | None = None, *, max_bytes: int | None = None) -> Dataset:
    """Read a set, or its first ``steps`` transitions, with single frames of at most ``max_bytes``.

    Raises:
        UsageError: there is no such set, it is shorter, or it takes more room.
        RefusedFile: a file is missing, damaged, of another set or claims too many rows; the message names it.
    """
    chunks = _chunks(path, max_bytes)
    events = _first_steps(_with_ends(chunks), steps, path)
    rows, first = len(events.flags), recording_format.read_segment(chunks[0].path)
    too_many = UsageError(f"{path}: {rows:,} frames do not fit into memory; make a smaller set: rlbench data subset")
    if max_bytes is not None and rows * prod(first.shape) * first.dtype.itemsize > max_bytes:
        raise too_many
    try:
        obs = np.empty((rows, *first.shape), np.dtype(first.dtype.str))
    except MemoryError:
        raise too_many from None
    targets: dict[tuple[Path, str], list[tuple[int, Frames]]] = {}
    at = 0
    for chunk in chunks:
        if at < rows:
            place = chunk.number, obs[at : at + len(chunk.steps.flags)]
            targets.setdefault((chunk.path, chunk.sha256), []).append(place)
        at += len(chunk.steps.flags)
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        list(pool.map(lambda item: _fill(*item), targets.items()))
    return Dataset(
        obs=obs,
        action=events.action.astype(np.dtype(events.action.dtype.str)),
        reward=events.reward,
        terminated=(events.flags & TERMINATED) > 0,
        truncated=(events.flags & TRUNCATED) > 0,
        final=events.final,
    )


def read_steps(path: Path, *, max_bytes: int | None = None) -> Steps:
    """Read the rows of ``read_recording`` without frames, a hundred times as fast, in ``max_bytes`` of memory."""
    return _with_ends(_chunks(path, max_bytes))


def verify_recording(path: Path, *, max_bytes: int | None = None) -> None:
    """Decompress every frame once, within ``max_bytes`` of memory.

    Raises:
        RefusedFile: a file is missing, damaged or of another set; the message names it.
    """
    for file, sha256 in sorted({(chunk.path, chunk.sha256) for chunk in _chunks(path, max_bytes, COPIES)}):
        segment = _read_again(file, sha256)
        for place in segment.places:
            segment.steps(place)
            segment.fill(place, np.empty((place.rows, *segment.shape), segment.dtype))


def metadata(path: Path) -> dict[str, object]:
    """Metadata of a set."""
    contents = recording_writer.contents(path)
    return {"state": "unfinished"} if contents is None else contents[1]


def subset(path: Path, target: Path, steps: int, *, max_bytes: int | None = None) -> None:
    """Write the first ``steps`` transitions of a set as a set of their own, in place of ``target``.

    Raises:
        UsageError: the set is shorter.
    """
    chunks = _chunks(path, max_bytes, COPIES)
    events = _first_steps(_with_ends(chunks), steps, path)
    writer, at = recording_writer.RecordingWriter(target, request=subset_request(path, steps)), 0
    read_again = lru_cache(maxsize=1)(_read_again)  # chunks of a file follow one another
    tracks: dict[tuple[str, int], int] = {}
    for chunk in chunks:
        if at >= len(events.flags):
            break
        segment = read_again(chunk.path, chunk.sha256)
        rows = min(len(chunk.steps.flags), len(events.flags) - at)
        obs: Frames = np.empty((rows, *segment.shape), segment.dtype)
        segment.fill(segment.places[chunk.number], obs)
        writer.add(Chunk(tracks.setdefault(chunk.track, len(tracks)), obs, events.rows(at, at + rows)))
        at += rows
    writer.flush()
    recording_writer.finish(target, writer.digests, _subset_metadata(path, target, steps))


def is_subset(path: Path, target: Path, steps: int, *, max_bytes: int | None = None) -> bool:
    """True if ``target`` is complete and equals the first ``steps`` transitions of ``path`` in all but the frames."""
    if not is_complete(target) or metadata(target) != _subset_metadata(path, target, steps):
        return False
    one = _first_steps(read_steps(path, max_bytes=max_bytes), steps, path)
    other = read_steps(target, max_bytes=max_bytes)
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in Steps._fields)


def subset_request(path: Path, steps: int) -> dict[str, object]:
    """The request for the first ``steps`` transitions of a set."""
    return {"subset_of": path.name.removesuffix(SUFFIX), "steps": steps}


def _subset_metadata(path: Path, target: Path, steps: int) -> dict[str, object]:
    dropped = ("episodes", "return_", "state")
    own_metadata = {key: value for key, value in metadata(path).items() if not key.startswith(dropped)}
    return {**own_metadata, "name": target.name.removesuffix(SUFFIX), **subset_request(path, steps)}


def _chunks(path: Path, max_bytes: int | None, copies: int = 0) -> list[ChunkOfSet]:
    """List every chunk in the order of reading, without its frames, of which ``copies`` have room at a time."""
    contents = recording_writer.contents(path)
    names = sorted(file.name for file in path.glob("*.segment")) if contents is None else list(contents[0])
    if not names:
        raise UsageError(f"{path}: holds no recorded games; check the path")
    chunks: list[ChunkOfSet] = []
    claim = 0  # bytes of all rows so far, by the index of each file
    frame: tuple[object, object] | None = None
    for name in names:
        segment = recording_format.read_segment(path / name)
        frame = frame or (segment.shape, segment.dtype)
        if frame != (segment.shape, segment.dtype):
            raise RefusedFile(f"{segment.path}: has frames {segment.dtype} {list(segment.shape)}, unlike the others")
        if contents is not None and segment.sha256 != contents[0][name]:
            raise RefusedFile(f"{path / name}: is not a file of this set; restore it")
        claim += ROW * sum(place.rows for place in segment.places)
        frames = prod(segment.shape) * segment.dtype.itemsize * max((place.rows for place in segment.places), default=0)
        need = claim + copies * frames
        if max_bytes is not None and need > max_bytes:
            problem = f"with it the set takes {size_text(need)} of memory, this machine has {size_text(max_bytes)} free"
            raise RefusedFile(f"{segment.path}: {problem}; check the file, or use a larger machine")
        source = name.split(".")[0]
        for number, place in enumerate(segment.places):
            steps = segment.steps(place)
            chunks.append(ChunkOfSet(segment.path, segment.sha256, number, (source, place.track), steps))
    return _without_dangling(sorted(chunks, key=lambda chunk: (chunk.track, chunk.path)))


def _without_dangling(chunks: Sequence[ChunkOfSet]) -> list[ChunkOfSet]:
    """Drop the last rows of a track that no transition leads to, as of a killed process."""
    rest: list[ChunkOfSet] = []
    for _, own in groupby(chunks, key=lambda chunk: chunk.track):
        track = list(own)
        flags = np.concatenate([[FINAL], *(chunk.steps.flags for chunk in track)])
        (steps,) = np.nonzero(flags[:-1] & FINAL == 0)  # rows followed by their next observation
        stop = int(steps[-1]) + 1 if len(steps) else 0
        for chunk in track:
            rows = min(stop, len(chunk.steps.flags))
            if rows:
                rest.append(chunk._replace(steps=chunk.steps.rows(0, rows)))
            stop -= rows
    return rest


def _with_ends(chunks: Sequence[ChunkOfSet]) -> Steps:
    """Join the steps of all chunks; an unfinished track ends at its last row."""
    if not chunks:
        raise UsageError("recorded games: no transition; the recording was interrupted before its second row")
    events = Steps(*(np.concatenate(column) for column in zip(*(chunk.steps for chunk in chunks), strict=True)))
    flags, ends = events.flags.copy(), np.cumsum([len(chunk.steps.flags) for chunk in chunks])
    for chunk, after, end in zip(chunks, [*chunks[1:], None], ends, strict=True):
        if after is None or after.track != chunk.track:
            _make_final(flags, int(end) - 1)
    return _zero_final_rows(events, flags)


def _first_steps(events: Steps, steps: int | None, path: Path) -> Steps:
    if steps is None:
        return events
    (live,) = np.nonzero(~events.final)
    if not 0 < steps <= len(live):
        raise UsageError(f"{path}: holds {len(live):,} transitions, {steps:,} were requested; request fewer")
    rows = int(live[steps - 1]) + 2
    flags = events.flags[:rows].copy()
    _make_final(flags, rows - 1)
    return _zero_final_rows(events.rows(0, rows), flags)


def _make_final(flags: NDArray[np.uint8], row: int) -> None:
    """Turn a row into the final observation of the row before it."""
    if not flags[row] & FINAL:
        flags[row], flags[row - 1] = FINAL, flags[row - 1] or TRUNCATED


def _zero_final_rows(events: Steps, flags: NDArray[np.uint8]) -> Steps:
    live = (flags & FINAL) == 0
    return Steps(events.action * live, events.reward * live, flags)


def _read_again(path: Path, sha256: str) -> recording_format.Segment:
    segment = recording_format.read_segment(path)
    if segment.sha256 != sha256:
        raise RefusedFile(f"{path}: was exchanged while the set was read; repeat the command")
    return segment


def _fill(file: tuple[Path, str], targets: Sequence[tuple[int, Frames]]) -> None:
    segment = _read_again(*file)
    for number, out in targets:
        segment.fill(segment.places[number], out)
