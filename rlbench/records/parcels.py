"""A run's record as bytes, for machines that share no folder: packed where it was made, unpacked where it belongs.

What arrives is read by the store's own rules before it replaces anything, and only files of known names are taken.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rlbench import disk, faults
from rlbench.config.run import Spec
from rlbench.errors import RefusedFile
from rlbench.records import files
from rlbench.records.attempts import LOG
from rlbench.records.locks import Claim
from rlbench.records.store import read

RECORD = ("spec.json", "epochs.jsonl", "outcome.json")
STATES = ("resume", "best", "last")
"""Checkpoints by what they are for."""

KNOWN = re.compile(r"manifest\.json|tensors-\d{3,6}\.safetensors")


@dataclass(frozen=True, kw_only=True, slots=True)
class Parcel:
    """The record of a run as it stands, and those of its checkpoints that are new to who receives it."""

    record: Mapping[str, bytes]
    states: Mapping[str, Mapping[str, bytes]]  # by what they are for; whole
    present: tuple[str, ...]  # checkpoints that exist; all others are gone


def pack(folder: Path, known: Mapping[str, bytes] | None = None) -> Parcel:
    """What lies in a run's folder; ``known`` is the manifests of checkpoints that need not be sent again.

    Checkpoints and outcome are read before the epochs, so that neither counts more epochs than come with it.
    """
    seals = known or {}
    states, present = {}, []
    for name in STATES:
        state = _state(folder / "checkpoint" / name)
        if state is not None:
            present.append(name)
            if seals.get(name) != state["manifest.json"]:
                states[name] = state
    record = {name: found for name in (*reversed(RECORD), LOG) if (found := _bytes(folder / name)) is not None}
    if "epochs.jsonl" in record:  # what is being written right now is not part of it yet
        whole, newline, _ = record["epochs.jsonl"].rpartition(b"\n")
        record["epochs.jsonl"] = whole + newline
    return Parcel(record=record, states=states, present=tuple(present))


def unpack(parcel: Parcel, folder: Path, spec: Spec) -> None:
    """Put a record where it belongs; the caller holds the folder.

    Raises:
        RefusedFile: it is no whole record of this run.
    """
    odd = [name for name in parcel.record if name not in {*RECORD, LOG}]
    odd += [name for state in parcel.states.values() for name in state if not KNOWN.fullmatch(name)]
    odd += [name for name in (*parcel.states, *parcel.present) if name not in STATES]
    if odd:
        raise RefusedFile(f"{folder}: was sent {odd[0]!r}, which is no part of a record")
    fresh = folder / f".parcel.{os.getpid()}.tmp"
    with files.writing(folder):
        for left in folder.glob(".parcel.*.tmp"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
            faults.point("parcel.swept")
        try:
            fresh.mkdir(parents=True)
            _write(fresh, parcel.record)
            if read(fresh).spec != spec:
                raise RefusedFile(f"{folder}: was sent the record of another run")
            for name, state in parcel.states.items():
                _write(fresh / name, state)
            _put(fresh, folder, parcel)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def claimed(folder: Path, results: Path) -> Iterator[bool]:
    """Hold a run's folder below ``results`` for a run that is made elsewhere; False while another process holds it.

    Raises:
        RefusedFile: it is reached by a link, or holds one.
    """
    files.refuse_links(folder, results)
    folder.mkdir(parents=True, exist_ok=True)
    faults.point("claimed.made")
    claim = Claim(folder)
    if not claim.acquire():
        yield False
        return
    try:
        yield True
    finally:
        claim.release()


@contextmanager
def signposted(results: Path) -> Iterator[str]:
    """The name of a file below ``results`` by which another machine can tell that it sees the same folder."""
    name = f".sweep-{uuid.uuid4().hex}"
    results.mkdir(parents=True, exist_ok=True)
    (results / name).touch()
    faults.point("signpost.made")
    try:
        yield name
    finally:
        (results / name).unlink(missing_ok=True)


def _put(fresh: Path, folder: Path, parcel: Parcel) -> None:
    """Epochs before the checkpoint that counts them, and never an outcome that counts other epochs."""
    if "outcome.json" not in parcel.record:
        (folder / "outcome.json").unlink(missing_ok=True)
    for name in ("spec.json", "epochs.jsonl", LOG):
        if name in parcel.record:
            (fresh / name).replace(folder / name)
            faults.point("parcel.placed")
    for name in parcel.states:
        _swap(fresh / name, folder / "checkpoint" / name)
    for name in STATES:
        if name not in parcel.present:
            shutil.rmtree(folder / "checkpoint" / name, ignore_errors=True)
            faults.point("parcel.cleared")
    if "outcome.json" in parcel.record:
        (fresh / "outcome.json").replace(folder / "outcome.json")
    disk.sync_folder(folder)


def _swap(fresh: Path, place: Path) -> None:
    """Put a checkpoint in its place; who reads it next finishes what a crash cut in two (``checkpoint.recover``)."""
    place.parent.mkdir(exist_ok=True)
    old = place.with_name(f".{place.name}.old")
    if place.is_dir():
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
        faults.point("parcel.out")
    fresh.rename(place)
    faults.point("parcel.in")
    disk.sync_folder(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        with (folder / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        faults.point("parcel.written")


def _state(folder: Path) -> dict[str, bytes] | None:
    """A checkpoint that was whole while it was read; None where there is none, or one is just being replaced."""
    with suppress(OSError, RefusedFile):
        files.refuse_link(folder.parent)
        files.refuse_link(folder)
        seal = _bytes(folder / "manifest.json")
        shards = {path.name: _bytes(path) for path in folder.iterdir() if KNOWN.fullmatch(path.name)}
        state = {name: content for name, content in shards.items() if content is not None}
        if seal is not None and len(state) == len(shards) and seal == _bytes(folder / "manifest.json"):
            return {**state, "manifest.json": seal}
    return None


def _bytes(path: Path) -> bytes | None:
    try:
        with files.opened(path) as file:
            return file.read()
    except (OSError, RefusedFile):
        return None
