"""RL Unplugged's Atari shards: gzipped TFRecords of single transitions, each with both stacks of four frames as PNG.

A shard says of no record where it stands in its episode. Records are laid one behind the other where the stack that one
led to is the stack, and its next action the action, of another one of the same episode; then each frame is stored once.
Where a line begins in mid-game, what was seen before lies before it; where it ends there, it is cut. Rewards are as the
shards have them: clipped to [−1, 1].
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rlbench.datasets.recording_format import FINAL, TERMINATED, TRUNCATED, Piece, Steps
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.datasets.tfrecord import Example, example, records
from rlbench.errors import RefusedFile

SIZE: Final = 84
STACK: Final = 4
ACTIONS: Final = 18
ROWS: Final = 1_000  # unpacked in one go
HEAD: Final = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + SIZE.to_bytes(4, "big") * 2 + b"\x08\0"  # 84×84, 8 bits, grey
KEYS: Final = {"o_t": bytes, "o_tp1": bytes, "a_t": int, "a_tp1": int, "r_t": float, "d_t": float, "episode_id": int}


@dataclass(slots=True)
class Shard:
    """A shard's records in its order, every frame once and still packed."""

    path: Path
    number: dict[bytes, int] = field(default_factory=dict)  # of a PNG
    first: list[int] = field(default_factory=list)  # where the record begins that showed it first
    seen: list[tuple[int, ...]] = field(default_factory=list)  # [N] stacks, oldest frame first
    led_to: list[tuple[int, ...]] = field(default_factory=list)  # [N]
    action: list[int] = field(default_factory=list)  # [N]
    next_action: list[int] = field(default_factory=list)  # [N]
    reward: list[float] = field(default_factory=list)  # [N]
    over: list[bool] = field(default_factory=list)  # [N]
    episode: list[int] = field(default_factory=list)  # [N]

    def add(self, at: int, found: Example) -> None:
        """The record at byte ``at``.

        Raises:
            ValueError: a key is missing, or holds something else.
        """
        for key, kind in KEYS.items():
            count = STACK if kind is bytes else 1
            values = found.get(key)
            if values is None or len(values) != count or not isinstance(values[0], kind):
                raise ValueError(
                    f"{key}: {count} of {kind.__name__} were due; this is no shard of RL Unplugged's Atari"
                )
        scalars = {key: found[key][0] for key, kind in KEYS.items() if kind is not bytes}
        if not 0 <= int(scalars["a_t"]) < ACTIONS:
            raise ValueError(f"a_t: {scalars['a_t']!r} is no action of Atari, which has {ACTIONS}")
        if not isfinite(float(scalars["r_t"])):
            raise ValueError(f"r_t: {scalars['r_t']!r} is no reward")
        self.seen.append(tuple(self._frame(at, "o_t", png) for png in found["o_t"]))
        self.led_to.append(tuple(self._frame(at, "o_tp1", png) for png in found["o_tp1"]))
        self.action.append(int(scalars["a_t"]))
        self.next_action.append(int(scalars["a_tp1"]))
        self.reward.append(float(scalars["r_t"]))
        self.over.append(float(scalars["d_t"]) == 0)
        self.episode.append(int(scalars["episode_id"]))

    def lines(self) -> list[list[int]]:
        """Records in the order of play, every one in one line; lines in the order in which they begin in the shard."""
        after = self._followers()
        followers = set(after.values())
        lines = []
        for begin in [*(i for i in range(len(self.seen)) if i not in followers), *range(len(self.seen))]:
            line, here = [], begin
            while here in after:  # each is taken out as it is passed, so that what runs in a circle is cut too
                line.append(here)
                here = after.pop(here)
            if line:
                lines.append(line)
        return sorted(lines)

    def frames(self) -> Frames:
        """What unpacks its frames, each ``[84, 84]``."""
        return Frames(self.path, list(self.number), self.first)

    def _followers(self) -> dict[int, int]:
        """What follows on each record, −1 where nothing does: the next one in the shard where several fit."""
        begins: dict[tuple[object, ...], list[int]] = {}
        for i, stack in enumerate(self.seen):
            begins.setdefault((self.episode[i], self.action[i], stack), []).append(i)
        after: dict[int, int] = {}
        for i, stack in enumerate(self.led_to):
            fitting = [] if self.over[i] else begins.get((self.episode[i], self.next_action[i], stack), [])
            place = bisect_right(fitting, i)
            if place == len(fitting):  # none behind it: the first, unless that is itself
                place = 0 if fitting and fitting[0] != i else len(fitting)
            after[i] = fitting.pop(place) if place < len(fitting) else -1
        return after

    def _frame(self, at: int, key: str, png: bytes | float) -> int:
        """The number of a frame, a new one if it was not there."""
        if not isinstance(png, bytes) or png[: len(HEAD)] != HEAD:
            raise ValueError(f"{key}: no grey PNG of {SIZE}×{SIZE}")
        if png not in self.number:
            self.number[png] = len(self.number)
            self.first.append(at)
        return self.number[png]


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames by their numbers."""

    path: Path
    packed: list[bytes]
    first: list[int]

    def __call__(self, number: int) -> NDArray[np.uint8]:
        """``[84, 84]``."""
        try:
            with Image.open(BytesIO(self.packed[number]), formats=("PNG",)) as image:
                found = np.asarray(image, np.uint8)
        except (OSError, SyntaxError, ValueError) as error:
            raise _refused(self.path, self.first[number], f"a damaged PNG ({error})") from None
        return found


def gathered(path: Path) -> Shard:
    """A whole shard.

    Raises:
        RefusedFile: it is damaged or holds something else; the message names the record by its byte.
    """
    shard = Shard(path)
    for at, raw in records(path):
        try:
            shard.add(at, example(raw))
        except ValueError as error:
            raise _refused(path, at, str(error)) from None
    if not shard.seen:
        raise RefusedFile(f"{path}: holds no record; download the shard again")
    return shard


def converted(path: Path, film: RecordingWriter) -> dict[str, int]:
    """Put a shard on film, as one track; how much it was.

    Raises:
        RefusedFile: as ``gathered`` does.
    """
    shard, leading = gathered(path), 0
    frames, lines = shard.frames(), shard.lines()
    for line in lines:
        for piece in _pieces(shard, frames, line):
            leading += int(piece.steps.final[0]) * len(piece.obs) if piece.steps.final.all() else 0
            film.add(piece)
    film.flush()
    return {
        "transitions": len(shard.seen),
        "lines": len(lines),
        "leading": leading,
        "episodes": len(set(shard.episode)),
    }


def _pieces(shard: Shard, frames: Frames, line: list[int]) -> Iterator[Piece]:
    """A line's rows: what was seen before it, its records, and where it led to."""
    before = [frames(number) for number in shard.seen[line[0]][:-1]]
    while before and not before[0].any():  # the episode begins here, and black frames fill the stack
        before.pop(0)
    if before:
        yield Piece(0, np.stack(before), _nothing(len(before)))
    for start in range(0, len(line), ROWS):
        some = line[start : start + ROWS]
        marks = np.zeros(len(some) + 1, np.uint8)
        shown = [frames(shard.seen[i][-1]) for i in some]
        ended = start + len(some) == len(line)
        if ended:
            marks[-2:] = TERMINATED if shard.over[some[-1]] else TRUNCATED, FINAL
            shown.append(frames(shard.led_to[some[-1]][-1]))
        count, idle = len(shown), len(shown) - len(some)
        steps = Steps(
            np.array([*(shard.action[i] for i in some), *[0] * idle], np.int64),
            np.array([*(shard.reward[i] for i in some), *[0.0] * idle], np.float32),
            marks[:count],
        )
        yield Piece(0, np.stack(shown), steps)


def _nothing(rows: int) -> Steps:
    return Steps(np.zeros(rows, np.int64), np.zeros(rows, np.float32), np.full(rows, FINAL, np.uint8))


def _refused(path: Path, at: int, reason: str) -> RefusedFile:
    return RefusedFile(f"{path}: record at byte {at:,}: {reason}")
