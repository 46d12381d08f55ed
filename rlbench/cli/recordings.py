"""Recordings of episodes: ``rlbench data generate --epsilon``, ``data subset`` and ``data show``."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlbench.cli.choices import parse_count
from rlbench.cli.options import run_folder
from rlbench.cli.output import answer, emit, remark
from rlbench.config.names import printable
from rlbench.errors import RefusedFile, UnknownRun, UsageError, suggest_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rlbench.datasets.hdf5_writer import Written
    from rlbench.datasets.recipes import Games, Recipe
    from rlbench.datasets.shard_conversion import Conversion, Convert
    from rlbench.generate import EpisodeRecorder


MESSAGES = 10  # progress messages of one recording


def record_games(
    task: str, run: Path, which: str, name: str, numbers: tuple[int, float, int, int], manner: tuple[bool, bool, bool]
) -> None:
    """Record episodes of a finished run; ``numbers`` are steps, ε, seed and envs, ``manner`` force, quiet and JSON."""
    from rlbench.assembly.restore import fingerprint
    from rlbench.datasets import locations, recording_writer
    from rlbench.datasets.recipes import Games, checked
    from rlbench.generate import EpisodeRecorder, stored_run

    if not run.is_dir():
        try:
            run = run_folder(str(run), None)
        except UnknownRun:
            raise UsageError(
                f"--policy {run}: no such run{suggest_path(run)}; --epsilon wants a finished Q-learning run"
            ) from None
    (steps, epsilon, seed, num_envs), (force, quiet, json) = numbers, manner
    spec, state = stored_run(run, which)
    policy = f"{spec.name} {spec.id} seed={spec.seed} {which}"
    with checked(name):
        recipe = Games(
            name=name,
            task=task,
            policy=policy,
            sha256=fingerprint(state),
            steps=steps,
            epsilon=epsilon,
            seed=seed,
            lanes=num_envs,
        )
    present = locations.folder("own") / f"{name}{recording_writer.SUFFIX}"
    if not force and is_done(present, recipe, json=json):
        return
    folder = _free(present, recipe.model_dump(), force=force)
    with recording_writer.alone(folder):
        _record(EpisodeRecorder(recipe, run, which, folder), quiet=quiet, json=json)


def _free(path: Path, request: Mapping[str, object], *, force: bool) -> Path:
    """Return the free path of a data set, or of an unfinished one by the same request; an old one stays for now."""
    from rlbench.cli.preflight import writable
    from rlbench.datasets import recording_reader, recording_writer

    flat, same_request = path.with_suffix(".hdf5"), recording_writer.is_begun(path, request)
    if flat.exists():
        raise UsageError(f"{flat}: is there already; choose another --name")
    complete = recording_reader.is_complete(path)
    if (complete or (any(path.glob("*.segment")) and not same_request)) and not force:
        state = "is there already" if complete else "is there, unfinished"
        raise UsageError(f"{path}: {state}; make it again with --force, or choose another --name")
    writable(path.parent)
    return path


def _record(recorder: EpisodeRecorder, *, quiet: bool, json: bool) -> None:
    from rlbench.datasets.checksums import seal_of
    from rlbench.datasets.hdf5_writer import Written
    from rlbench.datasets.recording_writer import CONTENTS

    try:
        remark_progress(recorder, recorder.recipe, quiet=quiet)
    except KeyboardInterrupt:
        recorder.shards.writer.flush()
        remark(
            f"{recorder.folder}: broken off; use what is there with rlbench data subset, or make it again by the same "
            "command"
        )
        raise
    metadata = recorder.finish()
    size = sum(path.stat().st_size for path in recorder.folder.iterdir())
    file = Written(recorder.folder, seal_of(recorder.folder / CONTENTS).sha256, size)
    answer_dataset(file, recorder.recipe.steps, metadata, json=json)


def remark_progress(recorder: Iterable[int], recipe: Recipe | Games, *, quiet: bool) -> None:
    """Record to the end, with ``MESSAGES`` lines on stderr."""
    messages = 0
    for done in recorder:
        if not quiet and done * MESSAGES // recipe.steps > messages:
            messages = done * MESSAGES // recipe.steps
            remark(f"{recipe.name}: {done:,} of {recipe.steps:,} steps")


def is_done(path: Path, recipe: Recipe | Games, *, json: bool) -> bool:
    """Describe the data set at ``path`` if an equal recipe made it: its process may have been killed before that."""
    from rlbench.datasets import checksums, hdf5, recording_reader, recording_writer
    from rlbench.datasets.hdf5_writer import Written
    from rlbench.datasets.recording_writer import CONTENTS

    frames = recording_reader.is_complete(path)
    if not frames and not path.is_file():
        return False
    if frames:
        recording_writer.drop_request(path)
    whole = [file for file in path.iterdir() if not file.name.endswith(checksums.SUFFIX)] if frames else [path]
    seal = checksums.seal_of(path / CONTENTS if frames else path)
    metadata = recording_reader.metadata(path) if frames else hdf5.attributes(path)
    if metadata.get("recipe") != recipe.model_dump_json(exclude_defaults=True):
        return False
    size = sum(file.stat().st_size for file in whole)
    facts = {name: value for name, value in metadata.items() if isinstance(value, (str, float, int))}
    remark(f"{recipe.name}: done already; --force makes it again")
    answer_dataset(Written(path, seal.sha256, size), recipe.steps, facts, json=json)
    return True


def answer_dataset(file: Written, steps: int, facts: Mapping[str, str | float], *, json: bool) -> None:
    """Print the file and the facts of a new data set."""
    mean = f"return {facts['return_mean']:,.1f} ± {facts['return_std']:,.1f}, " if "return_mean" in facts else ""
    text = (
        f"{file.path}: {steps:,} steps, {facts['episodes']} whole episodes, {mean}"
        f"{file.bytes:,} bytes, SHA-256 {file.sha256}"
    )
    answer({"path": str(file.path), "sha256": file.sha256, "bytes": file.bytes, **facts}, text, json=json)


def write_subset(source: str, steps: str, name: str, *, force: bool) -> None:
    """Write the first steps of a recording as a data set of its own."""
    from rlbench.datasets import locations, recording_reader, recording_writer
    from rlbench.datasets.recipes import own
    from rlbench.records.machine import available_memory

    own(name)
    _, path = locations.resolve(source)
    if not recording_reader.is_frames(path):
        raise UsageError(f"{path}: is no recorded play; only of such sets subsets are taken")
    target, count = locations.folder("own") / f"{name}{recording_writer.SUFFIX}", parse_count(steps)
    if target.resolve() == path.resolve():
        raise UsageError(f"{path}: cannot be a subset of itself; choose another --name")
    room = available_memory()
    if not force and recording_reader.is_subset(path, target, count, room=room):  # a killed process has written it
        recording_writer.drop_request(target)
    else:
        _free(target, recording_reader.subset_request(path, count), force=force)
        with recording_writer.alone(target):
            recording_reader.subset(path, target, count, room=room)
    emit(str(target))


def describe(path: Path, *, json: bool) -> None:
    """Describe a recording without decompressing a frame."""
    from dataclasses import asdict

    from rlbench.datasets import checksums, recording_reader
    from rlbench.datasets.loader import data_file, dataset_metadata
    from rlbench.datasets.summary import recording_summary
    from rlbench.records.machine import available_memory

    seal = checksums.seal_of(data_file(path)) if recording_reader.is_complete(path) else None
    facts = recording_summary(recording_reader.outline(path, room=available_memory()))
    metadata = dataset_metadata(path)
    size = sum(file.stat().st_size for file in path.iterdir())
    head = {"name": path.stem, "path": str(path), "bytes": size, "sha256": seal.sha256 if seal else None}
    returns = facts.returns
    lines = [
        ("name", path.stem),
        ("path", str(path)),
        ("sha256", seal.sha256 if seal else "unfinished: what was written before it was broken off"),
        ("bytes", f"{size:,}"),
        ("steps", f"{facts.steps:,}"),
        ("episodes", f"{facts.episodes:,}: {facts.terminated:,} terminated, {facts.truncated:,} cut"),
        (
            "return",
            f"{returns.mean:.1f} ± {returns.std:.1f}, from {returns.low:.1f} to {returns.high:.1f}"
            if returns
            else "no episode has ended",
        ),
        ("actions", " ".join(f"{share:.1%}" for share in facts.actions)),
        *metadata.items(),
    ]
    wide = max(len(key) for key, _ in lines)
    text = "\n".join(f"{printable(key):<{wide}}  {printable(value)}" for key, value in lines)
    answer({"schema_version": 2, **head, **asdict(facts), "metadata": metadata}, text, json=json)


KINDS: Final = ("rlu", "dqn-replay")
SHARD: Final = 10**9  # bytes of memory that converting a shard takes: its compressed frames, and the new file


def convert(kind: str, paths: list[Path], name: str | None, task: str | None, workers: int | None) -> None:
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
    free = available_memory()
    count = workers or max(1, min(os.cpu_count() or 1, free // SHARD))
    converter: Convert = partial(rl_unplugged.convert_shard, room=free // min(count, len(paths)))
    if kind == "dqn-replay":
        if len(paths) != 1:
            raise UsageError("dqn-replay: give one folder, replay_logs")
        paths, converter = dqn_replay.logs(paths[0]), dqn_replay.convert_log
    origin = {"rlu": "RL Unplugged; rewards clipped to [−1, 1], sticky actions", "dqn-replay": "DQN-replay logs"}[kind]
    refusals = 0
    files = shard_conversion.convert_shards(paths, folder, converter, workers=count, origin=origin, task=task)
    for number, conversion in enumerate(files, 1):
        remark(f"{number} of {len(paths)}: {_sentence(conversion)}")
        refusals += conversion.refusal is not None
    if refusals < len(paths):
        emit(str(folder))
    if refusals:
        raise RefusedFile(f"{name}: {refusals} of {len(paths)} files were refused, see above; the others are kept")


def _sentence(conversion: Conversion) -> str:
    if conversion.refusal is not None:
        return conversion.refusal
    counts = ", ".join(f"{count:,} {what}" for what, count in conversion.counts.items())
    return f"{conversion.path.name}: {counts}{', done before' if conversion.before else ''}"
