"""Shards of RL Unplugged in their real layout, by a writer that shares nothing with the reader.

TensorBoard frames the records and knows CRC-32C, protobuf encodes the Examples, OpenCV the PNGs.
"""

import gzip
import io
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
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
    """A serialized ``tf.train.Example``."""
    message_class = _message()()
    for key, values in features.items():
        if values is not None:
            entry = message_class.features.feature.add(key=key)
            kind = {bytes: "bytes_list", float: "float_list", int: "int64_list"}[type(values[0])]
            getattr(entry.value, kind).value.extend(values)
    return message_class.SerializeToString()


@cache
def _message() -> type:
    """``tf.train.Example``; its map is written as what a map is on the wire."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    fields = {
        "BytesList": [("value", 1, kinds.TYPE_BYTES, "", True)],
        "FloatList": [("value", 1, kinds.TYPE_FLOAT, "", True)],
        "Int64List": [("value", 1, kinds.TYPE_INT64, "", True)],
        "Feature": [
            ("bytes_list", 1, kinds.TYPE_MESSAGE, ".t.BytesList", False),
            ("float_list", 2, kinds.TYPE_MESSAGE, ".t.FloatList", False),
            ("int64_list", 3, kinds.TYPE_MESSAGE, ".t.Int64List", False),
        ],
        "Entry": [("key", 1, kinds.TYPE_STRING, "", False), ("value", 2, kinds.TYPE_MESSAGE, ".t.Feature", False)],
        "Features": [("feature", 1, kinds.TYPE_MESSAGE, ".t.Entry", True)],
        "Example": [("features", 1, kinds.TYPE_MESSAGE, ".t.Features", False)],
    }
    for name, rows in fields.items():
        message = file.message_type.add(name=name)
        for field, number, kind, of, is_list in rows:
            label = kinds.LABEL_REPEATED if is_list else kinds.LABEL_OPTIONAL
            message.field.add(name=field, number=number, type=kind, type_name=of or None, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))
