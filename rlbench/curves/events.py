"""Curves in TensorBoard's event files: one tag, by default that of tianshou, Stable-Baselines3 or CleanRL."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from rlbench.curves.delimited import kind_of
from rlbench.curves.points import Label, Points, listing
from rlbench.datasets.tfrecord import masked_crc
from rlbench.errors import RefusedFile

RECORD: Final = 2**26  # bytes
TAGS: Final = (
    "test/reward",  # tianshou 1
    "test/returns_stat/mean",  # tianshou 2
    "eval/mean_reward",  # Stable-Baselines3
    "evaluation/return",  # rlbench
    "charts/episodic_return",  # CleanRL
    "rollout/ep_rew_mean",  # Stable-Baselines3
)
EPISODES: Final = {"charts/episodic_return": "charts/episodic_length"}


def scalars(raw: bytes, path: Path) -> dict[str, list[tuple[int, float]]]:
    """Step and value of every scalar, by tag.

    Raises:
        RefusedFile: the file is damaged; a record that is cut at the end is what a killed program leaves.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    points: dict[str, list[tuple[int, float]]] = {}
    for body in _records(raw, path):
        try:
            event = Event.FromString(body)
        except DecodeError:
            raise RefusedFile(f"{path}: holds what is no event of TensorBoard; restore it") from None
        for value in event.summary.value:
            if value.HasField("simple_value"):
                points.setdefault(value.tag, []).append((event.step, value.simple_value))
            elif value.tensor.float_val:
                points.setdefault(value.tag, []).append((event.step, value.tensor.float_val[0]))
            elif value.tensor.dtype == 1 and len(value.tensor.tensor_content) == 4:
                number = struct.unpack("<f", value.tensor.tensor_content)[0]
                points.setdefault(value.tag, []).append((event.step, number))
    return points


def curves(raw: bytes, path: Path, *, tag: str | None, label: Label) -> list[Points]:
    """The curve of a tag.

    Raises:
        RefusedFile: the file is damaged or lacks the tag; the message names those it has.
    """
    points = scalars(raw, path)
    selected_tag = tag or next((name for name in TAGS if name in points), None)
    if selected_tag is None or selected_tag not in points:
        have = f"has the tags {listing(points)}" if points else "holds no scalar"
        raise RefusedFile(f"{path}: {have}; name one with --tag")
    steps, returns = np.array(points[selected_tag]).T
    lengths = points.get(EPISODES.get(selected_tag, ""), [])
    return [
        Points(
            label=label,
            kind=kind_of(selected_tag),
            steps=steps,
            returns=returns,
            lengths=np.array([value for _, value in lengths]) if len(lengths) == len(steps) else None,
            episodes=selected_tag in EPISODES,
        )
    ]


def _records(raw: bytes, path: Path) -> Iterator[bytes]:
    """The bodies of TFRecord; both checksums of each are compared."""
    at = 0
    while at + 12 <= len(raw):
        size, check = struct.unpack_from("<QI", raw, at)
        if masked_crc(raw[at : at + 8]) != check:
            raise RefusedFile(f"{path}: damaged at byte {at:,} (the length's CRC-32C is wrong); restore it")
        if size > RECORD:
            raise RefusedFile(f"{path}: an event at byte {at:,} has {size:,} bytes, {RECORD:,} are allowed; thin it")
        body, end = raw[at + 12 : at + 12 + size], at + 16 + size
        if end > len(raw):
            return
        if masked_crc(body) != struct.unpack_from("<I", raw, end - 4)[0]:
            raise RefusedFile(f"{path}: damaged at byte {at:,} (its CRC-32C is wrong); restore it")
        yield body
        at = end
