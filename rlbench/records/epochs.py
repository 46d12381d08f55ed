"""Epochs of a record, one sealed line each in ``epochs.jsonl``; the sums that tie the files of an attempt together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from os.path import lexists
from pathlib import Path

from pydantic import TypeAdapter

from rlbench.errors import RefusedFile
from rlbench.records import files
from rlbench.records.types import Epoch, plain

_EPOCH = TypeAdapter(Epoch)


def read_epochs(folder: Path, *, complete: bool) -> tuple[Epoch, ...]:
    """Read the epochs in order; with ``complete`` a torn last line is refused, not dropped.

    Raises:
        RefusedFile: a line is damaged, newer, or out of order.
    """
    path = folder / "epochs.jsonl"
    if not lexists(path):
        return ()
    *lines, tail = files.read_text(path).split("\n")
    if tail and complete:
        raise RefusedFile(f"{path}: damaged (its last line is torn); restore it, or start over with --force")
    epochs: list[Epoch] = []
    for number, line in enumerate(lines):
        epoch = epoch_of(line, f"{path}:{number + 1}")
        if epoch.number != number:
            raise RefusedFile(f"{path}:{number + 1}: epoch {epoch.number} where {number} was due; restore it")
        if epochs and min(epoch.env_steps - epochs[-1].env_steps, epoch.updates - epochs[-1].updates) < 0:
            raise RefusedFile(f"{path}:{number + 1}: counts fewer steps than the epoch before; restore it")
        epochs.append(epoch)
    return tuple(epochs)


def environment_sums(metadata: Mapping[str, object]) -> tuple[str, ...]:
    """SHA-256 of the environments of a record's first process, of its first two, and so on."""
    later = metadata.get("resumed", [])
    total, sums = sha256(), list[str]()
    for environment in (metadata.get("environment"), *(later if isinstance(later, list) else ())):
        total.update(json.dumps(environment, sort_keys=True).encode() + b"\n")
        sums.append(total.hexdigest())
    return tuple(sums)


def read_epoch_sums(folder: Path, count: int) -> tuple[str, ...]:
    """SHA-256 of no epoch, of the first, of the first two, up to ``count``; no other attempt has their seconds.

    Raises:
        RefusedFile: the file cannot be read.
    """
    path = folder / "epochs.jsonl"
    total = sha256()
    sums = [total.hexdigest()]
    for line in files.read_text(path).split("\n")[:count] if count else ():
        total.update(line.rstrip("\r").encode())  # git may end lines in CRLF
        sums.append(total.hexdigest())
    return tuple(sums)


def line_of(epoch: Epoch) -> str:
    """Format an epoch as a line of ``epochs.jsonl``."""
    return files.seal(plain(epoch))


def epoch_of(line: str, where: str) -> Epoch:
    """Parse a line of ``epochs.jsonl``; ``where`` names its place in messages.

    Raises:
        RefusedFile: it is damaged.
    """
    with files.validating(where, "a record"):
        epoch = _EPOCH.validate_json(files.unsealed_json(line, where), strict=True)
    games = [part for part in (epoch.collected, epoch.evaluated) if part is not None]
    if any(len(part.returns) != len(part.lengths) for part in games):
        raise RefusedFile(f"{where}: not a record of this schema (returns without lengths); restore it")
    return epoch


def scores(epoch: Epoch) -> tuple[object, ...]:
    """Everything of an epoch that training it again repeats: all but the wall clock."""
    games = epoch.collected and (epoch.collected.returns, epoch.collected.lengths)
    evaluation = epoch.evaluated and (epoch.evaluated.returns, epoch.evaluated.lengths, epoch.evaluated.seeds)
    return epoch.number, epoch.env_steps, epoch.updates, games, epoch.updated, evaluation
