"""``rlbench data import rlu FILE…`` and ``dqn-replay FOLDER``: published recordings of Atari episodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlbench.cli.output import emit, remark
from rlbench.errors import RefusedFile, UsageError

if TYPE_CHECKING:
    from rlbench.datasets.shard_conversion import Conversion

KINDS: Final = ("rlu", "dqn-replay")
SHARD: Final = 10**9
"""Bytes of memory that converting a shard takes: its compressed frames, and the new file."""


def assembled(kind: str, paths: list[Path], name: str | None, task: str | None, workers: int | None) -> None:
    """Convert shards of one kind into the data set ``name``, with a line for each; of one ``task``, if given."""
    from rlbench import suites
    from rlbench.datasets import dqn_replay, locations, recording_writer, rl_unplugged, shard_conversion
    from rlbench.datasets.recipes import own
    from rlbench.records.machine import available_memory

    if not paths or name is None:
        raise UsageError(f"{kind}: say which files, and what the set is called: --name rlb-…")
    own(name)
    if task is not None:
        suites.spec("atari", "dqn", task)  # raises for an unknown game
    folder = locations.folder("own") / f"{name}{recording_writer.SUFFIX}"
    if folder.is_dir() and any(folder.glob("play.*.segment")):
        raise UsageError(f"{folder}: is recorded play of one's own; choose another --name")
    convert = rl_unplugged.convert
    if kind == "dqn-replay":
        if len(paths) != 1:
            raise UsageError("dqn-replay: give one folder, replay_logs")
        paths, convert = dqn_replay.logs(paths[0]), dqn_replay.convert
    origin = {"rlu": "RL Unplugged; rewards clipped to [−1, 1], sticky actions", "dqn-replay": "DQN-replay logs"}[kind]
    refused = 0
    count = workers or max(1, min(os.cpu_count() or 1, available_memory() // SHARD))
    files = shard_conversion.convert_shards(paths, folder, convert, workers=count, origin=origin, task=task)
    for number, brought in enumerate(files, 1):
        remark(f"{number} of {len(paths)}: {_spoken(brought)}")
        refused += brought.refused is not None
    if refused < len(paths):
        emit(str(folder))
    if refused:
        raise RefusedFile(f"{name}: {refused} of {len(paths)} files were refused, see above; the others are kept")


def _spoken(brought: Conversion) -> str:
    if brought.refused is not None:
        return brought.refused
    counts = ", ".join(f"{count:,} {what}" for what, count in brought.counts.items())
    return f"{brought.path.name}: {counts}{', done before' if brought.before else ''}"
