"""Convert records into TensorBoard's event files.

A file is a function of the record alone, so writing it again gives the same bytes, and tracking a run means updating
its file. Its wall time is in seconds since the run began, over all attempts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev

from rlbench import disk
from rlbench.errors import ResourceExhausted, UsageError
from rlbench.records.types import Epoch

FILE = "events.out.tfevents.0.rlbench"
"""TensorBoard knows its files by the second and third word."""


def points(epoch: Epoch) -> dict[str, float]:
    """The finite numbers of an epoch by the names of their curves."""
    values: dict[str, float] = {"progress/env_steps": epoch.env_steps, "progress/updates": epoch.updates}
    values["progress/seconds"] = epoch.seconds
    if epoch.evaluated is not None:
        values |= _games("evaluation", epoch.evaluated.returns, epoch.evaluated.lengths)
    if epoch.collected is not None:
        values["training/steps_per_second"] = epoch.collected.steps_per_second
        values["training/episodes"] = epoch.collected.episodes
        values |= _games("training", epoch.collected.returns, epoch.collected.lengths)
    if epoch.updated is not None:
        values["learning/count"] = epoch.updated.count
        values |= {f"learning/{name}": mean for name, mean in epoch.updated.means.items()}
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def _games(part: str, returns: Sequence[float], lengths: Sequence[int]) -> dict[str, float]:
    if not returns:
        return {}
    values = {"return": fmean(returns), "return_std": pstdev(returns), "return_min": min(returns)}
    values |= {"return_max": max(returns), "length": fmean(lengths)}
    return {f"{part}/{name}": value for name, value in values.items()}


def events(epochs: Sequence[Epoch]) -> bytes:
    """The whole event file; later epochs only append to it."""
    from tensorboard.compat.proto.event_pb2 import Event

    events_list = [Event(file_version="brain.Event:2")]
    for epoch in epochs:
        event = Event(wall_time=epoch.seconds, step=epoch.steps)
        for name, value in points(epoch).items():
            event.summary.value.add(tag=name, simple_value=value)
        events_list.append(event)
    return b"".join(_framed(event.SerializeToString(deterministic=True)) for event in events_list)


def _framed(data: bytes) -> bytes:
    from rlbench.datasets.tfrecord import masked_crc

    size = struct.pack("<Q", len(data))
    return size + struct.pack("<I", masked_crc(size)) + data + struct.pack("<I", masked_crc(data))


def bring_up(path: Path, content: bytes) -> bool:
    """Bring a file to ``content`` by appending to it or replacing it; return whether it changed.

    Raises:
        UsageError: it cannot be written.
        RefusedFile: it is a link, a special file, or has a second name.
        ResourceExhausted: the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = None
        if path.exists():
            with disk.open_regular(path) as file:
                held = file.read(len(content) + 1)
        if held == content:
            return False
        if held is not None and content.startswith(held):
            with disk.open_append(path) as file:
                file.write(content[len(held) :])
            return True
        disk.replace(path, content, disk.temporary_of(path.with_name(f".{path.name}")))
    except PermissionError as error:
        raise UsageError(f"{error.filename}: cannot be written; choose another folder") from None
    except OSError as error:
        raise ResourceExhausted(f"{path}: {error.strerror}; free some space, or choose another folder") from None
    return True
