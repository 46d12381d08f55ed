"""Many files from elsewhere to one set of recorded play: side by side, and what is done stays done.

Every source leaves ``<source>.done.json`` behind its files. The same call goes on where it was broken off; a call with
further files adds them. A file that is refused is named, and the others are kept.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeAlias

from rlbench import faults
from rlbench.datasets import checksums, recording_format, recording_writer
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.errors import RefusedFile, UsageError

Convert: TypeAlias = Callable[[Path, RecordingWriter], dict[str, int]]
"""Puts a file on film and says how much it was; refuses what is damaged."""

DONE = ".done.json"
SAFE_PATH: Final = "PYTHONSAFEPATH"
PR_SET_PDEATHSIG: Final = 1  # of Linux' prctl


@dataclass(frozen=True, slots=True)
class Done:
    """A source whose rows are on disk."""

    file: str
    size: int  # bytes of the file it was
    counts: dict[str, int]
    segments: dict[str, str]


@dataclass(frozen=True, slots=True)
class Conversion:
    """What became of a file."""

    path: Path
    counts: dict[str, int]  # of transitions, episodes and the like
    refused: str | None = None
    before: bool = False  # done by an earlier call


def convert_shards(
    files: Sequence[Path], folder: Path, convert: Convert, *, workers: int, origin: str, task: str | None = None
) -> Iterator[Conversion]:
    """Convert what is not yet there, and say at the end what the set is, and of which ``task`` if that is known.

    Raises:
        UsageError: a file is not there, two have one name, another process brings files there, or it is of another
            task.
    """
    sources = {_source(path): path for path in files}
    if len(sources) != len(files):
        raise UsageError(f"{folder.name}: two files have the same name; import them into two sets")
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise UsageError(f"{missing[0]}: no such file; check the path")
    with recording_writer.alone(folder):
        of, left = _of(folder, task), {}
        for source, path in sources.items():
            record = _record(folder, source)
            if record is not None and record.size == path.stat().st_size and _whole(folder, record):
                yield Conversion(path, record.counts, before=True)
            else:
                left[source] = path
        yield from _converted(left, folder, convert, workers)
        _finish(folder, {"origin": origin, **of})


def _converted(left: dict[str, Path], folder: Path, convert: Convert, workers: int) -> Iterator[Conversion]:
    if workers < 2 or len(left) < 2:
        for source, path in left.items():
            yield _one(path, source, folder, convert)
        return
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    count, bound = min(workers, len(left)), (os.getpid(),)
    with _safe_path(), ProcessPoolExecutor(count, mp_context=context, initializer=_bound, initargs=bound) as pool:
        waiting: list[Future[Conversion]] = [
            pool.submit(_one, path, source, folder, convert) for source, path in left.items()
        ]
        try:
            for future in as_completed(waiting):
                yield future.result()
        except BaseException:  # Ctrl-C, a full disk: hours of what is still to come are not waited for
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise


@contextmanager
def _safe_path() -> Iterator[None]:
    """Child processes that ``multiprocessing`` starts import nothing from the current folder: ``-P`` of Python."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def _bound(parent: int) -> None:
    """End with the process that started this one, even if it is killed; Ctrl-C is for that process alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before that
        os._exit(1)


def _one(path: Path, source: str, folder: Path, convert: Convert) -> Conversion:
    """One file, in whatever process."""
    for old in folder.glob(f"{source}.*"):
        old.unlink()  # of an attempt that was broken off
        faults.point("shard.swept")
    made = RecordingWriter(folder, source)
    try:
        counts = convert(path, made)
    except RefusedFile as error:
        for name in made.written:
            (folder / name).unlink()
            faults.point("shard.refused")
        return Conversion(path, {}, str(error))
    record = Done(path.name, path.stat().st_size, counts, made.written)
    recording_writer.put(folder / f"{source}{DONE}", recording_writer.sealed(asdict(record)))
    return Conversion(path, counts)


def _of(folder: Path, task: str | None) -> dict[str, object]:
    """The task that the set in ``folder`` is of: as it was said, now or before."""
    found = recording_writer.contents(folder)
    before = None if found is None else found[1].get("task")
    if None not in {task, before} and task != before:
        raise UsageError(f"{folder}: is of {before}, not {task}; choose another --name")
    told = before if task is None else task
    return {} if told is None else {"task": told}


def _finish(folder: Path, of: dict[str, object]) -> None:
    """Say what the set is: all that is done, whoever did it."""
    found = [record for path in _all(folder) if (record := _record(folder, path.name.removesuffix(DONE)))]
    if not found:
        return
    files = {name: digest for record in found for name, digest in record.segments.items()}
    keys = sorted({key for record in found for key in record.counts})
    counts = {key: sum(record.counts.get(key, 0) for record in found) for key in keys}
    sources = ", ".join(record.file for record in found)
    checksums.forget(
        folder / recording_writer.CONTENTS
    )  # with what is added now it is another set than when it was first used
    recording_writer.finish(folder, files, {**of, "files": len(found), "sources": sources, **counts})


def _record(folder: Path, source: str) -> Done | None:
    """What is known of a source, if it is done."""
    path = folder / f"{source}{DONE}"
    if not path.is_file():
        return None
    told = recording_writer.unsealed(path)
    file, size, counts, segments = (told.get(key) for key in ("file", "size", "counts", "segments"))
    if not (isinstance(size, int) and isinstance(counts, dict) and isinstance(segments, dict)):
        raise RefusedFile(f"{path}: says nothing of its source; delete it, and its file is imported again")
    return Done(str(file), size, counts, segments)


def _whole(folder: Path, record: Done) -> bool:
    """Whether all that a source left is still there, every byte as it was."""
    with suppress(RefusedFile, UsageError):
        return all(recording_format.read(folder / name).sha256 == digest for name, digest in record.segments.items())
    return False


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{DONE}"))


def _source(path: Path) -> str:
    """A file's name as files here are named."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", path.name.removesuffix(".gz")).strip("_")
