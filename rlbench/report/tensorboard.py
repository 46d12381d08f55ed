"""Records as curves for other people's boards: what of an epoch is a point, and TensorBoard's files made of them.

A file is a function of the record alone, so making it again gives the same bytes, and following a run is bringing its
file up to date. The wall clock in it is the run's own: seconds since it began, over all attempts.
"""

from __future__ import annotations

import math
import os
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
    """Everything about an epoch that is a finite number, by the name of its curve."""
    found: dict[str, float] = {"progress/env_steps": epoch.env_steps, "progress/updates": epoch.updates}
    found["progress/seconds"] = epoch.seconds
    if epoch.evaluated is not None:
        found |= _games("evaluation", epoch.evaluated.returns, epoch.evaluated.lengths)
    if epoch.collected is not None:
        found["training/steps_per_second"] = epoch.collected.steps_per_second
        found["training/episodes"] = epoch.collected.episodes
        found |= _games("training", epoch.collected.returns, epoch.collected.lengths)
    if epoch.updated is not None:
        found["learning/count"] = epoch.updated.count
        found |= {f"learning/{name}": mean for name, mean in epoch.updated.means.items()}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def _games(part: str, returns: Sequence[float], lengths: Sequence[int]) -> dict[str, float]:
    if not returns:
        return {}
    found = {"return": fmean(returns), "return_std": pstdev(returns), "return_min": min(returns)}
    found |= {"return_max": max(returns), "length": fmean(lengths)}
    return {f"{part}/{name}": value for name, value in found.items()}


def events(epochs: Sequence[Epoch]) -> bytes:
    """A file of TensorBoard's, whole: more epochs only make it longer."""
    from tensorboard.compat.proto.event_pb2 import Event

    made = [Event(file_version="brain.Event:2")]
    for epoch in epochs:
        event = Event(wall_time=epoch.seconds, step=epoch.steps)
        for name, value in points(epoch).items():
            event.summary.value.add(tag=name, simple_value=value)
        made.append(event)
    return b"".join(_framed(event.SerializeToString(deterministic=True)) for event in made)


def _framed(data: bytes) -> bytes:
    """A record as TFRecord frames it."""
    from rlbench.datasets.tfrecord import masked_crc

    size = struct.pack("<Q", len(data))
    return size + struct.pack("<I", masked_crc(size)) + data + struct.pack("<I", masked_crc(data))


def bring_up(path: Path, content: bytes) -> bool:
    """Have a file hold ``content``: what it lacks is appended, what is something else is replaced; whether it changed.

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
        disk.replace(path, content, path.with_name(f".{path.name}.{os.getpid()}.tmp"))
    except PermissionError as error:
        raise UsageError(f"{error.filename}: cannot be written; choose another folder") from None
    except OSError as error:
        raise ResourceExhausted(f"{path}: {error.strerror}; free some space, or choose another folder") from None
    return True
