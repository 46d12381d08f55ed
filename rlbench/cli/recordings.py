"""Recorded games: ``data generate --epsilon``, ``data subset``, ``data show``, and ``data import`` of shards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from rlbench import suites
from rlbench.cli.inline import watched
from rlbench.cli.options import Checkpoint
from rlbench.cli.output import print_note, print_result, print_text
from rlbench.cli.preflight import check_writable
from rlbench.config.names import number_text, parse_count, printable
from rlbench.datasets import (
    catalogue,
    checksums,
    dqn_replay,
    hdf5,
    recording_reader,
    recording_writer,
    rl_unplugged,
    shard_conversion,
)
from rlbench.datasets.catalogue import CONTENTS, SUFFIX
from rlbench.datasets.d4rl import DatasetFile
from rlbench.datasets.loader import data_file, dataset_metadata
from rlbench.datasets.recipes import Recipe, RecordingRecipe, check_own_name
from rlbench.datasets.summary import Distribution, recording_summary, stored_mean
from rlbench.errors import RefusedFile, RlbenchError, UsageError
from rlbench.records import machine
from rlbench.signals import INTERRUPTIONS

MESSAGES: Final = 10  # progress messages of one recording
MAX_FACT: Final = 1e300  # a larger number is none that was written here
MAX_LINE_LENGTH: Final = 200  # characters of a line of metadata
IMPORTS: Final = {"rlu": "RL Unplugged; rewards clipped to [−1, 1], sticky actions", "dqn-replay": "DQN-replay logs"}
"""Origins of recorded games that ``data import`` converts, by its first word."""
SHARD_BYTES: Final = 10**9  # bytes of memory that converting a shard takes: its compressed frames, and the new file


def record_games(
    games: RecordingRecipe,
    run: Path,
    checkpoint: Checkpoint,
    *,
    env_timeout: float,
    force: bool,
    quiet: bool,
    json: bool,
) -> None:
    """Record episodes of the ``best`` or ``last`` policy of a finished run."""
    from rlbench.generate import EpisodeRecorder

    folder = catalogue.folder("own") / f"{games.name}{SUFFIX}"
    if not force and is_done(folder, games, json=json):
        return
    _refuse_present(folder, games.model_dump(), force=force)
    with recording_writer.locked_folder(folder):
        recorder = EpisodeRecorder(games, run, checkpoint, folder)
        try:
            print_progress(recorder, games, env_timeout, quiet=quiet)
        except (*INTERRUPTIONS, RlbenchError):
            recorder.shards.writer.flush()
            if recorder.shards.count:
                use = "use what is there with rlbench data subset, or make it again by the same command"
                print_note(f"{folder}: broken off; {use}")
            raise
        metadata = recorder.finish()
        size = sum(path.lstat().st_size for path in folder.iterdir())
        answer_dataset(
            DatasetFile(folder, checksums.seal_of(folder / CONTENTS).sha256, size), games.steps, metadata, json=json
        )


def _refuse_present(path: Path, request: Mapping[str, object], *, force: bool) -> None:
    """Refuse the path of another data set; an unfinished one by the same request goes on."""
    refuse_other_kind(path)
    complete = catalogue.is_complete(path)
    unfinished = any(path.glob("*.segment")) and not recording_writer.is_begun(path, request)
    if (complete or unfinished) and not force:
        state = "is there already" if complete else "is there, unfinished"
        raise UsageError(f"{path}: {state}; make it again with --force, or choose another --name")
    check_writable(path.parent)


def refuse_other_kind(path: Path) -> None:
    """Refuse a name that a data set of the other layout has, flat or recorded games: only one would be found."""
    other = path.with_suffix(SUFFIX if path.suffix == ".hdf5" else ".hdf5")
    if other.is_file() or catalogue.is_recording(other):  # an empty folder is of a refused request
        raise UsageError(f"{other}: is there already; choose another --name")


def print_progress(
    recorder: Iterable[int], recipe: Recipe | RecordingRecipe, env_timeout: float, *, quiet: bool
) -> None:
    """Record to the end, with ``MESSAGES`` lines on stderr; stop where an environment hangs."""
    messages = 0
    with watched(recipe.name, env_timeout):
        for done in recorder:
            if not quiet and done * MESSAGES // recipe.steps > messages:
                messages = done * MESSAGES // recipe.steps
                print_note(f"{recipe.name}: {done:,} of {recipe.steps:,} steps")


def is_done(path: Path, recipe: Recipe | RecordingRecipe, *, json: bool) -> bool:
    """Describe the data set at ``path`` if an equal recipe made it: its process may have been killed before that."""
    if catalogue.is_complete(path):
        recording_writer.drop_request(path)
        seal, metadata = checksums.seal_of(path / CONTENTS), recording_reader.metadata(path)
        size = sum(f.lstat().st_size for f in path.iterdir() if not f.name.endswith(checksums.SUFFIX))
    elif path.is_file():
        seal, metadata, size = checksums.seal_of(path), hdf5.read_attributes(path), path.stat().st_size
    else:
        return False
    facts = {
        name: value
        for name, value in metadata.items()
        if isinstance(value, str) or (isinstance(value, (float, int)) and abs(value) < MAX_FACT)
    }
    numbers = facts.get("episodes"), facts.get("return_mean", 0), facts.get("return_std", 0)
    is_foreign = any(number is None or isinstance(number, str) for number in numbers)
    if is_foreign or metadata.get("recipe") != recipe.model_dump_json(exclude_defaults=True):
        return False
    print_note(f"{recipe.name}: done already; --force makes it again")
    answer_dataset(DatasetFile(path, seal.sha256, size), recipe.steps, facts, json=json)
    return True


def answer_dataset(file: DatasetFile, steps: int, facts: Mapping[str, str | float], *, json: bool) -> None:
    """Print the file and the facts of a new data set."""
    has_returns = facts.keys() >= {"return_mean", "return_std"}
    mean = f"return {facts['return_mean']:,.1f} ± {facts['return_std']:,.1f}, " if has_returns else ""
    text = (
        f"{file.path}: {steps:,} steps, {facts['episodes']} whole episodes, {mean}"
        f"{file.bytes:,} bytes, SHA-256 {file.sha256}"
    )
    print_result({"path": str(file.path), "sha256": file.sha256, "bytes": file.bytes, **facts}, text, json=json)


def write_subset(source: str, steps: str, name: str, *, force: bool) -> None:
    """Write the first steps of a recording as a data set of its own."""
    check_own_name(name)
    _, path = catalogue.resolve(source)
    if not catalogue.is_recording(path):
        raise UsageError(f"{path}: holds no recorded games; only of such sets subsets are taken")
    target, count = catalogue.folder("own") / f"{name}{SUFFIX}", parse_count(steps)
    max_bytes = machine.available_memory()
    if target.resolve() == path.resolve():
        raise UsageError(f"{path}: cannot be a subset of itself; choose another --name")
    # A killed process may have written it.
    if not force and recording_reader.is_subset(path, target, count, max_bytes=max_bytes):
        recording_writer.drop_request(target)
    else:
        _refuse_present(target, recording_reader.subset_request(path, count), force=force)
        with recording_writer.locked_folder(target):
            recording_reader.subset(path, target, count, max_bytes=max_bytes)
    print_text(str(target))


def describe(path: Path, *, json: bool) -> None:
    """Describe a recording without decompressing a frame."""
    sha256 = checksums.seal_of(data_file(path)).sha256 if catalogue.is_complete(path) else None
    facts = recording_summary(recording_reader.read_steps(path, max_bytes=machine.available_memory()))
    metadata, size = dataset_metadata(path), sum(file.lstat().st_size for file in path.iterdir())
    mean = stored_mean(path, metadata)
    whole = "" if mean is None else f"mean {number_text(mean, '.1f')} of whole episodes; "
    terminated = f"of terminated ones {spread(facts.returns)}" if facts.returns else "no episode has terminated"
    lines = {
        "name": path.stem,
        "path": str(path),
        "sha256": sha256 or "unfinished: what was written before it was broken off",
        "bytes": f"{size:,}",
        "steps": f"{facts.steps:,}",
        "episodes": f"{facts.episodes:,}: {facts.terminated:,} terminated, {facts.truncated:,} cut",
        "return": f"{whole}{terminated}",
        "actions": " ".join(f"{share:.1%}" for share in facts.actions),
    }
    document = {"schema_version": 2, "name": path.stem, "path": str(path), "bytes": size, "sha256": sha256}
    text = "\n".join(chain(*described(lines, metadata)))
    print_result({**document, **asdict(facts), "metadata": metadata}, text, json=json)


def described(lines: Mapping[str, str], metadata: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """One line a fact, and one a value of the metadata, in common columns."""
    extra = {printable(key, MAX_LINE_LENGTH): printable(value, MAX_LINE_LENGTH) for key, value in metadata.items()}
    wide = max(map(len, (*lines, *extra)))
    facts, values = ([f"{key:<{wide}}  {value}" for key, value in part.items()] for part in (lines, extra))
    return facts, values


def spread(values: Distribution) -> str:
    """Mean, standard deviation, range and quartiles of numbers."""
    numbers = (values.mean, values.std, values.low, values.high, *values.quartiles)
    mean, std, low, high, first, middle, third = (number_text(value, ".1f") for value in numbers)
    return f"{mean} ± {std}, from {low} to {high}, quartiles {first} {middle} {third}"


def convert(kind: str, paths: list[Path], name: str | None, task: str | None, workers: int | None) -> None:
    """Convert shards of one of ``IMPORTS`` into the data set ``name``, with a line for each; of ``task``, if given."""
    if not paths or name is None:
        raise UsageError(f"{kind}: say which files, and what the set is called: --name rlb-…")
    check_own_name(name)
    if task is not None:
        suites.spec("atari", "dqn", task)  # raises for an unknown game
    folder = catalogue.folder("own") / f"{name}{SUFFIX}"
    refuse_other_kind(folder)
    if folder.is_dir() and any(folder.glob(f"{recording_writer.PLAY}.*.segment")):
        raise UsageError(f"{folder}: holds recorded games of yours; choose another --name")
    free = machine.available_memory()
    count = workers or max(1, min(len(os.sched_getaffinity(0)), free // SHARD_BYTES))
    converter: shard_conversion.Convert = partial(rl_unplugged.convert_shard, max_bytes=free // min(count, len(paths)))
    columns: shard_conversion.Columns | None = None
    if kind == "dqn-replay":
        if len(paths) != 1:
            raise UsageError("dqn-replay: give one folder, replay_logs")
        paths, converter, columns = dqn_replay.logs(paths[0]), dqn_replay.convert_log, dqn_replay.columns
    refusals = 0
    files = shard_conversion.convert_shards(
        paths, folder, converter, workers=count, origin=IMPORTS[kind], task=task, columns=columns
    )
    for number, conversion in enumerate(files, 1):
        counts = ", ".join(f"{count:,} {what}" for what, count in conversion.counts.items())
        result = f"{conversion.path.name}: {counts}{', done before' if conversion.was_converted else ''}"
        print_note(f"{number} of {len(paths)}: {conversion.refusal or result}")
        refusals += conversion.refusal is not None
    if refusals < len(paths):
        print_text(str(folder))
    if refusals:
        raise RefusedFile(f"{name}: {refusals} of {len(paths)} files were refused, see above; the others are kept")
