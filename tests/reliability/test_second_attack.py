"""A second attack: links, numbers and texts of foreign folders that the first tests did not cover."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import cast

import pytest

from rlbench import disk
from rlbench.cli import app, replay
from rlbench.cli.resolve import resolve
from rlbench.cli.trackers import curves_in
from rlbench.datasets import checksums, download, minari
from rlbench.errors import RefusedFile, ResourceExhausted
from rlbench.records import files, manifest
from rlbench.records.store import Record, Store, folder_of, read_record
from rlbench.report import baseline, check, html_report, integrity, repeats
from rlbench.report.sources import Sources
from rlbench.run import _saved_computing
from tests.conftest import epoch
from tests.records.test_store import outcome

SPEC = resolve("toy", "dqn", "Catch").spec
TEXT = "\x1b]0;PWNED\x07"


def recorded(results: Path, environment: dict[str, object] | None = None) -> Path:
    """The folder of a run that is done, with a kept policy of no tensors."""
    store = Store.claim(SPEC, results, environment or {})
    assert store is not None
    store.append(epoch(0, 1.0, 0))
    store.finish(replace(outcome("done", 1), weights=None))
    store.release()
    folder = folder_of(SPEC, results)
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
    folder = recorded(tmp_path / "results")
    (tmp_path / "elsewhere").mkdir()
    place = folder / link
    if place.exists():
        shutil.move(place, tmp_path / "elsewhere" / "moved")
    place.symlink_to(tmp_path / "elsewhere" / "moved")
    if link == "checkpoint":  # which the search for runs meets first
        with pytest.raises(RefusedFile, match="is a link"):
            integrity.verified(tmp_path / "results")
    else:
        assert [fault.where for fault in integrity.verified(tmp_path / "results").faults] == [str(place)]
    if link != "attempt-1":
        with pytest.raises(RefusedFile, match="is a link"):
            manifest.read_manifest(folder / "checkpoint" / "best")


def test_an_attempt_is_read_through_no_link(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "results")
    (folder / "attempt-1").symlink_to(recorded(tmp_path / "others"))
    assert [attempt.status for attempt in repeats.attempts(folder)] == ["damaged"]


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
    environment = read_record(recorded(tmp_path, {"commit": TEXT, "packages": {"torch": TEXT}})).environment
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
    with pytest.raises(RefusedFile, match="threads"):
        _saved_computing(SPEC, "cpu", cast("Store", SimpleNamespace(folder=tmp_path)))


@pytest.mark.parametrize("value", ["?", 1, ["1"], None])
def test_invalid_environment_variable_in_a_record_is_refused(value: object) -> None:
    with (
        pytest.raises(RefusedFile, match="OMP_NUM_THREADS"),
        replay._variables(with_environment(OMP_NUM_THREADS=value)),
    ):
        raise AssertionError("it is set")


@pytest.mark.parametrize("field", ["suite", "algorithm", "task", "dataset", "id"])
def test_a_baseline_with_an_odd_name_is_refused(field: str, tmp_path: Path) -> None:
    cell = {"suite": "toy", "algorithm": "dqn", "task": "Catch", "dataset": "", "id": "0123"}
    content: dict[str, object] = {"kind": baseline.KIND, "schema_version": 1, "commits": [], "machines": []}
    for name, refused in ((cell[field], False), ("a|<b>", True), ("../x", True)):
        content["cells"] = [{**cell, field: name, "scores": {"0": 1.0}, "speeds": {}}]
        (tmp_path / "b.json").write_text(files.seal(content))
        if refused:
            with pytest.raises(RefusedFile, match="not a baseline"):
                baseline.read_baseline(tmp_path / "b.json")
        else:
            assert baseline.read_baseline(tmp_path / "b.json").entries


def test_a_strict_check_that_finds_nothing_to_check_does_not_pass() -> None:
    assert check.exit_code([], strict=True) == 4
    assert check.exit_code([], strict=False) == 0


def test_texts_of_a_record_are_not_template_marks(tmp_path: Path) -> None:
    store = Store.claim(SPEC, tmp_path, {"cpu": "{{machines}} {{nav}}"})
    assert store is not None
    store.append(epoch(0, 1.0, 0))
    store.finish(replace(outcome("failed", 1), reason="{{machines}} {{version}}"))
    store.release()
    text = html_report.page(["toy"], Sources(tmp_path))
    assert "{{machines}} {{version}}" in text


@pytest.mark.parametrize(
    "error",
    [ImportError("libtorch_cpu.so: failed to map segment from shared object"), OSError(12, "Cannot allocate memory")],
)
def test_out_of_memory_in_a_library_is_reported_as_such(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert app._unforeseen(error, debug=False) == 2
    assert capsys.readouterr().err.startswith("rlbench: memory is exhausted (")


ADDRESSES = {
    "127.0.0.1": True,
    "169.254.169.254": True,
    "10.0.0.1": True,
    "::1": True,
    "::ffff:127.0.0.1": True,
    "localhost": True,
    "8.8.8.8": False,
    "2001:4860:4860::8888": False,
    "": False,
    "a" * 70 + ".example": False,
}


@pytest.mark.parametrize("host", ADDRESSES)
def test_an_address_is_private_or_public(host: str) -> None:
    assert download.private(host) == ADDRESSES[host]


@pytest.fixture
def port() -> Iterator[int]:
    """A server whose ``/a`` leads to 127.0.0.1, ``/b`` to no address, and whose other files are three bytes."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = {"/a": f"http://127.0.0.1:{server.server_port}/c", "/b": "http://[x"}.get(self.path)
            self.send_response(302 if where else 200)
            self.send_header("Location" if where else "Content-Length", where or "3")
            self.end_headers()
            self.wfile.write(b"" if where else b"abc")

        def log_message(self, *words: object) -> None:
            del words

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


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
