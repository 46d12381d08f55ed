"""R4: no damaged file is read as good: any byte of any file flipped, cut off, blanked or followed by more."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rlbench import checkpoint
from rlbench.assembly.offline import load_data
from rlbench.cli.app import main
from rlbench.config.run import Runtime
from rlbench.datasets import checksums, recording_reader
from rlbench.datasets.episodes import Dataset
from rlbench.errors import RefusedFile
from rlbench.ops.state_dict import State
from rlbench.records import store
from rlbench.report import baseline, runs
from rlbench.report.integrity import verify_records
from tests.commands import stderr_of, stdout_of
from tests.conftest import RecordRun
from tests.reliability.families import CATCH, GENERATED
from tests.reliability.run_one import carry
from tests.reliability.scenarios import SET, play, wrote

RUN = CATCH._replace(sets=tuple("budget.steps=300" if s.startswith("budget.steps") else s for s in CATCH.sets))


class Artefact(NamedTuple):
    """Files, and who reads them; what is read can be compared."""

    folder: Path
    files: tuple[Path, ...]
    read: Callable[[], object]
    checked: bool = True  # by ``rlbench verify`` too
    quiet: bool = False  # also when the file's clock stands still, as when a disk rots


class Damage(NamedTuple):
    """A change of a file: its kind and the bytes that it changes."""

    kind: str
    place: float
    bit: int

    def done(self, raw: bytes) -> bytes:
        at = min(int(self.place * len(raw)), len(raw) - 1)
        if self.kind == "cut":
            return raw[:at]
        if self.kind == "blank":
            return raw[:at] + bytes(min(64, len(raw) - at)) + raw[at + 64 :]
        if self.kind == "more":
            return raw + raw[at : at + 64]
        return raw[:at] + bytes([raw[at] ^ 1 << self.bit]) + raw[at + 1 :]


DAMAGE = st.builds(
    Damage, st.sampled_from(["flip", "flip", "flip", "cut", "blank", "more"]), st.floats(0, 1), st.integers(0, 7)
)


def comparable(value: object) -> object:
    if isinstance(value, Dataset):
        return [(column.shape, column.tobytes()) for column in value]
    return value


def whole_state(folder: Path) -> object:
    def leaves(state: State) -> list[object]:
        return [
            (k, leaves(v) if isinstance(v, dict) else v if isinstance(v, int | float | str) else v.numpy().tobytes())
            for k, v in sorted(state.items())
        ]

    return leaves(checkpoint.load(folder))


def both_readers(folder: Path) -> object:
    """The record as the reader of runs and that of reports return it; both must refuse the same."""
    result: list[object] = []
    runs._read.cache_clear()
    for read in (store.read_record, runs.read_run):
        try:
            result.append(read(folder))
        except RefusedFile as error:
            result.append(str(error))
    if any(isinstance(one, str) for one in result):
        assert all(isinstance(one, str) for one in result), f"only one of the two readers refuses: {result}"
        raise RefusedFile(str(result[0]))
    return result


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    done, stopped, sets = (tmp_path_factory.mktemp(name) for name in ("done", "stopped", "sets"))
    carry(RUN.spec(), done)
    carry(RUN.spec(), stopped, stop_after=60)
    wrote([str(sets)])
    play([str(sets)])
    checksums.seal_of(sets / f"{SET}.frames" / "dataset.json")
    return {"done": RUN.folder(done), "stopped": RUN.folder(stopped), "sets": sets}


KINDS = ("done", "stopped", "best", "resume", "set", "rotten set", "seal", "recording")


def artefact(kind: str, places: dict[str, Path]) -> Artefact:
    sets, flat = places["sets"], places["sets"] / f"{SET}.hdf5"
    match kind:
        case "done" | "stopped":
            folder = places[kind]
            parts = tuple(folder / name for name in ("spec.json", "epochs.jsonl", "outcome.json"))
            return Artefact(folder, parts, lambda: both_readers(folder))
        case "best" | "resume":
            run = places["done" if kind == "best" else "stopped"]
            checkpoint_folder = run / "checkpoint" / kind
            return Artefact(run, tuple(sorted(checkpoint_folder.iterdir())), lambda: whole_state(checkpoint_folder))
        case "set" | "rotten set":
            return Artefact(sets, (flat,), lambda: learned_from(flat), checked=False, quiet=kind != "set")
        case "seal":
            return Artefact(
                sets, (flat.with_name(flat.name + checksums.SUFFIX),), lambda: learned_from(flat), checked=False
            )
        case _:
            recording = sets / f"{SET}.frames"
            parts = (recording / "dataset.json", *sorted(recording.glob("*.segment")))
            return Artefact(
                sets,
                parts,
                lambda: (
                    recording_reader.verify_recording(recording),
                    comparable(recording_reader.read_recording(recording)),
                ),
                checked=False,
            )


def learned_from(path: Path) -> object:
    spec = GENERATED.spec()
    task = spec.task.model_copy(update={"dataset": SET})
    result = load_data(spec, task, Runtime(device="cpu", dataset=str(path)))
    return result.sha256, comparable(result.data)


def damage_and_read(of: Artefact, path: Path, damage: Damage) -> str:
    """Damage a file, read it, and restore it: it is refused by name, or no content changes."""
    raw, stat, intact = path.read_bytes(), path.stat(), of.read()
    content = damage.done(raw)
    if content == raw:
        return "same"
    path.write_bytes(content)
    if of.quiet:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    try:
        faults = verify_records(of.folder).faults if of.checked else ()
        result = of.read()
    except RefusedFile as error:
        refusal = str(error)
    else:
        assert result == intact or torn(path, intact, result), f"{path}: read as good: {damage}"
        return "unharmed"
    finally:
        path.write_bytes(raw)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        checksums.write_seal(of.folder / f"{SET}.hdf5", SEALS[of.folder]) if of.folder in SEALS else None
    is_named = path.name in refusal or (path.name.endswith(checksums.SUFFIX) and path.stem[:-7] in refusal)
    assert is_named and len(refusal.splitlines()) == 1, f"{path}: damaged, but refused was: {refusal}"
    assert not of.checked or any(path.name in fault.line for fault in faults), "verify did not see it"
    return "refused"


SEALS: dict[Path, checksums.Seal] = {}


def torn(path: Path, intact: object, result: object) -> bool:
    """True where only the last line of an open run is missing, as after a torn write."""
    if path.name != "epochs.jsonl" or not isinstance(intact, list) or not isinstance(result, list):
        return False
    before, now = intact[0].epochs, result[0].epochs
    return intact[0].outcome is None and now == before[: len(now)] and len(now) >= len(before) - 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("examples", [40, pytest.param(1_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_anywhere_is_refused_by_name(kind: str, examples: int, places: dict[str, Path]) -> None:
    of = artefact(kind, places)
    outcomes: list[str] = []
    if not of.checked and kind != "recording":
        SEALS[of.folder] = checksums.seal_of(of.folder / f"{SET}.hdf5")

    @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.sampled_from(of.files), DAMAGE)
    def check(path: Path, damage: Damage) -> None:
        outcomes.append(damage_and_read(of, path, damage))

    check()
    assert outcomes.count("refused") > 0.8 * (len(outcomes) - outcomes.count("same")), "less than 80 % is refused"


def test_every_changed_byte_of_an_outcome_is_refused(places: dict[str, Path]) -> None:
    of, path = artefact("done", places), places["done"] / "outcome.json"
    size = path.stat().st_size
    outcomes = [damage_and_read(of, path, Damage("flip", (at + 0.5) / size, at % 8)) for at in range(0, size, 3)]
    assert outcomes.count("refused") >= len(outcomes) - 1  # the last digit of the seconds may change no float


def test_damaged_baseline_is_refused_by_name(record_run: RecordRun, tmp_path: Path) -> None:
    record_run([1.0, 2.0])
    path = tmp_path / "baseline.json"
    assert main(["baseline", "save", str(path), "--results", str(tmp_path / "results")]) == 0
    of = Artefact(tmp_path, (path,), lambda: baseline.read_baseline(path))
    draw = np.random.default_rng(0)
    kinds = [damage_and_read(of, path, Damage("flip", draw.random(), int(draw.integers(8)))) for _ in range(60)]
    assert kinds.count("refused") > 30
    assert damage_and_read(of, path, Damage("cut", 0.5, 0)) == "refused"


@pytest.mark.parametrize(
    "name", ["spec.json", "epochs.jsonl", "outcome.json", "manifest.json", "tensors-000.safetensors"]
)
def test_resume_from_a_damaged_checkpoint_is_refused_with_a_remedy(
    name: str, places: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(places["stopped"].parents[4], tmp_path / "results")
    run = RUN.folder(tmp_path / "results")
    path = run / name if (run / name).exists() else run / "checkpoint" / "resume" / name
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 1]) + raw[len(raw) // 2 + 1 :])
    before = {path: path.read_bytes() for path in run.glob("*.json*")}
    error = stderr_of([*RUN.words(tmp_path / "results"), "--quiet"])
    assert name in error and "start over with --force" in error
    assert {path: path.read_bytes() for path in run.glob("*.json*")} == before
    assert name in stdout_of(f"verify {tmp_path / 'results'}", 2)


def test_damaged_files_of_these_tests_are_all_files_of_a_run(places: dict[str, Path]) -> None:
    files_of_run = {path for path in places["done"].rglob("*") if path.is_file() and path.name != ".lock"}
    covered = {path for kind in ("done", "best") for path in artefact(kind, places).files}
    assert files_of_run - covered == set((places["done"] / "checkpoint" / "last").iterdir()), "as those of the best"
