"""Convert shards of other formats to one set of recorded games, in parallel and with resume.

Every converted shard has a file ``<source>.done.json``. The same call resumes after an interruption; a call with more
shards adds them. A refused shard is named, and the others stay.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from pydantic import TypeAdapter, ValidationError

from rlbench import disk, faults
from rlbench.datasets import catalogue, checksums, recording_format, recording_writer
from rlbench.datasets.recording_writer import DONE, PLAY, RecordingWriter
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError
from rlbench.signals import end_with_parent

Convert: TypeAlias = Callable[[Path, RecordingWriter], dict[str, int]]
"""Convert a shard and return its counts; raise RefusedFile for a damaged one."""

Columns: TypeAlias = Callable[[Path], Sequence[Path]]
"""From a log to its files."""

TRAILER = 8  # bytes at the end of a gzip file: CRC-32 and length of its content


class Source(NamedTuple):
    """A shard, or a log of several files, to be converted."""

    path: Path
    name: str  # restricted to safe characters
    trailers: str  # the last bytes of each of its files, in hexadecimal


@dataclass(frozen=True, slots=True)
class Done:
    """A shard whose rows are on disk."""

    file: str
    size: int  # bytes of the shard
    trailers: str | None  # as of the ``Source``; older records have none
    counts: dict[str, int]
    segments: dict[str, str]


_DONE: Final = TypeAdapter(Done)


@dataclass(frozen=True, slots=True)
class Conversion:
    """Result of one shard."""

    path: Path
    counts: dict[str, int]  # transitions, episodes and so on
    refusal: str | None = None
    was_converted: bool = False  # converted by an earlier call


def convert_shards(
    files: Sequence[Path],
    folder: Path,
    convert: Convert,
    *,
    workers: int,
    origin: str,
    task: str | None = None,
    columns: Columns | None = None,
) -> Iterator[Conversion]:
    """Convert the remaining shards, then write the set's metadata, with its ``task`` if given.

    ``columns`` lists the files of a log.

    Raises:
        UsageError: a shard is missing, two have one name, another process writes the set, or it has another task or
            origin.
    """
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise UsageError(f"{missing[0]}: no such file; check the path")
    if len({_source(path) for path in files}) != len(files):
        raise UsageError(f"{folder.name}: two files have the same name; import them into two sets")
    with recording_writer.locked_folder(folder):
        metadata, remaining = _metadata(folder, origin, task), []
        for path in files:
            source = _examine(path, columns(path) if columns else [path])
            if isinstance(source, Conversion):
                yield source
                continue
            record = _record(folder, source.name)
            if record is None or not _is_complete(folder, record):
                remaining.append(source)
            elif record.size == path.stat().st_size and record.trailers in {None, source.trailers}:
                yield Conversion(path, record.counts, was_converted=True)
            else:
                differs = record.size != path.stat().st_size
                other = f", of {record.size:,} bytes" if differs else " and size, or of one of its columns"
                problem = f"the set holds another file of this name{other}"
                remedy = f"import it into another set, or delete {folder / source.name}{DONE} to replace that one"
                yield Conversion(path, {}, f"{path}: {problem}; {remedy}")
        yield from _convert_all(remaining, folder, convert, workers)
        _finish(folder, metadata)


def _convert_all(remaining: Sequence[Source], folder: Path, convert: Convert, workers: int) -> Iterator[Conversion]:
    if workers < 2 or len(remaining) < 2:
        for source in remaining:
            yield _convert_one(source, folder, convert)
        return
    os.environ["PYTHONSAFEPATH"] = "1"  # of the children: they import nothing from the current folder
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    count, bound = min(workers, len(remaining)), (os.getpid(),)
    with ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker, initargs=bound) as pool:
        try:
            waiting = [pool.submit(_convert_one, source, folder, convert) for source in remaining]
            for future in as_completed(waiting):
                yield future.result()
        except BrokenProcessPool:
            raise ResourceExhausted(
                f"{folder}: a worker has ended, as for lack of memory; take fewer --workers and run the same command "
                "again: it resumes"
            ) from None
        except BaseException:  # Ctrl-C or a full disk: the other shards may take hours
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise


def _start_worker(parent: int) -> None:
    """End with the parent process, even if it is killed, and leave Ctrl-C and a closed terminal to it."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent(parent)


def _convert_one(source: Source, folder: Path, convert: Convert) -> Conversion:
    path, prefix, trailers = source
    for old in folder.glob(f"{prefix}.*"):
        old.unlink()  # of an interrupted call
        faults.point("shard.swept")
    writer = RecordingWriter(folder, prefix)
    try:
        counts = convert(path, writer)
    except RefusedFile as error:
        for name in writer.digests:
            (folder / name).unlink()
            faults.point("shard.refused")
        return Conversion(path, {}, str(error))
    record = Done(path.name, path.stat().st_size, trailers, counts, writer.digests)
    recording_writer.write_file(folder / f"{prefix}{DONE}", recording_writer.seal_set(asdict(record)))
    return Conversion(path, counts)


def _metadata(folder: Path, origin: str, task: str | None) -> dict[str, object]:
    """Origin and task of the set in ``folder``, given now or by an earlier call."""
    contents = recording_writer.contents(folder)
    before = {} if contents is None else contents[1]
    metadata: dict[str, object] = {}
    for name, text in (("origin", origin), ("task", task)):
        if None not in {text, former := before.get(name)} and text != former:
            raise UsageError(f"{folder}: has the {name} {former}, not {text}; choose another --name")
        metadata |= {name: text or former} if text or former else {}
    return metadata


def _finish(folder: Path, metadata: dict[str, object]) -> None:
    sources = [path.name.removesuffix(DONE) for path in sorted(folder.glob(f"*{DONE}"))]
    records = [record for source in sources if (record := _record(folder, source))]
    if not records:
        with suppress(OSError):
            folder.rmdir()  # every shard was refused
        faults.point("shard.refused")
        return
    by_content = {tuple(record.segments.values()): record.file for record in records}
    for record in records:
        if (other := by_content[tuple(record.segments.values())]) != record.file:
            problem = f"{record.file} and {other} hold the same transitions"
            remedy = f"delete {folder / _source(Path(other))}.*, and import without {other}"
            raise RefusedFile(f"{folder}: {problem}; {remedy}")
    files = {name: digest for record in records for name, digest in record.segments.items()}
    keys = sorted({key for record in records for key in record.counts})
    counts = {key: sum(record.counts.get(key, 0) for record in records) for key in keys}
    names = ", ".join(record.file for record in records)
    checksums.remove_seal(folder / catalogue.CONTENTS)  # new shards change the set
    recording_writer.finish(folder, files, {**metadata, "files": len(records), "sources": names, **counts})


def _record(folder: Path, source: str) -> Done | None:
    path = folder / f"{source}{DONE}"
    if not path.is_file():
        return None
    try:
        content = recording_writer.read_sealed_set(path)
    except RefusedFile as error:
        raise RefusedFile(f"{error}; or delete it, and the shard is converted again") from None
    try:
        return _DONE.validate_python({name: content.get(name) for name in Done.__dataclass_fields__})
    except ValidationError:
        raise RefusedFile(f"{path}: has no record of its shard; delete it, and the shard is converted again") from None


def _is_complete(folder: Path, record: Done) -> bool:
    """True if every file of a shard has its recorded SHA-256."""
    with suppress(RefusedFile, UsageError):
        segments = record.segments.items()
        return all(recording_format.read_segment(folder / name).sha256 == digest for name, digest in segments)
    return False


def _examine(path: Path, columns: Sequence[Path]) -> Source | Conversion:
    """The source of a shard with these files, or the refusal of one that cannot be read."""
    try:
        return Source(path, _source(path), "".join(map(_trailer, columns)))
    except RefusedFile as error:
        return Conversion(path, {}, str(error))
    except OSError as error:
        return Conversion(
            path, {}, f"{error.filename or path}: cannot be read ({error.strerror}); check its permissions"
        )


def _trailer(path: Path) -> str:
    if not path.is_file():
        return ""
    with disk.open_regular(path, links=True) as file:
        file.seek(max(0, path.stat().st_size - TRAILER))
        return file.read().hex()


def _source(path: Path) -> str:
    """Name of a shard, restricted to safe characters; never that of recorded games."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", path.name.removesuffix(".gz")).strip("_")
    return f"{name}_" if name in {"", PLAY} else name
