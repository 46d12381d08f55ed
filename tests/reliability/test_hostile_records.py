"""R10, R6: links, special files, texts and numbers in foreign results, data and baselines are refused by name."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlbench import disk
from rlbench.cli import app, completion, replay
from rlbench.cli.output import write_file
from rlbench.cli.resolve import resolve
from rlbench.cli.trackers import TensorBoard, Wandb, curves_in
from rlbench.config.footprint import footprint
from rlbench.config.run import Spec
from rlbench.datasets import (
    catalogue,
    checksums,
    download,
    minari,
    policies,
    recording_format,
    recording_writer,
    sb3_import,
    tfrecord,
)
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError
from rlbench.records import attempts, files, manifest
from rlbench.records.store import Record, Store, folder_of, read_record
from rlbench.records.types import Outcome
from rlbench.report import baseline, check, exports, integrity, pages, runs
from rlbench.report.evidence import Evidence
from rlbench.report.remaining_work import remaining_runs
from rlbench.run import _saved_numerics
from tests.behavior.test_offline import write
from tests.commands import json_of, run_command, stderr_of, stdout_of
from tests.conftest import Patch, RecordRun, epoch
from tests.forging import locked
from tests.records.test_store import outcome
from tests.serving import serving

SPEC = resolve("toy", "dqn", "Catch").spec
TEXT = "\x1b]0;PWNED\x07"


def record_epoch(
    results: Path, environment: dict[str, object] | None = None, end: Outcome | None = None, spec: Spec = SPEC
) -> Path:
    """The folder of a run with one epoch."""
    store = locked(spec, results, environment)
    store.append(epoch(0, 1.0, 0))
    if end is not None:
        store.finish(end)
    store.release()
    return store.folder


def finished_run(results: Path, environment: dict[str, object] | None = None) -> Path:
    """The folder of a run that is done, with a kept policy of no tensors."""
    folder = record_epoch(results, environment, outcome("done", 1))
    (folder / "checkpoint" / "best").mkdir(parents=True)
    manifest.write_manifest(folder / "checkpoint" / "best", manifest.Manifest({}, {"epoch": 0, "threads": 1}, {}))
    return folder


def test_a_file_is_replaced_through_no_link_under_its_temporary_name(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "t.tmp").symlink_to(tmp_path / "precious")
    disk.replace(tmp_path / "file", b"new", tmp_path / "t.tmp")
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("link", ["checkpoint", "checkpoint/best", "attempt-1"])
def test_a_link_in_a_run_is_a_fault_and_no_checkpoint_is_read_through_it(link: str, tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "results")
    (tmp_path / "elsewhere").mkdir()
    place = folder / link
    if place.exists():
        shutil.move(place, tmp_path / "elsewhere" / "moved")
    place.symlink_to(tmp_path / "elsewhere" / "moved")
    if link == "checkpoint":  # which the search for runs meets first
        with pytest.raises(RefusedFile, match="is a link"):
            integrity.verify_records(tmp_path / "results")
    else:
        assert [fault.where for fault in integrity.verify_records(tmp_path / "results").faults] == [str(place)]
    if link != "attempt-1":
        with pytest.raises(RefusedFile, match="is a link"):
            manifest.read_manifest(folder / "checkpoint" / "best")


def test_an_attempt_is_read_through_no_link(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "results")
    (folder / "attempt-1").symlink_to(finished_run(tmp_path / "others"))
    with pytest.raises(RefusedFile, match="attempt-1: is a link"):
        runs.attempts(folder)


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_curves_are_written_behind_no_link(depth: int, tmp_path: Path) -> None:
    path = curves_in(tmp_path / "tracked", SPEC)
    place = [path, *path.parents][depth]
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path)
    with pytest.raises(RefusedFile, match="is a link"):
        curves_in(tmp_path / "tracked", SPEC)


def test_the_description_of_data_that_is_larger_than_any_is_refused(tmp_path: Path) -> None:
    for name in ("metadata.json", "main_data.hdf5.sha256.json"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 2**30)
    (tmp_path / "data").symlink_to(tmp_path)
    with pytest.raises(RefusedFile, match="damaged"):
        minari.minari_metadata(tmp_path)
    with pytest.raises(RefusedFile, match="damaged"):
        checksums.read_seal(tmp_path / "main_data.hdf5")


def test_texts_of_a_records_environment_are_printable(tmp_path: Path) -> None:
    environment = read_record(finished_run(tmp_path, {"commit": TEXT, "packages": {"torch": TEXT}})).environment
    assert environment == {"commit": "?]0;PWNED?", "packages": {"torch": "?]0;PWNED?"}}


def with_environment(**environment: object) -> Record:
    return Record(folder=Path("f"), spec=SPEC, environment=environment, epochs=(), outcome=None)


@pytest.mark.parametrize("threads", [0, -1, 10**9, True, "x"])
def test_invalid_number_of_threads_in_a_record_or_checkpoint_is_refused(threads: object, tmp_path: Path) -> None:
    with pytest.raises(RefusedFile, match="torch_threads"):
        replay._runtime(with_environment(torch_threads=threads))
    resume = tmp_path / "checkpoint" / "resume"
    resume.mkdir(parents=True)
    values = {"device": "cpu", "engine": "eager", "threads": threads, "run/spec": SPEC.id, "run/seed": SPEC.seed}
    text = files.seal({"schema_version": 1, "files": {}, "values": values, "split": {}})
    (resume / manifest.NAME).write_text(text)
    store = SimpleNamespace(folder=tmp_path, spec=SPEC, environment_sums=(), epoch_sums=())
    with pytest.raises(RefusedFile, match="threads"):
        _saved_numerics(store, "cpu")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("OMP_NUM_THREADS", value) for value in ("?", 1, ["1"], None, "4,9999")),
        ("OMP_NUM_THREADS", "200000"),  # libgomp's stack overflows: a segmentation fault
        *(("MKL_NUM_THREADS", "10" * 30), ("OMP_WAIT_POLICY", "x" * 1_000), ("MKL_CBWR", "a/b")),
    ],
)
def test_a_replay_sets_no_invalid_variable_of_a_record(name: str, value: object) -> None:
    with pytest.raises(RefusedFile, match=name), replay.recorded_variables(with_environment(**{name: value})):
        raise AssertionError("it is set")


def test_texts_of_a_record_are_not_template_marks(tmp_path: Path) -> None:
    failure = replace(outcome("failed", 1), reason="{{machines}} {{version}}")
    record_epoch(tmp_path, {"cpu": "{{machines}} {{nav}}"}, failure)
    assert "{{machines}} {{version}}" in pages.html_page(["toy"], Evidence(tmp_path))


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "memory is exhausted ("),
        (OSError(12, "Cannot allocate memory"), "memory is exhausted ("),
        (MemoryError(), "memory is exhausted (MemoryError()); free"),
        (RuntimeError("can't start new thread"), "memory is exhausted ("),
        (OSError(24, "Too many open files"), "Too many open files: raise `ulimit -n`"),
        (RuntimeError("unable to open file <x>: Too many open files (24)"), "Too many open files: raise `ulimit -n`"),
        (FileExistsError(17, "File exists", "/dev/null"), "/dev/null: File exists; check"),
        (OSError(30, "Read-only file system", "/x"), "/x: Read-only file system; check"),
    ],
)
def test_no_error_of_the_system_is_a_bug(error: Exception, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app._unforeseen(error, debug=False) == (5 if "memory" in start else 2)
    assert capsys.readouterr().err.startswith(f"rlbench: {start}")


PRIVATE = ("127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1", "localhost")
PUBLIC = ("8.8.8.8", "2001:4860:4860::8888", "", "a" * 70 + ".example")


@pytest.mark.parametrize("host", [*PRIVATE, *PUBLIC])
def test_an_address_is_private_or_public(host: str) -> None:
    assert download.private(host) == (host in PRIVATE)


@pytest.fixture
def port() -> Iterator[int]:
    """A server whose ``/a`` leads to 127.0.0.1, ``/b`` to no address, and whose other files are three bytes."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        own = request.server.server_address[1]
        where = {"/a": f"http://127.0.0.1:{own}/c", "/b": "http://[x"}.get(request.path)
        request.send_response(302 if where else 200)
        request.send_header("Location" if where else "Content-Length", where or "3")
        request.end_headers()
        request.wfile.write(b"" if where else b"abc")

    with serving(answer) as port:
        yield port


def fetch(url: str, target: Path) -> bytes:
    list(download.fetch_file(url, target))
    return download.part_of(target).read_bytes()


def test_a_redirect_leads_into_no_private_network(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch(f"http://127.0.0.1:{port}/a", tmp_path / "mirror") == b"abc"
    monkeypatch.setattr(download, "private", lambda host: host != "localhost")
    with pytest.raises(RefusedFile, match=r"redirects to 127\.0\.0\.1"):
        fetch(f"http://localhost:{port}/a", tmp_path / "public")


def test_a_redirect_to_no_address_halts(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE", 0.0)
    with pytest.raises(ResourceExhausted, match="no address"):
        fetch(f"http://127.0.0.1:{port}/b", tmp_path / "file")


WRITERS: dict[str, Callable[[Path], object]] = {
    "epochs.jsonl": lambda results: Store.lock(SPEC, results, {}),
    "crash.txt": lambda results: Store.lock(SPEC, results, {}),
    "log.txt": lambda results: attempts.open_log(folder_of(SPEC, results)).close(),
    "attempts.jsonl": lambda results: attempts.note(folder_of(SPEC, results), {"event": "begun"}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_of_a_record_with_a_second_name_is_not_appended_to(name: str, tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", record_epoch(tmp_path / "results") / name
    link.touch()
    os.link(link, precious)
    before = precious.read_bytes()
    with pytest.raises(RefusedFile, match=f"{name}: has a second name"):
        WRITERS[name](tmp_path / "results")
    assert precious.read_bytes() == before


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_LINE_LENGTH"])
def test_an_epoch_that_no_reader_would_take_is_not_appended(limit: str, tmp_path: Path, monkeypatch: Patch) -> None:
    folder = record_epoch(tmp_path)
    store, before = locked(SPEC, tmp_path), read_record(folder).epochs
    assert before[0].collected is not None
    collected = replace(before[0].collected, returns=(0.0,) * 1000)
    with monkeypatch.context() as patched:
        patched.setattr(files, limit, 2000)
        with pytest.raises(ResourceExhausted, match=r"larger than readers allow; use fewer protocol\.episodes"):
            store.append(replace(before[0], number=1, collected=collected))
    store.release()
    assert read_record(folder).epochs == before


def test_a_dangling_link_is_not_replaced(tmp_path: Path) -> None:
    """As /dev/stdout is one if stdout is closed."""
    (tmp_path / "link").symlink_to("missing")
    with pytest.raises(RefusedFile, match="link"):
        exports.update_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()


def test_curves_are_appended_to_no_file_with_a_second_name(tmp_path: Path) -> None:
    (tmp_path / "curves").write_bytes(b"old")
    os.link(tmp_path / "curves", tmp_path / "precious")
    with pytest.raises(RefusedFile, match="second name"):
        exports.update_file(tmp_path / "curves", b"older", append=True)
    exports.update_file(tmp_path / "curves", b"new")  # a replaced file is another one
    assert (tmp_path / "precious").read_bytes() == b"old"


READERS: dict[str, Callable[[Path], object]] = {
    "a shard of recordings": recording_format.read_segment,
    "the head of recordings": recording_writer.read_sealed_set,
    "a policy": policies.read_policy_file,
    "a policy of Stable-Baselines3": lambda path: sb3_import.convert_sb3(path, task="Hopper-v4"),
    "any data": checksums.compute_seal,
    "a shard of TensorFlow": lambda path: list(tfrecord.records(path)),
    "a short text": disk.content,
}
BOUNDED = ("a shard of recordings", "the head of recordings", "a policy", "a short text")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("reader", READERS)
def test_data_are_read_from_no_special_file(reader: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("fifo", "zero"):
        with pytest.raises(RefusedFile, match="is no regular file"):
            READERS[reader](tmp_path / name)


@pytest.mark.parametrize("reader", BOUNDED)
def test_oversized_data_file_is_refused_unread(reader: str, tmp_path: Path) -> None:
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 2**40)
    with pytest.raises(RefusedFile, match="1,099,511,627,776 bytes"):
        READERS[reader](tmp_path / "huge")


@pytest.mark.parametrize("link", ["marker", "folder"])
def test_wandb_log_count_is_not_written_through_a_link(link: str, record_run: RecordRun, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    where, record = tmp_path / "wandb", read_record(record_run([1.0]))
    if link == "folder":
        where.symlink_to(tmp_path)
    else:
        where.mkdir()
        (where / f"{record.spec.id}-0.logged").symlink_to(tmp_path / "precious")
    run = SimpleNamespace(offline=True, step=0, log=lambda *_, **__: None, finish=lambda **_: None)
    tracker = Wandb(SimpleNamespace(init=lambda **_: run), where)
    if link == "folder":
        with pytest.raises(RefusedFile, match="is a link"):
            tracker.take(record)
        assert not list(tmp_path.glob("*.logged"))
    else:
        tracker.take(record)
        assert (where / f"{record.spec.id}-0.logged").read_text() == "1\n"
    assert (tmp_path / "precious").read_text() == "precious"


def test_tensorboard_writes_through_no_link(record_run: RecordRun, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (where := tmp_path / "tensorboard").symlink_to(tmp_path / "victim")
    with pytest.raises(RefusedFile, match="is a link"):
        TensorBoard(where).take(read_record(record_run([1.0])))
    assert not list((tmp_path / "victim").iterdir())


def test_a_file_of_the_current_folder_changes_no_plot(tmp_path: Path) -> None:
    """A FIFO of matplotlib's name would hang its import."""
    os.mkfifo(tmp_path / "matplotlibrc")
    words = [sys.executable, "-P", "-c", "import rlbench.report.plots, os; print(os.getcwd())"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"{tmp_path}\n", "")


def test_memory_is_estimated_from_the_rows_of_the_given_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    spec = resolve("offline", "il", "hopper-medium-v2").spec
    for row_count in (None, 312):  # 300 steps of twelve episodes
        if row_count is not None:
            write(tmp_path / catalogue.d4rl()["hopper-medium-v2"].file, steps=300)
        rows = remaining_runs("offline", Evidence(tmp_path))
        assert {
            json_of("show offline il hopper-medium-v2 --json")["memory"]["total"],
            json_of("run offline il --task hopper-medium-v2 --dry-run --json")["plan"][0]["memory"],
            next(row.memory for row in rows if row.key.dataset == spec.task.id),
        } == {footprint(spec, steps=row_count).total}


def test_a_run_on_a_file_is_replayed_on_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path / "none"))
    data, other = (str(write(tmp_path / f"{name}.hdf5", seed=seed)) for seed, name in enumerate(("some", "other")))
    run = ["run", "offline", "il", "--task", "Hopper-v4", "--dataset", data, "--smoke", "--quiet", "--device", "cpu"]
    assert run_command([*run, "--eval-workers", "0"])[0] == 0
    replay = ["verify", "--replay", str(next(tmp_path.glob("results/**/seed=0"))), "--epochs", "0"]
    assert "--dataset" in stderr_of(replay)
    error = stderr_of([*replay, "--dataset", other])
    assert "is another" in error and error.endswith("; name the file that it learned from with --dataset\n")
    assert run_command([*replay, "--dataset", data])[0] == 0
    Path(data).write_bytes(Path(data).read_bytes() + b"0")
    assert "name the file that it learned from" not in stderr_of([*replay, "--dataset", data])


def test_a_replay_that_does_not_fit_into_memory_is_refused_with_the_number(tmp_path: Path) -> None:
    spec = resolve("toy", "dqn", "Catch", sets=["algo.replay.capacity=100000000000"]).spec
    folder = record_epoch(tmp_path, {"device": "cpu", "torch_threads": 1}, spec=spec)
    assert "on this machine, which has" in stderr_of(f"verify --replay {folder} --epochs 0")


CELL = {"suite": "toy", "algorithm": "dqn", "task": "Catch", "dataset": "", "id": "0123", "speeds": {}}
BASELINES: dict[str, Callable[[dict[str, object]], list[dict[str, object]]]] = {
    **{
        f"the {field} {name}": lambda cell, field=field, name=name: [{**cell, field: name}]
        for field in ("suite", "algorithm", "task", "dataset", "id")
        for name in ("a|<b>", "../x")
    },
    "a number whose square is none": lambda cell: [{**cell, "scores": {"0": 1e308, "1": -1e308}}],
    "a truth value": lambda cell: [{**cell, "scores": {"0": True}}],
    "no score": lambda cell: [{**cell, "scores": {}}],
    "a machine without a speed": lambda cell: [{**cell, "speeds": {"cpu": []}}],
    "a seed twice": lambda cell: [{**cell, "scores": {"0": 1.0, "00": 0.0}}],
    "a cell twice": lambda cell: [cell, {**cell, "scores": {"0": -1.0}}],
}


@pytest.mark.parametrize("harm", BASELINES)
def test_a_forged_baseline_is_refused(harm: str, tmp_path: Path) -> None:
    cell: dict[str, object] = {**CELL, "scores": {"0": 1.0}}
    content = {"kind": baseline.KIND, "schema_version": 1, "commits": [], "machines": []}
    path = tmp_path / "b.json"
    path.write_text(files.seal({**content, "cells": [cell]}))
    assert baseline.read_baseline(path).cells
    path.write_text(files.seal({**content, "cells": BASELINES[harm](cell)}))
    with pytest.raises(RefusedFile, match="not a baseline"):
        baseline.read_baseline(path)


@pytest.mark.parametrize(("words", "code"), [([], 4), (["NEW"], 4), (["NEW", "PASSED"], 0)])
def test_a_strict_check_that_finds_nothing_to_compare_does_not_pass(words: list[str], code: int) -> None:
    cell = {"suite": "toy", "algorithm": "dqn", "task": "Catch", "aspect": "score", "reason": ""}
    findings = [check.Finding(word=word, **cell) for word in words]
    assert (check.exit_code(findings, strict=True), check.exit_code(findings, strict=False)) == (code, 0)


@pytest.mark.parametrize("option", ["--junit", "--summary"])
def test_folder_in_place_of_a_file_is_a_usage_error(option: str, tmp_path: Path) -> None:
    assert "is a folder; name a file" in stderr_of(f"check toy --results {tmp_path} {option} {tmp_path}")


@pytest.mark.parametrize(
    "name", ["seed=0/spec.json", "seed=0/curve.json", "seed=0/checkpoint/x", "seed=0/attempt-1/x", "looks.json", "link"]
)
def test_no_output_replaces_a_file_of_a_record(name: str, tmp_path: Path) -> None:
    path, message = tmp_path / name, "is a file of a run's record; name another file"
    (tmp_path / "seed=0/checkpoint").mkdir(parents=True)
    (tmp_path / "seed=0/attempt-1").mkdir()
    (tmp_path / "none").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "seed=0/epochs.jsonl")
    path.write_text("{}")
    assert message in stderr_of(f"export csv --output {path} --results {tmp_path / 'none'}")
    with pytest.raises(UsageError, match=message):
        write_file(path, "")
    assert path.read_text() == "{}"
    write_file(tmp_path / "seed=0/game.mp4", "")


def test_no_name_of_a_data_set_reaches_a_shell_or_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path))
    for name in ("rlb-plain", "rlb-$(touch canary)", "rlb-\x1b[2J\u202e"):
        (tmp_path / f"{name}.hdf5").touch()
    offers, listing = completion.datasets(), stdout_of("data list") + stdout_of("data list --json")
    assert "rlb-plain" in offers and not {"$", "\x1b", "\u202e"} & set("".join(offers) + listing.replace("$(touch", ""))


def test_a_field_of_a_record_whose_name_does_not_print_reaches_no_terminal(tmp_path: Path) -> None:
    store = locked(SPEC, tmp_path)
    store.release()
    path = store.folder / "spec.json"
    head = files.read_sealed(path)
    path.write_text(files.seal({**head, "spec": {**SPEC.model_dump(mode="json"), "\x1b]0;PWNED\x07\u202e": 1}}))
    code, out, _ = run_command(f"verify {tmp_path}")
    assert code == 2 and "not a spec of this schema" in out
    assert all(line.isprintable() for line in out.split("\n"))
