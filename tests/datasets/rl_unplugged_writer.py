"""Shards of RL Unplugged in their real layout, by a writer that shares nothing with the reader.

TensorBoard frames the records and knows CRC-32C, the Examples are encoded by hand, OpenCV encodes the PNGs.
"""

import gzip
import io
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from tensorboard.summary.writer.record_writer import RecordWriter

SIZE = 84


class Transition(NamedTuple):
    """A record."""

    o_t: Sequence[np.ndarray]
    a_t: int
    r_t: float
    d_t: float
    o_tp1: Sequence[np.ndarray]
    a_tp1: int
    episode_id: int


def frame_of(number: int) -> np.ndarray:
    """A frame that nobody confuses with another; 0 is black."""
    return np.random.default_rng(number).integers(0, 2, (SIZE, SIZE), np.uint8) * np.uint8(number % 255)


def episode(number: int, steps: int, *, ended: bool = True) -> list[Transition]:
    """One from its beginning: black frames fill the stack, rewards and actions go round."""
    frames = [np.zeros((SIZE, SIZE), np.uint8)] * 3 + [frame_of(1000 * number + k + 1) for k in range(steps + 1)]

    def step(k: int) -> Transition:
        discount = 0.0 if ended and k == steps - 1 else 1.0
        reward, after = float(k % 3 - 1), frames[k + 1 : k + 5]
        return Transition(frames[k : k + 4], k % 6, reward, discount, after, (k + 1) % 6, number - 2**63)

    return [step(k) for k in range(steps)]


def features_of(at: Transition) -> dict[str, object]:
    stacks = {key: [png(f) for f in getattr(at, key)] for key in ("o_t", "o_tp1")}
    return stacks | {key: [getattr(at, key)] for key in ("a_t", "a_tp1", "r_t", "d_t", "episode_id")}


def shard(path: Path, transitions: Iterable[Transition], **changes: object) -> Path:
    """A gzipped TFRecord of them; ``changes`` replace their features, None leaves one out."""
    raw = io.BytesIO()
    writer = RecordWriter(raw)
    for at in transitions:
        writer.write(example({**features_of(at), "episode_return": [0.0], **changes}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(raw.getvalue(), 1))
    return path


def png(frame: np.ndarray) -> bytes:
    """OpenCV's."""
    return cv2.imencode(".png", frame)[1].tobytes()


def example(features: dict[str, object]) -> bytes:
    """A serialized ``tf.train.Example``: a map from names to lists, by protobuf's wire format."""
    lists = {name.encode(): _list(values) for name, values in features.items() if values is not None}
    return _field(1, b"".join(_field(1, _field(1, name) + _field(2, content)) for name, content in lists.items()))


def _list(values: Sequence[bytes] | Sequence[float]) -> bytes:
    match values[0]:
        case bytes():
            return _field(1, b"".join(_field(1, value) for value in values))
        case float():
            return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
        case _:
            return _field(3, _field(1, b"".join(_varint(value % 2**64) for value in values)))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    more = bytearray()
    while value > 127:
        more.append(value & 127 | 128)
        value >>= 7
    return bytes([*more, value])
