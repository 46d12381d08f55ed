"""Recorded play as it is read: track after track, single frames, and the row behind every episode that shows its end.

A set whose process was killed reads as far as it came: the last row of every track then only shows what the one before
it led to. A track may begin in mid-game; what was seen before its first action then lies before it, in ``final`` rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbench.datasets import recording_format, recording_writer
from rlbench.datasets.recording_format import FINAL, TERMINATED, TRUNCATED, Frames, Piece, Segment, Steps
from rlbench.datasets.recording_writer import CONTENTS, SUFFIX
from rlbench.datasets.types import Recorded
from rlbench.errors import RefusedFile, UsageError

MOST_THREADS = 4  # zlib lets go of the interpreter; beyond this the disk and memory are the limit


class Part(NamedTuple):
    """A piece where it stands in the order of reading."""

    path: Path
    number: int  # of the place in its file
    track: tuple[str, int]  # of which source, and which there
    steps: Steps


def is_frames(path: Path) -> bool:
    """Whether a folder is a set of recorded play, finished or not."""
    return path.suffix == SUFFIX and path.is_dir() and (finished(path) or any(path.glob("*.segment")))


def finished(path: Path) -> bool:
    """Whether the folder says of itself that it is whole."""
    return (path / CONTENTS).is_file()


def read(path: Path, steps: int | None = None, *, room: int | None = None) -> Recorded:
    """A set as ``Recorded`` with single frames of at most ``room`` bytes, or its first ``steps`` transitions.

    Raises:
        UsageError: there is no such set, it is shorter, or it takes more room.
        RefusedFile: a file is missing, damaged or another one than the set was made of; the message names it.
    """
    parts = _parts(path)
    events = _cut(_closed(parts), steps, path)
    rows, first = len(events.marks), recording_format.read(parts[0].path)
    _fits(rows, first, room)
    try:
        obs = np.empty((rows, *first.shape), np.dtype(first.dtype.str))
    except MemoryError:
        raise _too_many(rows, first) from None
    wanted: dict[Path, list[tuple[int, Frames]]] = {}
    at = 0
    for part in parts:
        if at < rows:
            wanted.setdefault(part.path, []).append((part.number, obs[at : at + len(part.steps.marks)]))
        at += len(part.steps.marks)
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
        list(pool.map(lambda item: _filled(*item), wanted.items()))
    return Recorded(
        obs=obs,
        action=events.action.astype(np.dtype(events.action.dtype.str)),
        reward=events.reward,
        terminated=(events.marks & TERMINATED) > 0,
        truncated=(events.marks & TRUNCATED) > 0,
        next_obs=None,
        final=events.final,
    )


def outline(path: Path) -> Steps:
    """What happened, without what was seen: the rows of ``read`` at a hundredth of its cost."""
    return _closed(_parts(path))


def verify(path: Path) -> None:
    """Unpack every frame once.

    Raises:
        RefusedFile: a file is missing, damaged or another one than the set was made of; the message names it.
    """
    for file in sorted({part.path for part in _parts(path)}):
        for piece in pieces(recording_format.read(file)):
            del piece


def pieces(segment: Segment) -> Iterator[Piece]:
    """All that is in a file."""
    for place in segment.places:
        obs: Frames = np.empty((place.rows, *segment.shape), segment.dtype)
        segment.fill(place, obs)
        yield Piece(place.track, obs, segment.steps(place))


def told(path: Path) -> dict[str, object]:
    """What a set says of itself."""
    found = recording_writer.contents(path)
    return {"state": "unfinished"} if found is None else found[1]


def subset(path: Path, target: Path, steps: int) -> None:
    """The first ``steps`` transitions of a set as one of their own, in place of what is at ``target``.

    Raises:
        UsageError: the set is shorter.
    """
    parts = _parts(path)
    events = _cut(_closed(parts), steps, path)
    recording_writer.clear(target)
    source, at = recording_writer.RecordingWriter(target), 0
    opened: tuple[Path, Segment] | None = None
    tracks: dict[tuple[str, int], int] = {}
    for part in parts:
        if at >= len(events.marks):
            break
        if opened is None or opened[0] != part.path:
            opened = part.path, recording_format.read(part.path)
        place = opened[1].places[part.number]
        rows = min(len(part.steps.marks), len(events.marks) - at)
        obs: Frames = np.empty((rows, *opened[1].shape), opened[1].dtype)
        opened[1].fill(place, obs)
        source.add(Piece(tracks.setdefault(part.track, len(tracks)), obs, events.rows(at, at + rows)))
        at += rows
    source.flush()
    kept = {key: value for key, value in told(path).items() if not key.startswith(("episodes", "return_", "state"))}
    own = {"name": target.name.removesuffix(SUFFIX), "subset_of": path.name.removesuffix(SUFFIX), "steps": steps}
    recording_writer.finish(target, source.written, {**kept, **own})


def _parts(path: Path) -> list[Part]:
    """Every piece in the order of reading, without its frames."""
    found = recording_writer.contents(path)
    names = sorted(file.name for file in path.glob("*.segment")) if found is None else list(found[0])
    if not names:
        raise UsageError(f"{path}: holds no recorded play; check the path")
    parts: list[Part] = []
    frame: tuple[object, object] | None = None
    for name in names:
        segment = recording_format.read(path / name)
        frame = frame or (segment.shape, segment.dtype)
        if frame != (segment.shape, segment.dtype):
            raise RefusedFile(f"{segment.path}: shows {segment.dtype} {list(segment.shape)}, the files before others")
        if found is not None and segment.sha256 != found[0][name]:
            raise RefusedFile(f"{path / name}: is not the file that the set was made of; restore it")
        source = name.split(".")[0]
        for number, place in enumerate(segment.places):
            parts.append(Part(segment.path, number, (source, place.track), segment.steps(place)))
    return _tidied(sorted(parts, key=lambda part: (part.track, part.path)))


def _tidied(parts: Sequence[Part]) -> list[Part]:
    """Without the last rows of a track that no transition leads to: those that a killed process had just begun with."""
    found: list[Part] = []
    for _, own in groupby(parts, key=lambda part: part.track):
        track = list(own)
        marks = np.concatenate([[FINAL], *(part.steps.marks for part in track)])
        (reached,) = np.nonzero(marks[:-1] & FINAL == 0)  # rows behind which another one shows where they led
        left = int(reached[-1]) + 1 if len(reached) else 0
        for part in track:
            rows = min(left, len(part.steps.marks))
            if rows:
                found.append(part._replace(steps=part.steps.rows(0, rows)))
            left -= rows
    return found


def _closed(parts: Sequence[Part]) -> Steps:
    """All that happened; a track that was left open ends where it was left."""
    if not parts:
        raise UsageError("recorded play: not one transition; it was broken off before its second row")
    events = Steps(*(np.concatenate(column) for column in zip(*(part.steps for part in parts), strict=True)))
    marks, ends = events.marks.copy(), np.cumsum([len(part.steps.marks) for part in parts])
    for part, after, end in zip(parts, [*parts[1:], None], ends, strict=True):
        if after is None or after.track != part.track:
            _end(marks, int(end) - 1)
    return _blank(events, marks)


def _cut(events: Steps, steps: int | None, path: Path) -> Steps:
    """The rows of the first ``steps`` transitions, and the one behind them."""
    if steps is None:
        return events
    (live,) = np.nonzero(~events.final)
    if not 0 < steps <= len(live):
        raise UsageError(f"{path}: holds {len(live):,} transitions, {steps:,} were asked for; ask for fewer")
    rows = int(live[steps - 1]) + 2
    marks = events.marks[:rows].copy()
    _end(marks, rows - 1)
    return _blank(events.rows(0, rows), marks)


def _end(marks: NDArray[np.uint8], row: int) -> None:
    """Let a row only show what the one before it led to."""
    if not marks[row] & FINAL:
        marks[row], marks[row - 1] = FINAL, marks[row - 1] or TRUNCATED


def _blank(events: Steps, marks: NDArray[np.uint8]) -> Steps:
    """No action and no reward where none was taken."""
    live = (marks & FINAL) == 0
    return Steps(events.action * live, events.reward * live, marks)


def _fits(rows: int, like: Segment, room: int | None) -> None:
    if room is not None and rows * prod(like.shape) * like.dtype.itemsize > room:
        raise _too_many(rows, like)


def _too_many(rows: int, like: Segment) -> UsageError:
    remedy = "take a part of them with rlbench data subset"
    return UsageError(f"{like.path.parent}: {rows:,} frames are more than fit into memory; {remedy}")


def _filled(path: Path, wanted: Sequence[tuple[int, Frames]]) -> None:
    """Every piece of a file to where it belongs."""
    segment = recording_format.read(path)
    for number, out in wanted:
        segment.fill(segment.places[number], out)
