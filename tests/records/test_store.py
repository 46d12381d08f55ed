"""Records: written whole, read whole or refused by name, locked by one process, never deleted."""

import errno
import fcntl
import json
import os
import shutil
import stat
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench import disk, suites
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError
from rlbench.records import aside, files, store
from rlbench.records.attempts import Resumption, note_resumption, resumptions
from rlbench.records.epochs import line_of
from rlbench.records.locks import FolderLock
from rlbench.records.store import Record, Store, folder_of, read_record
from rlbench.records.types import Collected, Epoch, Evaluated, Outcome, Progress, Status, Updated
from rlbench.report.runs import attempts
from rlbench.run import fail_lost_run
from tests import conftest
from tests.commands import killed_at
from tests.conftest import Patch, RecordRun
from tests.forging import locked, reseal

CATCH = suites.spec("toy", "dqn", "Catch", seed=3)
NUMBERS = st.floats(-1e9, 1e9)
SECONDS = st.floats(0, 1e9)
COUNTS = st.integers(0, 10**12)
COLLECTED = Collected(episodes=1, steps=9, returns=(0.5,), lengths=(9,), steps_per_second=1e3)
EVALUATED = Evaluated(returns=(1.0, -1e-17), lengths=(9, 10), seeds=(1, 2), seconds=0.25)
RUN = tuple(
    Epoch(
        number=number,
        env_steps=10 * number,
        updates=number,
        seconds=number / 7,
        collected=COLLECTED,
        updated=Updated(count=1, means={"loss": 0.1, "q": 1e22}) if number else None,
        evaluated=EVALUATED,
    )
    for number in range(3)
)
PARTS = ("spec.json", "epochs.jsonl", "outcome.json")


@st.composite
def epochs(draw: st.DrawFn) -> tuple[Epoch, ...]:
    games = draw(st.lists(st.tuples(NUMBERS, COUNTS), min_size=1, max_size=4))
    returns, lengths = (st.just(column) for column in zip(*games, strict=True))
    collected = st.builds(
        Collected, episodes=COUNTS, steps=COUNTS, returns=returns, lengths=lengths, steps_per_second=SECONDS
    )
    updated = st.none() | st.builds(Updated, count=COUNTS, means=st.fixed_dictionaries({"loss": NUMBERS, "q": NUMBERS}))
    evaluated = st.none() | st.builds(Evaluated, returns=returns, lengths=lengths, seeds=lengths, seconds=SECONDS)
    counts = sorted(draw(st.lists(COUNTS, max_size=4)))
    return tuple(
        Epoch(
            number=number,
            env_steps=count,
            updates=count // 2,
            seconds=draw(SECONDS),
            collected=draw(collected),
            updated=draw(updated),
            evaluated=draw(evaluated),
        )
        for number, count in enumerate(counts)
    )


def outcome(status: Status, count: int) -> Outcome:
    numbers = {"env_steps": 1, "updates": 2, "epochs": count, "seconds": 3.5, "best": 0.1, "best_epoch": 0}
    return Outcome(status=status, reason="für einen Test", final=None, weights=None, **numbers)


def write(results: Path, run: tuple[Epoch, ...], status: Status | None) -> Path:
    store = locked(CATCH, results, {"python": "3.11"})
    for epoch in run:
        store.append(epoch)
    if status is not None:
        store.finish(outcome(status, len(run)))
    store.release()
    return store.folder


def or_refused(folder: Path, name: str) -> Record | None:
    """The record, or None after a refusal that names the damaged file."""
    try:
        return read_record(folder)
    except RefusedFile as error:
        assert name in str(error)  # noqa: PT017 - either outcome is right
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - as above
        return None


@settings(max_examples=25, deadline=None)
@given(epochs(), st.sampled_from(["done", "failed", "interrupted", None]))
def test_what_is_written_is_read_to_the_last_digit(run: tuple[Epoch, ...], status: Status | None) -> None:
    with TemporaryDirectory() as folder:
        record = read_record(write(Path(folder), run, status))
    assert (record.spec, record.epochs, record.environment) == (CATCH, run, {"python": "3.11"})
    assert record.outcome == (outcome(status, len(run)) if status else None)


def test_inexact_steps_are_stored_and_empty_in_older_outcomes(tmp_path: Path) -> None:
    folder = write(tmp_path, (), None)
    store = locked(CATCH, tmp_path)
    with_steps = replace(outcome("done", 0), inexact=(5, 1_000))
    store.finish(with_steps)
    assert store.outcome == with_steps
    assert files.read_sealed(folder / "outcome.json")["inexact"] == [5, 1000]
    reseal(folder / "outcome.json", lambda content: content.pop("inexact"))
    assert store.outcome == outcome("done", 0)
    store.release()


@pytest.fixture(scope="module", params=["done", "interrupted", None])
def intact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Status | None]:
    """A record of three epochs for tests that damage one file and put it back."""
    status: Status | None = request.param
    return write(tmp_path_factory.mktemp("intact"), RUN, status), status


def damaged(path: Path, content: bytes) -> Record | None:
    """The record with other content in one of its files, or None after a refusal that names the file."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        return or_refused(path.parent, path.name)
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("name", PARTS)
def test_a_file_cut_anywhere_is_refused_by_name_or_only_torn_last_epochs_are_dropped(
    intact: tuple[Path, Status | None], name: str
) -> None:
    folder, status = intact
    if not (folder / name).exists():
        assert read_record(folder).outcome is None, "a run in progress has no outcome"
        return
    content, outcomes = (folder / name).read_bytes(), set()
    lines = {place + k for place, byte in enumerate(content) if byte == ord("\n") for k in range(-3, 4)}
    for length in sorted({*range(0, len(content), 7)} | {n for n in (*lines, 1, 2) if 0 <= n < len(content)}):
        record = damaged(folder / name, content[:length])
        outcomes.add(None if record is None else len(record.epochs))
        if record is not None:
            assert record.epochs == RUN[: len(record.epochs)]
    # the whole record is still there when the last line break alone is gone, but not where that tears a line
    torn = {None: {0, 1, 2}, "interrupted": {None}, "done": {None}}[status]
    assert outcomes == (torn if name == "epochs.jsonl" else {None, 3})


@pytest.mark.parametrize("name", PARTS)
def test_no_line_of_a_record_survives_a_changed_digit(intact: tuple[Path, Status | None], name: str) -> None:
    folder, _ = intact
    if not (folder / name).exists():
        assert read_record(folder).outcome is None, "a run in progress has no outcome"
        return
    content = (folder / name).read_bytes()
    for place in (i for i, byte in enumerate(content) if chr(byte).isdigit()):
        other = b"3" if content[place : place + 1] != b"3" else b"4"
        assert damaged(folder / name, content[:place] + other + content[place + 1 :]) is None, content[
            place - 20 : place
        ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("spec.json", {"spec": {"suite": "toy"}, "schema_version": 1}),
        ("spec.json", {"schema_version": 1}),
        ("outcome.json", {"status": "fine", "schema_version": 1}),
        ("epochs.jsonl", {"number": 0, "schema_version": 1}),
    ],
)
def test_a_sealed_file_of_another_content_is_refused_by_name(
    record_run: RecordRun, name: str, content: dict[str, object]
) -> None:
    path = record_run([1.0]) / name
    path.write_text(files.seal(content) + "\n", encoding="utf-8")
    with pytest.raises(RefusedFile, match=name):
        read_record(path.parent)


def test_an_epoch_out_of_order_is_refused_with_its_line(record_run: RecordRun) -> None:
    path = record_run([1.0, 2.0, 3.0], status=None) / "epochs.jsonl"
    first, second, third = path.read_text(encoding="utf-8").splitlines()
    path.write_text(f"{first}\n{third}\n{second}\n", encoding="utf-8")
    with pytest.raises(RefusedFile, match=r"epochs\.jsonl:2"):
        read_record(path.parent)


@pytest.mark.parametrize(
    ("count", "tail", "message"),
    [
        (1, "", r"holds 1 epochs.*outcome\.json counts 2"),
        (3, "", r"holds 3 epochs.*outcome\.json counts 2"),
        (2, '{"checksum":"12', "its last line is torn"),
    ],
)
def test_missing_and_surplus_epochs_of_an_ended_run_are_refused(
    count: int, tail: str, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, RUN[:2], "done") / "epochs.jsonl"
    path.write_text("".join(f"{line_of(epoch)}\n" for epoch in RUN[:count]) + tail, encoding="utf-8")
    with pytest.raises(RefusedFile, match=rf"epochs\.jsonl: .*{message}"):
        read_record(path.parent)


def test_an_interrupted_run_is_settled_up_to_its_last_epoch(tmp_path: Path) -> None:
    for status, expected in (("interrupted", [False, True, False]), ("done", [True] * 3), (None, [False] * 3)):
        record = read_record(write(tmp_path / str(status), RUN, status))
        assert [record.has_ended(until) for until in (None, 20, 21)] == expected


def test_a_torn_last_line_is_mended_when_the_run_is_claimed_again(tmp_path: Path) -> None:
    folder = write(tmp_path, RUN[:2], None)
    with (folder / "epochs.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"checksum":"12')
    store = locked(CATCH, tmp_path)
    assert store.epochs == RUN[:2]
    assert (folder / "epochs.jsonl").read_text(encoding="utf-8").endswith("}\n")
    store.append(RUN[2])
    store.release()
    assert read_record(folder).epochs == RUN


@pytest.mark.parametrize(
    "change",
    [
        {"env_steps": 17},
        {"updates": 2},
        {"collected": replace(COLLECTED, returns=(0.25,))},
        {"collected": replace(COLLECTED, lengths=(8,))},
        {"updated": Updated(count=1, means={"loss": 0.2, "q": 1e22})},
        {"evaluated": replace(EVALUATED, returns=(1.0, 0.0))},
        {"evaluated": replace(EVALUATED, lengths=(9, 11))},
        {"evaluated": replace(EVALUATED, seeds=(1, 3))},
    ],
    ids=str,
)
def test_repeated_epoch_changes_nothing_and_a_different_one_truncates_the_rest(
    change: dict[str, object], tmp_path: Path
) -> None:
    folder = write(tmp_path, RUN, "interrupted")
    before = (folder / "epochs.jsonl").read_bytes()
    store = locked(CATCH, tmp_path)
    slower = replace(COLLECTED, steps_per_second=1.0), replace(EVALUATED, seconds=9.0)
    store.append(replace(RUN[1], seconds=99.0, collected=slower[0], evaluated=slower[1]))  # the wall clock
    assert (folder / "epochs.jsonl").read_bytes() == before
    other = replace(RUN[1], **change)
    assert store.replaces(other)
    store.append(other)
    store.release()
    assert read_record(folder).epochs == (RUN[0], other)


def test_steps_are_those_of_the_environment_or_offline_those_of_the_gradient() -> None:
    progress = Progress(env_steps=7, updates=3, last_return=None)
    for record in (progress, replace(RUN[1], env_steps=7, updates=3), replace(outcome("done", 1), env_steps=7)):
        assert (record.steps, replace(record, env_steps=0, updates=3).steps) == (7, 3)


def test_a_resumption_notes_only_what_differs_from_the_process_before(tmp_path: Path) -> None:
    folder = write(tmp_path, RUN, "interrupted")
    for changes in ({"gpu": "a"}, {"gpu": "a"}, {"gpu": "b"}):
        note_resumption(folder, {"python": "3.11", **changes}, 3)
    assert [line.environment for line in read_record(folder).resumed] == [{"gpu": "a"}, {"gpu": "b"}]


@pytest.mark.parametrize(
    ("updates", "engine", "changes"),
    [
        ("numpy: where networks are small, else eager", "eager", []),
        ("numpy: where networks are small, else eager", "numpy", []),
        ("numpy", "eager", [{"updates": "eager"}]),
        ("eager: could not be compiled", "compiled", [{"updates": "compiled"}]),
        (None, "compiled", []),  # of an older rlbench
    ],
)
def test_a_resumption_with_the_engine_of_the_checkpoint_names_it_if_the_record_names_another(
    updates: str | None, engine: str, changes: list[dict[str, str]], tmp_path: Path
) -> None:
    folder = write(tmp_path, RUN, "interrupted")
    reseal(folder / "spec.json", lambda head: head["environment"].update(updates=updates))
    note_resumption(folder, {"python": "3.11", "updates": "eager: no CUDA GPU"}, 3, 70, engine)
    assert [line.environment for line in read_record(folder).resumed] == changes
    assert all((line.epoch, line.updates) == (3, 70) for line in read_record(folder).resumed)


def test_a_process_without_a_checkpoint_replaces_the_environment_of_those_before(tmp_path: Path) -> None:
    folder, data = write(tmp_path, RUN, "interrupted"), {"data": {"sha256": "b"}}
    note_resumption(folder, {"gpu": "a"}, 3)
    note_resumption(folder, data, 0)
    note_resumption(folder, data, 0)
    note_resumption(folder, {"gpu": "c", **data}, 3)
    record = read_record(folder)
    assert (record.environment, record.resumed) == (data, (Resumption(epoch=3, updates=0, environment={"gpu": "c"}),))


@pytest.mark.parametrize(
    ("line", "is_valid"),
    [({"epoch": 1, "environment": {}, "of a later version": 0}, True), ([1, {}], False), ({"epoch": 1}, False)],
)
def test_resumptions_are_objects_that_may_have_further_keys(line: object, is_valid: bool) -> None:
    with nullcontext() if is_valid else pytest.raises(RefusedFile, match="not a record of this schema"):
        assert resumptions({"resumed": [line]}, Path("spec.json")) == [Resumption(epoch=1, environment={})]


def test_run_folder_follows_from_its_spec(tmp_path: Path) -> None:
    folder = write(tmp_path, (), None)
    assert folder == folder_of(CATCH, tmp_path) == tmp_path / "toy" / "dqn" / "Catch" / CATCH.id / "seed=3"


def test_force_puts_every_attempt_aside_and_deletes_none(record_run: RecordRun) -> None:
    for score in (1.0, 2.0, 3.0):
        folder = record_run([score], force=True)
    (folder / "checkpoint").mkdir()
    shutil.rmtree(folder / "attempt-1")  # a number is never given again
    record_run([4.0], force=True)
    bests = {place.name: read_record(place).outcome.best for place in (folder, *folder.glob("attempt-*"))}
    assert bests == {"seed=0": 4.0, "attempt-2": 2.0, "attempt-3": 3.0}
    assert (folder / "attempt-3" / "checkpoint").is_dir()
    assert not (folder / "checkpoint").exists()


def test_settings_without_an_epoch_are_no_attempt(record_run: RecordRun) -> None:
    folder = record_run([1.0])
    for part in aside.ATTEMPT_PARTS:
        (folder / part).unlink(missing_ok=True)
    (folder / "crash.txt").touch()  # of a process that was killed while it set its networks up
    assert not aside.attempt_parts(folder)
    (folder / "crash.txt").write_text("Fatal Python error")
    assert aside.set_aside(folder) == folder / "attempt-1" and not aside.attempt_parts(folder)
    assert [attempt.name for attempt in attempts(folder)] == ["attempt-1"]


def test_a_run_that_goes_on_ends_the_move_of_a_killed_force(record_run: RecordRun, monkeypatch: Patch) -> None:
    folder = record_run([], status="failed")
    for kill in range(4):
        assert killed_at(monkeypatch, kill, lambda: aside.set_aside(folder)), "before the first move"
        assert attempts(folder) == ()
    aside.end_moves(folder)
    assert not list(folder.glob("attempt-*")), "a folder without a part of the record is no attempt"
    assert killed_at(monkeypatch, 4, lambda: aside.set_aside(folder)), "after the outcome was moved"
    assert (folder / "attempt-1" / aside.MOVING).exists() and not (folder / "outcome.json").exists()
    record_run([1.0], status=None)
    (folder / "checkpoint").mkdir()
    second = aside.set_aside(folder)
    assert second == folder / "attempt-2" and (folder / "attempt-1" / "outcome.json").exists()


@pytest.mark.parametrize("force", [False, True])
def test_what_follows_a_force_killed_after_its_last_move_is_another_attempt(
    record_run: RecordRun, monkeypatch: Patch, *, force: bool
) -> None:
    folder = record_run([], status="failed")
    assert killed_at(monkeypatch, 4, lambda: aside.set_aside(folder)) and not aside.attempt_parts(folder)
    record_run([1.0], status=None, force=force)
    assert aside.set_aside(folder) == folder / "attempt-2"


@pytest.mark.parametrize("failing", ["replace", "touch", "rename"])
def test_a_move_onto_a_full_disk_keeps_the_record(record_run: RecordRun, monkeypatch: Patch, failing: str) -> None:
    folder = record_run([1.0])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    new = Store.lock(read_record(folder).spec, folder.parents[4], {}, force=True)
    assert new is not None
    with monkeypatch.context() as patch:
        patch.setattr(disk if failing == "replace" else Path, failing, full)
        with pytest.raises(ResourceExhausted, match="No space left"):
            new.start_over()
    new.release()
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    record_run([2.0], force=True)
    (attempt,) = folder.glob("attempt-*")
    assert {path.name: path.read_bytes() for path in attempt.iterdir()} == before


def test_force_moves_nothing_where_the_record_is_changed_meanwhile(record_run: RecordRun) -> None:
    folder = record_run([1.0])
    new = Store.lock(read_record(folder).spec, folder.parents[4], {}, force=True)
    assert new is not None and new.outcome is None
    with (folder / "epochs.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(ResourceExhausted, match="was changed while the run was under way"):
        new.start_over()
    new.release()
    assert (folder / "outcome.json").exists() and not list(folder.glob("attempt-*"))


def test_a_record_is_moved_through_no_link(record_run: RecordRun, tmp_path: Path) -> None:
    folder = record_run([1.0])
    (tmp_path / "elsewhere").mkdir()
    (folder / "attempt-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedFile, match="attempt-1: is a link"):
        aside.set_aside(folder)
    assert (folder / "outcome.json").exists() and not any((tmp_path / "elsewhere").iterdir())


def test_a_folder_in_the_place_of_the_mark_of_a_move_is_no_attempt_under_way(record_run: RecordRun) -> None:
    folder = record_run([1.0])
    (folder / "attempt-1" / aside.MOVING).mkdir(parents=True)
    assert aside.set_aside(folder) == folder / "attempt-2"


def test_a_run_that_went_on_after_a_killed_force_is_an_attempt_of_its_own(record_run: RecordRun) -> None:
    folder = record_run([1.0])
    (folder / "checkpoint").mkdir()
    attempt = aside.set_aside(folder)
    assert attempt is not None and not (attempt / aside.MOVING).exists()
    (attempt / aside.MOVING).touch()  # as if a kill had left it
    record_run([2.0])
    (folder / "checkpoint").mkdir()
    assert aside.set_aside(folder) == folder / "attempt-2"


def test_force_starts_over_from_a_record_that_cannot_be_read(record_run: RecordRun) -> None:
    folder = record_run([1.0])
    (folder / "spec.json").write_text("{", encoding="utf-8")
    assert read_record(record_run([2.0], force=True)).epochs[0].evaluated is not None
    assert (folder / "attempt-1" / "spec.json").read_text(encoding="utf-8") == "{"


def test_a_record_that_is_put_aside_while_it_is_read_is_read_again(
    record_run: RecordRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = record_run([1.0, 2.0]), store.read_epochs

    def read_late(path: Path, *, complete: bool) -> tuple[Epoch, ...]:
        aside.set_aside(path)
        return read(path, complete=complete)

    monkeypatch.setattr(store, "read_epochs", read_late)
    record = read_record(folder)
    assert (record.epochs, record.outcome) == ((), None)


def test_a_record_that_is_moved_while_it_is_read_is_not_to_be_started_over(
    record_run: RecordRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = record_run([1.0, 2.0]), store.read_epochs

    def read_late(path: Path, *, complete: bool) -> tuple[Epoch, ...]:
        path.rename(path.with_name("moved"))
        return read(path, complete=complete)

    monkeypatch.setattr(store, "read_epochs", read_late)
    with pytest.raises(RefusedFile, match=r"seed=0: missing; .* run the same command again$"):
        read_record(folder)


def test_a_claim_of_a_damaged_record_is_refused_and_leaves_it_free(record_run: RecordRun, tmp_path: Path) -> None:
    (record_run([1.0]) / "outcome.json").write_text("{", encoding="utf-8")
    spec = suites.spec("atari", "dqn", "BreakoutNoFrameskip-v4")
    for _ in range(2):
        with pytest.raises(RefusedFile, match=r"outcome\.json"):
            Store.lock(spec, tmp_path / "results", {})


def test_another_run_in_the_folder_is_refused(record_run: RecordRun, tmp_path: Path) -> None:
    folder = record_run([1.0], seed=0)
    shutil.copytree(folder, folder.with_name("seed=1"))
    with pytest.raises(RefusedFile, match="holds another run"):
        Store.lock(suites.spec("atari", "dqn", "BreakoutNoFrameskip-v4", seed=1), tmp_path / "results", {})


def test_results_that_cannot_be_written_are_refused_with_the_option_to_choose_others(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written .*--results"):
        Store.lock(CATCH, tmp_path / "file", {})


def test_a_reader_sees_the_old_file_or_the_new_one_and_the_disk_has_it_before_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fsync, synced = tmp_path / "a.json", os.fsync, list[tuple[bool, str]]()

    def record_sync(handle: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(handle).st_mode), path.read_text()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record_sync)
    files.append(path, "line")
    files.replace(path, "new")
    assert synced == [(False, "line\n"), (True, "line\n"), (False, "line\n"), (True, "new")]
    assert list(tmp_path.iterdir()) == [path]


def test_nan_is_never_written(tmp_path: Path) -> None:
    store = locked(CATCH, tmp_path)
    broken = replace(COLLECTED, steps_per_second=float("nan"))
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.append(
            Epoch(number=0, env_steps=0, updates=0, seconds=0.0, collected=broken, updated=None, evaluated=None)
        )
    store.release()
    assert read_record(store.folder).epochs == ()


def test_every_line_is_json_that_any_tool_can_read(record_run: RecordRun) -> None:
    folder = record_run([1.0, 2.0])
    lines = [json.loads(line) for line in (folder / "epochs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["evaluated"]["returns"] for line in lines] == [[0.0, 2.0], [1.0, 3.0]]
    expected = {"number", "env_steps", "updates", "seconds", "collected", "updated", "evaluated", "schema_version"}
    assert all(expected <= set(line) for line in lines)


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())))
def test_the_json_of_a_sealed_line_is_its_content_without_the_seal(content: dict[str, object]) -> None:
    content = {**content, "schema_version": files.SCHEMA_VERSION, "zeta": 1}
    content.pop("checksum", None)
    line = files.seal(content)
    assert json.loads(files.unsealed_json(line, "line")) == files.unseal(line, "line")
    reordered = json.dumps(dict(reversed(json.loads(line).items())))
    assert json.loads(files.unsealed_json(reordered, "line")) == files.unseal(line, "line")
    forged = line.replace('"zeta":1', '"zeta":2')
    with pytest.raises(RefusedFile, match="line: damaged"):
        files.unsealed_json(forged, "line")


def test_a_lock_server_that_is_gone_ends_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = FolderLock(tmp_path)
    assert lock.acquire()
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(errno.ESTALE, "stale file handle")))
    lock.release()


def test_a_lost_run_keeps_its_counts_and_its_inexact_resumes(tmp_path: Path) -> None:
    store = locked(CATCH, tmp_path)
    store.append(conftest.epoch(0, 1.0, 40))
    store.finish(replace(outcome("interrupted", 1), inexact=(20,)))
    fail_lost_run(store, "it hangs")
    last = store.outcome
    assert last is not None and (last.status, last.env_steps, last.inexact) == ("failed", 40, (20,))
    store.release()
