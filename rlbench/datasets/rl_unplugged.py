"""RL Unplugged's Atari shards: gzipped TFRecords of single transitions, each with both stacks of four frames as PNG.

Shards hold shuffled transitions. A transition follows another of the same episode if its stack and action are the next
stack and next action of the other one; in this order each frame is stored once. The frames of a first stack in mid-game
precede its line; a line that ends in mid-game is truncated. Rewards are those of the shards, clipped to [−1, 1].
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rlbench.config.footprint import size_text
from rlbench.datasets.recording_format import FINAL, TERMINATED, TRUNCATED
from rlbench.datasets.recording_writer import RecordingWriter, row
from rlbench.datasets.tfrecord import Example, example, records
from rlbench.errors import RefusedFile, RlbenchError

SIZE: Final = 84
STACK: Final = 4
ACTIONS: Final = 18
RECORD: Final = 500  # bytes of memory for a record and its place in a line, without its frames; 425 were measured
FRAME: Final = 400  # the same of a frame, without its PNG; 357 were measured
HEAD: Final = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + SIZE.to_bytes(4, "big") * 2 + b"\x08\0"  # 84×84, 8 bits, grey
KEYS: Final = {"o_t": bytes, "o_tp1": bytes, "a_t": int, "a_tp1": int, "r_t": float, "d_t": float, "episode_id": int}


@dataclass(slots=True)
class Shard:
    """Records of a shard in its order, with every frame once as PNG."""

    path: Path
    memory: int = 0  # bytes, about
    png_ids: dict[bytes, int] = field(default_factory=dict)  # index of each PNG
    pngs: list[bytes] = field(default_factory=list)
    first: list[int] = field(default_factory=list)  # offset of the first record with each PNG
    stacks: list[tuple[int, ...]] = field(default_factory=list)  # [N] stacks, oldest frame first
    next_stacks: list[tuple[int, ...]] = field(default_factory=list)  # [N]
    action: list[int] = field(default_factory=list)  # [N]
    next_action: list[int] = field(default_factory=list)  # [N]
    reward: list[float] = field(default_factory=list)  # [N]
    terminated: list[bool] = field(default_factory=list)  # [N]
    episode: list[int] = field(default_factory=list)  # [N]

    def add(self, at: int, record: Example) -> None:
        """Add the record at byte ``at``.

        Raises:
            ValueError: a key is missing, or has another type.
        """
        for key, kind in KEYS.items():
            count = STACK if kind is bytes else 1
            values = record.get(key)
            if values is None or len(values) != count or not isinstance(values[0], kind):
                raise ValueError(
                    f"{key}: {count} of {kind.__name__} were expected; this is no shard of RL Unplugged's Atari"
                )
        scalars = {key: record[key][0] for key, kind in KEYS.items() if kind is not bytes}
        if not 0 <= int(scalars["a_t"]) < ACTIONS:
            raise ValueError(f"a_t: {scalars['a_t']!r} is no action of Atari, which has {ACTIONS}")
        if not isfinite(float(scalars["r_t"])):
            raise ValueError(f"r_t: {scalars['r_t']!r} is no reward")
        if not 0 <= float(scalars["d_t"]) <= 1:
            raise ValueError(f"d_t: {scalars['d_t']!r} is no discount")
        self.memory += RECORD
        self.stacks.append(tuple(self._frame(at, "o_t", png) for png in record["o_t"]))
        self.next_stacks.append(tuple(self._frame(at, "o_tp1", png) for png in record["o_tp1"]))
        self.action.append(int(scalars["a_t"]))
        self.next_action.append(int(scalars["a_tp1"]))
        self.reward.append(float(scalars["r_t"]))
        self.terminated.append(float(scalars["d_t"]) == 0)
        self.episode.append(int(scalars["episode_id"]))

    def trajectories(self) -> list[list[int]]:
        """Records in the order of play, each in one line; lines in the order of their first record in the shard."""
        after = self._successors()
        followers = set(after.values())
        lines = []
        for begin in [*(i for i in range(len(self.stacks)) if i not in followers), *range(len(self.stacks))]:
            line, here = [], begin
            while here in after:  # each is removed as it is visited, which also cuts cycles
                line.append(here)
                here = after.pop(here)
            if line:
                lines.append(line)
        return sorted(lines)

    def frame(self, number: int) -> NDArray[np.uint8]:
        """Decode a frame, ``[84, 84]``."""
        try:
            with Image.open(BytesIO(self.pngs[number]), formats=("PNG",)) as image:
                frame = np.asarray(image, np.uint8)
        except (MemoryError, RlbenchError):  # of this machine, or a signal
            raise
        except Exception as error:  # noqa: BLE001 - the decoders of Pillow's chunks each raise their own
            raise _refusal(self.path, self.first[number], f"a damaged PNG ({error})") from None
        if frame.shape != (SIZE, SIZE):
            raise _refusal(self.path, self.first[number], "a damaged PNG (a second header)")
        return frame

    def _successors(self) -> dict[int, int]:
        """Successor of each record, −1 without one; of several that fit, the next one in the shard."""
        begins: dict[tuple[object, ...], list[int]] = {}
        ends: dict[tuple[object, ...], list[int]] = {}
        for i, stack in enumerate(self.stacks):
            begins.setdefault((self.episode[i], self.action[i], stack), []).append(i)
            if not self.terminated[i]:
                ends.setdefault((self.episode[i], self.next_action[i], self.next_stacks[i]), []).append(i)
        after = dict.fromkeys(range(len(self.stacks)), -1)
        for key, records_of_key in ends.items():
            later, earlier = deque(begins.get(key, ())), deque[int]()
            for i in records_of_key:
                while later and later[0] <= i:
                    earlier.append(later.popleft())
                fitting = later or earlier
                if fitting and fitting[0] != i:  # the first of the earlier may be itself
                    after[i] = fitting.popleft()
        return after

    def _frame(self, at: int, key: str, png: bytes | float) -> int:
        if not isinstance(png, bytes) or png[: len(HEAD)] != HEAD:
            raise ValueError(f"{key}: no grey PNG of {SIZE}×{SIZE}")
        if png not in self.png_ids:
            self.png_ids[png] = len(self.pngs)
            self.pngs.append(png)
            self.memory += FRAME + len(png)
            self.first.append(at)
        return self.png_ids[png]


def read_shard(path: Path, max_bytes: int | None = None) -> Shard:
    """Read a whole shard into at most ``max_bytes`` of memory.

    Raises:
        RefusedFile: it is damaged, too large or of another content; the message names the record by its byte.
    """
    shard = Shard(path)
    for at, raw in records(path):
        try:
            shard.add(at, example(raw))
        except ValueError as error:
            raise _refusal(path, at, str(error)) from None
        if max_bytes is not None and shard.memory > max_bytes:
            problem = f"with it the shard takes {size_text(shard.memory)} of memory, {size_text(max_bytes)} are free"
            raise _refusal(path, at, f"{problem}; use fewer --workers, or a larger machine")
    if not shard.stacks:
        raise RefusedFile(f"{path}: holds no record; download the shard again")
    return shard


def convert_shard(path: Path, writer: RecordingWriter, *, max_bytes: int | None = None) -> dict[str, int]:
    """Convert a shard to one track within ``max_bytes`` of memory, and return its counts.

    Raises:
        RefusedFile: as ``read_shard``.
    """
    shard, leading = read_shard(path, max_bytes), 0
    lines = shard.trajectories()
    for line in lines:
        before = [shard.frame(number) for number in shard.stacks[line[0]][:-1]]
        while before and not before[0].any():  # the first stack of an episode is padded with black frames
            before.pop(0)
        leading += len(before)
        for frame in before:
            writer.add(row(0, frame, 0, 0.0, FINAL))
        last = line[-1]
        for i in line:
            flags = 0 if i != last else TERMINATED if shard.terminated[i] else TRUNCATED
            writer.add(row(0, shard.frame(shard.stacks[i][-1]), shard.action[i], shard.reward[i], flags))
        writer.add(row(0, shard.frame(shard.next_stacks[last][-1]), 0, 0.0, FINAL))
    writer.flush()
    episodes = len(set(shard.episode))
    return {"transitions": len(shard.stacks), "lines": len(lines), "leading": leading, "episodes": episodes}


def _refusal(path: Path, at: int, reason: str) -> RefusedFile:
    return RefusedFile(f"{path}: record at byte {at:,}: {reason}")
