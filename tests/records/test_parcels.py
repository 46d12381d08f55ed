"""Records that travel: packed on one machine, unpacked on another by the store's own rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.errors import RefusedFile
from rlbench.records import files, parcels
from rlbench.records.locks import held
from rlbench.records.parcels import Parcel, claimed, pack, signposted, unpack
from rlbench.records.store import read

Record = Callable[..., Path]
CATCH = suites.spec("toy", "dqn", "Catch")


def state(folder: Path, name: str, content: str) -> None:
    place = folder / "checkpoint" / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "tensors-000.safetensors").write_text(content)
    files.replace(place / "manifest.json", files.sealed({"schema_version": 1, "files": {}, "values": content}))


@pytest.fixture
def run(record_run: Record) -> Path:
    folder = record_run([0.0, 0.5, 1.0], suite="toy", task="Catch", status="interrupted")
    state(folder, "resume", "one")
    state(folder, "best", "best")
    return folder


def seals(parcel: Parcel) -> dict[str, bytes]:
    return {name: content["manifest.json"] for name, content in parcel.states.items()}


def everything(folder: Path) -> dict[str, bytes]:
    kept = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def test_what_was_packed_is_unpacked_as_it_was(run: Path, tmp_path: Path) -> None:
    (run / "log.txt").write_text("its words\n")
    unpack(pack(run), tmp_path / "there", CATCH)
    assert everything(tmp_path / "there") == everything(run)


def test_only_new_checkpoints_travel_again_and_gone_ones_go(run: Path, tmp_path: Path) -> None:
    there, first = tmp_path / "there", pack(run)
    unpack(first, there, CATCH)
    state(run, "resume", "two")
    second = pack(run, seals(first))
    assert set(second.states) == {"resume"} and set(second.present) == {"resume", "best"}
    unpack(second, there, CATCH)
    assert everything(there) == everything(run)
    for path in (run / "checkpoint" / "resume").iterdir():
        path.unlink()
    (run / "checkpoint" / "resume").rmdir()
    unpack(pack(run, seals(second)), there, CATCH)
    assert everything(there) == everything(run)


def test_a_crash_at_any_rename_leaves_a_record_and_a_checkpoint_that_can_be_read(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlbench.checkpoint import recover  # noqa: PLC0415 - brings torch

    there = tmp_path / "there"
    unpack(pack(run), there, CATCH)
    state(run, "resume", "two")
    parcel, moves = pack(run), 0
    for most in range(20):
        moves = 0

        def counted(path: Path, target: Path, most: int = most, move: Callable[..., Path] = os.rename) -> Path:
            nonlocal moves
            moves += 1
            if moves > most:
                raise KeyboardInterrupt
            move(path, target)
            return target

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", counted)
            patched.setattr(Path, "replace", counted)
            with suppress(KeyboardInterrupt):
                unpack(parcel, there, CATCH)
        recover(there / "checkpoint" / "resume")
        assert len(read(there).epochs) == 3
        assert (there / "checkpoint" / "resume" / "tensors-000.safetensors").read_text() in {"one", "two"}
        if moves <= most:
            break
    assert most > 4, "a death before each of at least five renames"
    assert everything(there) == everything(run)


def test_a_line_that_is_being_written_stays_behind(run: Path, tmp_path: Path) -> None:
    with (run / "epochs.jsonl").open("a") as file:
        file.write('{"checksum":"1234')
    unpack(pack(run), tmp_path / "there", CATCH)
    assert len(read(tmp_path / "there").epochs) == 3
    assert (tmp_path / "there" / "epochs.jsonl").read_bytes().endswith(b"\n")


def test_a_checkpoint_that_is_being_replaced_is_not_sent(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = parcels._bytes

    def swapped(path: Path) -> bytes | None:
        content = whole(path)
        if path.name == "tensors-000.safetensors" and path.parent.name == "resume":
            state(run, "resume", "two")
        return content

    monkeypatch.setattr(parcels, "_bytes", swapped)
    assert set(pack(run).states) == {"best"}


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "checkpoint", "a.py", ".lock"])
def test_files_of_other_names_are_refused(run: Path, tmp_path: Path, name: str) -> None:
    there, parcel = tmp_path / "there", pack(run)
    for bad in (
        replace(parcel, record={**parcel.record, name: b"x"}),
        replace(parcel, states={"resume": {name: b"x"}}),
        replace(parcel, states={name: {}}),
        replace(parcel, present=(name,)),
    ):
        with pytest.raises(RefusedFile, match="no part of a record"):
            unpack(bad, there, CATCH)
    assert not there.exists()


def test_a_damaged_record_or_another_runs_leaves_what_is_there(run: Path, tmp_path: Path) -> None:
    there, parcel = tmp_path / "there", pack(run)
    unpack(parcel, there, CATCH)
    before = everything(there)
    bent = {**parcel.record, "epochs.jsonl": parcel.record["epochs.jsonl"].replace(b"0.5", b"0.6")}
    with pytest.raises(RefusedFile, match="damaged"):
        unpack(replace(parcel, record=bent), there, CATCH)
    with pytest.raises(RefusedFile, match="another run"):
        unpack(parcel, there, CATCH.model_copy(update={"seed": 9}))
    assert everything(there) == before


def test_a_folder_that_is_claimed_for_elsewhere_is_held_until_it_is_let_go(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", tmp_path) as first:
        assert first and held(tmp_path / "run")
        with claimed(tmp_path / "run", tmp_path) as second:
            assert not second
        assert held(tmp_path / "run")
    assert not held(tmp_path / "run")


def test_a_signpost_stands_while_it_is_needed_and_no_other_folder_has_it(tmp_path: Path) -> None:
    with signposted(tmp_path / "results") as name:
        assert (tmp_path / "results" / name).exists()
        assert not (tmp_path / "elsewhere" / name).exists()
    assert list((tmp_path / "results").iterdir()) == []
