"""Downloads from a local server with realistic faults."""

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import h5py
import numpy as np
import pytest
from filelock import FileLock
from numpy.typing import NDArray

from rlbench.datasets import catalogue, checksums, dataset_fetch, download
from rlbench.datasets.d4rl import read_d4rl
from rlbench.datasets.download import part_of
from rlbench.errors import DoesNotFit, RefusedFile, ResourceExhausted, UsageError
from tests.commands import stderr_of
from tests.serving import Server, serving

NAME = "hopper-medium-v2"
PATH = "/gym_mujoco_v2/hopper_medium-v2.hdf5"


@pytest.fixture
def server(content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A mirror of D4RL that serves ``content``, and an empty folder to download to."""
    behaviour = Server(files={PATH: content})
    with serving(behaviour.answer) as port:
        behaviour.url = f"http://127.0.0.1:{port}"
        monkeypatch.setenv(catalogue.MIRROR, behaviour.url)
        monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path / "d4rl"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr(download, "PAUSE", 0.0)
        yield behaviour


@pytest.fixture
def content(columns: dict[str, NDArray[np.generic]], write_flat: Callable[..., Path], tmp_path: Path) -> bytes:
    """A data set with Hopper's widths."""
    wide = {
        **columns,
        "observations": np.ones((30, 11), np.float32),
        "next_observations": np.ones((30, 11), np.float32),
        "actions": np.zeros((30, 3), np.float32),
    }
    return write_flat(wide, path=tmp_path / "made.hdf5").read_bytes()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "d4rl" / "hopper_medium-v2.hdf5"


@pytest.fixture(autouse=True)
def known_steps(monkeypatch: pytest.MonkeyPatch) -> int:
    """D4RL's number of steps is that of ``content``."""
    monkeypatch.setitem(catalogue.d4rl(), NAME, catalogue.d4rl()[NAME]._replace(steps=30))
    return 30


def fetch(patience: float = 5.0) -> list[download.DownloadProgress]:
    return list(dataset_fetch.download_dataset(NAME, patience=patience))


def stop_after_a_block() -> None:
    """Begin a download and end it as Ctrl-C does."""
    stopped = dataset_fetch.download_dataset(NAME)
    next(stopped)
    stopped.close()


def nothing_left_behind(target: Path) -> bool:
    return [path.name for path in target.parent.iterdir() if ".part" in path.name] == []


def test_a_file_arrives_whole_and_is_recorded(server: Server, content: bytes, target: Path) -> None:
    progress = fetch()
    assert target.read_bytes() == content
    assert progress[-1] == (len(content), len(content))
    seal = checksums.read_seal(target)
    assert (seal.sha256, seal.size, seal.url) == (sha256(content).hexdigest(), len(content), server.url + PATH)
    assert nothing_left_behind(target)
    assert (~read_d4rl(target).final).sum() == 30
    assert fetch() == []
    assert len(server.requests) == 1


def test_slow_server_is_tolerated(server: Server, content: bytes, target: Path) -> None:
    server.stall, server.block = 0.02, 2000
    assert len(fetch(patience=1.0)) >= 1
    assert target.read_bytes() == content


@pytest.mark.parametrize(("whole", "repeated_tag"), [("", True), ("*", True), ("", False)])
def test_interrupted_download_resumes(
    whole: str, repeated_tag: bool, server: Server, content: bytes, target: Path
) -> None:
    server.cut_after, server.whole, server.repeated_tag = 3000, whole, repeated_tag
    fetch()
    assert target.read_bytes() == content
    assert [requests for _, requests in server.requests][:3] == [None, "bytes=3000-", "bytes=6000-"]


def test_second_call_resumes_the_first_ones_part(server: Server, content: bytes, target: Path) -> None:
    server.cut_after = 3000
    stop_after_a_block()
    assert not target.exists()
    assert part_of(target).stat().st_size == 3000
    server.cut_after = None
    fetch()
    assert target.read_bytes() == content
    assert server.requests[-1] == (PATH, "bytes=3000-")


@pytest.mark.parametrize(
    ("tag", "other", "conditional"),
    [('"two"', b"", True), ('"two"', b"", False), (None, b"longer", True), (None, b"", True)],
)
def test_parts_of_two_files_are_never_joined(
    server: Server, content: bytes, target: Path, tag: str | None, other: bytes, conditional: bool
) -> None:
    server.files[PATH], server.cut_after, server.tag = content[::-1] + other, 3000, tag and '"one"'
    stop_after_a_block()
    server.files[PATH], server.cut_after, server.tag, server.conditional = content, None, tag, conditional
    fetch()
    assert target.read_bytes() == content


@pytest.mark.parametrize("shift", [-1000, 1000])
def test_range_with_another_begin_is_not_joined(server: Server, content: bytes, target: Path, shift: int) -> None:
    server.cut_after = 3000
    stop_after_a_block()
    server.cut_after, server.shift = None, shift
    with pytest.raises(ResourceExhausted, match=rf"requested byte 3000, the server sent {3000 + shift}-"):
        fetch()
    assert not target.exists() and part_of(target).read_bytes() == content[:3000]
    server.shift = 0
    fetch()
    assert target.read_bytes() == content


def test_download_that_does_not_fit_is_refused_before_it_starts(
    server: Server, content: bytes, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, real = len(content), shutil.disk_usage

    def free_bytes(free: int) -> None:
        monkeypatch.setattr(download.shutil, "disk_usage", lambda path: real(path)._replace(free=free))

    free_bytes(size - 1)
    with pytest.raises(DoesNotFit, match=f"{size:,} bytes are needed, {size - 1:,} are free"):
        fetch()
    assert not target.exists() and not part_of(target).exists()
    server.cut_after = 3000
    free_bytes(size)
    stop_after_a_block()
    server.cut_after = None
    free_bytes(size - 3001)
    with pytest.raises(DoesNotFit, match=f"{size - 3000:,} bytes are needed"):
        fetch()
    assert part_of(target).stat().st_size == 3000
    free_bytes(size - 3000)
    fetch()
    assert target.read_bytes() == content


def test_complete_part_file_needs_no_server(server: Server, content: bytes, target: Path) -> None:
    with download.locked_download(target):
        list(download.fetch_file(server.url + PATH, target))
    server.files.clear()
    fetch()
    assert target.read_bytes() == content


@pytest.mark.parametrize(
    ("lacking", "error", "reason"),
    [
        ("ranges", ResourceExhausted, "cut after 3,000 bytes"),
        ("announce", RefusedFile, "no whole HDF5 file .*; it was not kept"),
    ],
)
def test_server_without_ranges_or_length_restarts_the_download(
    lacking: str, error: type[Exception], reason: str, server: Server, content: bytes, target: Path
) -> None:
    server.cut_after = 3000
    setattr(server, lacking, False)
    with pytest.raises(error, match=reason):
        fetch()
    assert not target.exists() and nothing_left_behind(target) == (lacking == "announce")
    server.cut_after = None
    fetch()
    assert target.read_bytes() == content


@pytest.mark.parametrize(
    ("end", "reason"), [(slice(None), r"bytes, expected were"), (slice(-1), r"SHA-256 .* recorded on first use")]
)
def test_another_file_is_refused(end: slice, reason: str, server: Server, content: bytes, target: Path) -> None:
    fetch()
    target.unlink()
    server.files[PATH] = content[end] + b"x"
    with pytest.raises(RefusedFile, match=reason):
        fetch()
    assert not target.exists() and nothing_left_behind(target)


def test_a_file_that_was_uploaded_while_it_was_written_is_not_kept(
    server: Server, content: bytes, target: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "flagged.hdf5"
    with h5py.File(tmp_path / "open.hdf5", "w", libver="latest") as file:  # whose header says so
        file.flush()
        shutil.copy(tmp_path / "open.hdf5", copy)
    server.files[PATH] = copy.read_bytes()
    with pytest.raises(RefusedFile, match=r"is being written, .*; it was not kept"):
        fetch()
    server.files[PATH] = content
    fetch()
    assert target.read_bytes() == content and nothing_left_behind(target)


def test_a_disk_without_locks_is_named(server: Server) -> None:
    no_locks = mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "No locks available"))
    with no_locks, pytest.raises(UsageError, match="d4rl: cannot be locked; choose a folder on another disk"):
        fetch()
    assert not server.requests


def test_a_file_that_is_not_kept_is_refused_with_its_reason(server: Server, target: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "linked.hdf5", "w") as file:
        file["rewards"] = h5py.ExternalLink("other.hdf5", "rewards")
    linked = (tmp_path / "linked.hdf5").read_bytes()
    for body, reason in ((b"<html>Sign in</html>", "no whole HDF5 file"), (linked, "rewards: .*another file")):
        server.files[PATH] = body
        with pytest.raises(RefusedFile, match=f"{PATH}.*: {reason}.*; it was not kept"):
            fetch()
        assert not target.exists() and nothing_left_behind(target)


@pytest.mark.parametrize(
    ("status", "error", "requests"),
    [(404, UsageError, 1), (416, UsageError, 1), (503, ResourceExhausted, download.ATTEMPTS)],
)
def test_a_server_without_the_file_is_named(
    status: int, error: type[Exception], requests: int, server: Server, target: Path
) -> None:
    server.status = status
    with pytest.raises(error, match=f"{server.url}{PATH}: the server says {status}"):
        fetch()
    assert len(server.requests) == requests and nothing_left_behind(target)


def test_refused_connection_is_reported_in_one_line(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE", 0.0)
    with pytest.raises(ResourceExhausted, match="refused after 0 bytes"):
        list(download.fetch_file("http://127.0.0.1:9/x.hdf5", target))


def test_two_downloads_of_one_file_do_not_share_a_part(server: Server, content: bytes, target: Path) -> None:
    target.parent.mkdir()
    with FileLock(f"{part_of(target)}.lock"), pytest.raises(UsageError, match="another process"):
        fetch()


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_mirror_with_a_password_is_refused_and_never_shown(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(catalogue.MIRROR, f"{scheme}user:s3cret@127.0.0.1:9")
    for words in ("data show hopper-medium-v2", "data list --json", "data download hopper-medium-v2"):
        error = stderr_of(words)
        assert "RLBENCH_D4RL_MIRROR: is an address with a user's name" in error and "s3cret" not in error
    monkeypatch.setenv(catalogue.MIRROR, "http://127.0.0.1:9/@scope/")
    assert catalogue.d4rl()["hopper-medium-v2"].url.startswith("http://127.0.0.1:9/@scope/gym")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://[", "http://a:b", "http://a:99999", "http://a b"])
def test_what_is_no_http_address_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an http address"):
        list(download.fetch_file(url, tmp_path / "x"))


@pytest.mark.parametrize("name", [".part", ".part.json"])
def test_no_link_in_the_folder_is_written_through(name: str, server: Server, content: bytes, target: Path) -> None:
    server.cut_after = 3000
    stop_after_a_block()
    server.cut_after, server.tag, file = None, f'"{"one" * (name == ".part")}"', target.with_name(target.name + name)
    raw, precious = file.read_bytes(), file.rename(target.parent / "precious")
    file.symlink_to(precious)
    fetch()
    assert (target.read_bytes(), precious.read_bytes()) == (content, raw)


@pytest.mark.parametrize(
    "change", [*({"validator": value} for value in (["a"], "a\r\nHost: b", "\ud800", 1)), {"size": [1]}], ids=ascii
)
def test_another_program_s_origin_is_not_sent(
    change: dict[str, object], server: Server, content: bytes, target: Path
) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(content[:3000])
    origin = {"url": server.url + PATH, "size": len(content), "validator": None, **change}
    target.with_name(target.name + ".part.json").write_text(json.dumps(origin))
    fetch()
    assert target.read_bytes() == content


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
SILENT = "silent after 0 bytes; run the same command again"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("behaviour", "error", "reason"),
    [
        ({"announce": False}, RefusedFile, "sends more than 4,096 bytes"),
        ({"stall": 0.3, "block": 10}, ResourceExhausted, "bytes a second come"),
        ({"stall": 1.0}, ResourceExhausted, SILENT),
        ({"endless": (OK + b"X: ", b"y"), "stall": 0.1}, ResourceExhausted, SILENT),
        ({"endless": (b"", b"HTTP/1.1 100 Continue\r\n\r\n")}, ResourceExhausted, SILENT),
        ({"endless": (CHUNKED, b"0"), "stall": 0.1}, ResourceExhausted, SILENT),
        ({"endless": (CHUNKED + b"0\r\n", b"X: y\r\n")}, ResourceExhausted, SILENT),
        ({"endless": (b"SSH-2.0\r\n", b"")}, ResourceExhausted, "no answer of a web server"),
        ({"cut_after": 1}, ResourceExhausted, "the connection was cut after 4 bytes"),
        ({"endless": (b"HTTP/1.1 404 " + b"x" * 60_000 + b"\r\n\r\n", b"")}, UsageError, "404 x{100}…; check"),
    ],
    ids=["body", "slow", "silent", "header", "preliminary", "chunk", "trailers", "other", "drips", "reason"],
)
def test_endless_answer_is_given_up(
    behaviour: dict[str, object],
    error: type[Exception],
    reason: str,
    server: Server,
    target: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(download, "UNKNOWN_SIZE", 4_096)
    monkeypatch.setattr(download, "OPENING", 1)
    vars(server).update(behaviour)
    server.files[PATH] = bytes(50_000)
    with pytest.raises(error, match=reason):
        fetch(patience=0.4)
    assert not target.exists()
    if error is RefusedFile:
        assert not download.part_of(target).exists()


def test_a_slow_server_that_cuts_its_connections_is_given_up(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,100 bytes a connection, in 29 of 30 allowed seconds."""
    server.files[PATH], server.cut_after = bytes(50_000), 1_100
    clock = count(0.0, 14.5)
    monkeypatch.setattr(download, "time", SimpleNamespace(sleep=lambda _: None, monotonic=lambda: next(clock)))
    with pytest.raises(ResourceExhausted, match="the connection was cut after 4,400 bytes"):
        fetch(patience=1e6)
    part_of(target).unlink()
    server.files[PATH] = bytes(4_300)
    assert list(download.fetch_file(server.url + PATH, target, patience=1e6))[-1].done == 4_300, "the last one ends it"


@pytest.mark.parametrize(("name", "value", "begin"), [("Content-Length", "", 0), ("Content-Range", "bytes 5-9/", 5)])
@pytest.mark.parametrize(("text", "size"), [("9" * 5_000, 10**20 - 1), ("0", 0), ("*", 7)])
def test_announced_size(name: str, value: str, begin: int, text: str, size: int) -> None:
    unknown = None if text == "*" and not begin else size  # a length is a number
    assert download._total({name: value + text}, begin, 7) == unknown


def test_restarted_part_needs_no_extra_disk_space(
    server: Server, target: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = download.part_of(target)
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(3 * len(content)))
    usage = shutil.disk_usage(part.parent)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=4 * len(content) * (not part.exists()) or 1))
    fetch()
    assert target.read_bytes() == content


def test_body_without_a_length_does_not_fill_the_disk(
    server: Server, target: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.announce = False
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(download, "_write_block", full)
    with pytest.raises(ResourceExhausted, match="No space left"):
        fetch()
    assert not download.part_of(target).exists()


@pytest.mark.parametrize(("steps", "fits"), [(31, True), (29, True), (33, False), (1_000_000, False), (None, True)])
def test_a_file_of_another_number_of_steps_than_d4rl_states_is_not_kept(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, steps: int | None, fits: bool
) -> None:
    monkeypatch.setitem(catalogue.d4rl(), NAME, catalogue.d4rl()[NAME]._replace(steps=steps))
    with nullcontext() if fits else pytest.raises(RefusedFile, match=r"PATH.*: has 30 steps".replace("PATH", PATH)):
        fetch()
    assert target.exists() == fits and nothing_left_behind(target)


@pytest.mark.parametrize(
    ("column", "problem"),
    [("observations", "its columns differ in length"), ("actions", "rows that were never written")],
)
def test_a_file_of_which_a_column_is_short_or_unwritten_is_not_kept(
    column: str, problem: str, server: Server, content: bytes, target: Path, tmp_path: Path
) -> None:
    (tmp_path / "made.hdf5").write_bytes(content)
    with h5py.File(tmp_path / "made.hdf5", "r+") as file:
        values = np.asarray(file[column])
        del file[column]
        if column == "observations":
            file[column] = values[:-1]
        else:
            file.create_dataset(column, shape=values.shape, dtype="f4", chunks=True)
    server.files[PATH] = (tmp_path / "made.hdf5").read_bytes()
    with pytest.raises(RefusedFile, match=problem):
        fetch()
    assert not target.exists() and nothing_left_behind(target)
