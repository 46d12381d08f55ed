"""Scenarios that write to disk: the beginning, the work of a child process, and the expected files.

A scenario is done again after each death, as a user would: the same command, and nothing put in order by hand.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from rlbench import checkpoint, disk
from rlbench.cli.app import main
from rlbench.datasets import (
    catalogue,
    checksums,
    d4rl,
    dataset_fetch,
    download,
    recording_format,
    recording_reader,
    recording_writer,
    shard_conversion,
)
from rlbench.errors import RefusedFile
from rlbench.records import attempts
from rlbench.records.store import read_record
from tests.forging import locked
from tests.reliability.families import SHORT
from tests.reliability.run_one import ending

HERE = "tests.reliability.scenarios"
SET = "rlb-small"


class Scenario(NamedTuple):
    """One way to write."""

    points: tuple[str, ...]  # as their names begin
    prepare: Callable[[Path, Path], None]  # a folder, from that of a finished run
    function: str  # in the child, with the folder as its only word
    ending: Callable[[Path], object]  # all that counts, and that no half of anything is left


def begun(folder: Path, golden: Path) -> None:
    """Nothing is there yet."""


def train(words: list[str]) -> int:
    return main(SHORT.words(Path(words[0])))


def force(folder: Path, golden: Path) -> None:
    shutil.copytree(golden, folder, dirs_exist_ok=True)


def forced(words: list[str]) -> int:
    """Start over; once the old attempt is aside, the same run goes on."""
    aside = SHORT.folder(Path(words[0])) / "attempt-1" / "epochs.jsonl"
    return main([*SHORT.words(Path(words[0])), "--quiet", *([] if aside.exists() else ["--force"])])


def forced_ending(folder: Path) -> object:
    aside = SHORT.folder(folder) / "attempt-1"
    return trained_ending(folder), ending(aside), sorted(p.name for p in aside.parent.glob("attempt-*"))


def differ(folder: Path, golden: Path) -> None:
    """Epochs of another machine are recorded, which this one will replace; it had been interrupted."""
    store = locked(SHORT.spec(), folder)
    record = read_record(SHORT.folder(golden))
    for epoch in record.epochs[:2]:
        store.append(replace(epoch, updates=epoch.updates + epoch.number))
    sums = {"environments_sha256": None, "epochs_sha256": None}
    store.finish(replace(record.outcome, status="interrupted", epochs=2, **sums))
    store.release()


def crash(folder: Path, golden: Path) -> None:
    """All that a crash at the very end may leave, though the run is done."""
    shutil.copytree(golden, folder, dirs_exist_ok=True)
    run = SHORT.folder(folder)
    state = checkpoint.load(run / "checkpoint" / "last")
    del state["epoch"]  # what tells a policy from a state to resume
    checkpoint.save(run / "checkpoint" / "resume", state)
    for name in ("resume", "best"):
        shutil.copytree(run / "checkpoint" / "last", run / "checkpoint" / f".{name}.1.tmp")
    (run / "outcome.json.1.tmp").write_text("{")


def trained_ending(folder: Path) -> object:
    run = SHORT.folder(folder)
    parts = {"spec.json", "epochs.jsonl", "outcome.json", "checkpoint", ".lock", "attempt-1"}
    assert {path.name for path in run.iterdir()} <= parts, "something half written was left"
    return ending(run)


def wrote(words: list[str]) -> int:
    draw = np.random.default_rng(0)
    columns = d4rl.D4RLArrays(
        observations=draw.standard_normal((40, 3), np.float32),
        actions=draw.standard_normal((40, 2), np.float32),
        rewards=draw.standard_normal(40, np.float32),
        terminals=np.arange(40) % 10 == 9,
        timeouts=np.zeros(40, np.bool_),
        next_observations=draw.standard_normal((40, 3), np.float32),
    )
    d4rl.write_hdf5(Path(words[0]) / f"{SET}.hdf5", columns, {"name": SET})
    return 0


def old_set(folder: Path, golden: Path) -> None:
    path = folder / f"{SET}.hdf5"
    with h5py.File(path, "w") as file:
        file["rewards"] = np.zeros(3)
    checksums.seal_of(path)


def set_ending(folder: Path) -> object:
    path = folder / f"{SET}.hdf5"
    checksums.verify(path)
    assert not list(folder.glob("*.part*")), "half a data set was left"
    return sha256(path.read_bytes()).hexdigest()


def play(words: list[str]) -> int:
    folder = Path(words[0]) / f"{SET}{catalogue.SUFFIX}"
    recording_writer.clear(folder)
    writer = recording_writer.RecordingWriter(folder, rows=8)
    for number in range(20):
        obs = np.full((4, 4), number, np.uint8)
        ended = number % 5 == 4
        marks = recording_format.TERMINATED * ended
        writer.add(recording_writer.row(0, obs, number % 3, float(number), marks))
        if ended:
            writer.add(recording_writer.row(0, obs + 100, 0, 0.0, recording_format.FINAL))
    writer.flush()
    recording_writer.finish(folder, writer.digests, {"name": SET})
    return 0


def old_recording(folder: Path, golden: Path) -> None:
    play([str(folder)])
    (folder / f"{SET}{catalogue.SUFFIX}" / "play.00009.segment").write_bytes(b"of an earlier set")


def recording_ending(folder: Path) -> object:
    place = folder / f"{SET}{catalogue.SUFFIX}"
    recording_reader.verify_recording(place)
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in place.iterdir()}


def convert(path: Path, writer: recording_writer.RecordingWriter) -> dict[str, int]:
    """A shard that is a line of text, of which some cannot be read to their end."""
    for letter in path.read_bytes():
        writer.add(recording_writer.row(0, np.full((2, 2), letter, np.uint8), 0, 1.0, 0))
        writer.flush()
    if "bad" in path.name:
        raise RefusedFile(f"{path}: is bad; restore it")
    return {"rows": path.stat().st_size}


def import_shards(words: list[str]) -> int:
    files = sorted(Path(words[0]).glob("*.txt"))
    for _ in shard_conversion.convert_shards(
        files, Path(words[0]) / f"{SET}{catalogue.SUFFIX}", convert, workers=1, origin="texts"
    ):
        pass
    return 0


def texts(folder: Path, golden: Path) -> None:
    for name in ("a", "bad", "c"):
        (folder / f"{name}.txt").write_text(f"shard {name}")
    place = folder / f"{SET}{catalogue.SUFFIX}"
    place.mkdir()
    (place / "a_txt.00007.segment").write_text("of an attempt that was broken off")


def fetched(words: list[str]) -> int:
    target = Path(words[0]) / "set.hdf5"
    if not target.exists():
        with download.locked_download(target):
            for _ in download.fetch_file(os.environ["FROM"], target):
                pass
            download.complete(target)
    return 0


def fetched_ending(folder: Path) -> object:
    return sha256((folder / "set.hdf5").read_bytes()).hexdigest()


def source(folder: Path, golden: Path) -> None:
    wrote([str(folder)])
    (folder / "own").mkdir()
    (folder / "own" / f"rlb-copy.hdf5.{disk.HOST}.4194305.tmp").write_text("half")  # no process has such a number


def copied(words: list[str]) -> int:
    os.environ["RLBENCH_DATASETS"] = str(Path(words[0]) / "own")
    if not (Path(words[0]) / "own" / "rlb-copy.hdf5").exists():
        dataset_fetch.import_dataset(Path(words[0]) / f"{SET}.hdf5", "rlb-copy")
    return 0


def copied_ending(folder: Path) -> object:
    assert not list((folder / "own").glob("*.hdf5.*.tmp")), "half a copy was left"
    path = folder / "own" / "rlb-copy.hdf5"
    checksums.seal_of(path)
    return sha256(path.read_bytes()).hexdigest()


def started(words: list[str]) -> int:
    """Log and attempts of a run's process, as a sweep writes them."""
    folder = SHORT.folder(Path(words[0]))
    attempts.open_log(folder).close()
    attempts.note(folder, {"event": "begun", "number": attempts.attempt_count(folder) + 1})
    return 0


def started_ending(folder: Path) -> object:
    assert attempts.attempt_count(SHORT.folder(folder)) > 0
    return ending(SHORT.folder(folder))


def withdrawn(words: list[str]) -> int:
    store = locked(SHORT.spec(), Path(words[0]))
    store.withdraw()
    store.release()
    return 0


def withdrawn_ending(folder: Path) -> object:
    return [path.name for path in SHORT.folder(folder).iterdir() if path.name != ".lock"]


SCENARIOS: dict[str, Scenario] = {
    "run": Scenario(("replace.", "append.", "lock.", "crash.", "checkpoint."), begun, f"{HERE}:train", trained_ending),
    "force": Scenario(("aside.",), force, f"{HERE}:forced", forced_ending),
    "withdraw": Scenario(("record.",), begun, f"{HERE}:withdrawn", withdrawn_ending),
    "differ": Scenario(("outcome.",), differ, f"{HERE}:train", trained_ending),
    "crash": Scenario(("lock.swept", "checkpoint.swept"), crash, f"{HERE}:train", trained_ending),
    "attempt": Scenario(("log.", "note."), force, f"{HERE}:started", started_ending),
    "set": Scenario(("dataset.", "seal.", "replace."), old_set, f"{HERE}:wrote", set_ending),
    "recording": Scenario(("recording.", "replace."), old_recording, f"{HERE}:play", recording_ending),
    "shards": Scenario(("shard.", "replace."), texts, f"{HERE}:import_shards", recording_ending),
    "download": Scenario(("download.",), begun, f"{HERE}:fetched", fetched_ending),
    "copy": Scenario(("copy.",), source, f"{HERE}:copied", copied_ending),
}


def passed(point: str) -> list[str]:
    """The scenarios that come by a point; a point's own name counts before the beginning that it shares."""
    exact = [name for name, scenario in SCENARIOS.items() if point in scenario.points]
    return exact or [name for name, scenario in SCENARIOS.items() if point.startswith(scenario.points)]
