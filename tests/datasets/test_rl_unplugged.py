"""RL Unplugged's shards: read whole in any order, or refused by name and byte."""

import gzip
import os
import signal
import struct
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from errno import EACCES, EIO
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from unittest.mock import Mock
from zlib import compress, crc32

import numpy as np
import pytest
from hypothesis import example as such
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as other_crc32c

from rlbench import disk
from rlbench.datasets import recording_reader, recording_writer, rl_unplugged, shard_conversion
from rlbench.datasets.crc32c import crc32c
from rlbench.datasets.episodes import Dataset
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.datasets.rl_unplugged import Shard
from rlbench.datasets.shard_conversion import Conversion
from rlbench.datasets.tfrecord import example, records
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError
from tests.datasets import rl_unplugged_writer
from tests.datasets.rl_unplugged_writer import Transition, episode, features_of, frame_of, png, shard


def read(path: Path, folder: Path) -> Dataset:
    """A shard as it is read when it was imported."""
    writer = RecordingWriter(folder)
    counts = rl_unplugged.convert_shard(path, writer)
    recording_writer.finish(folder, writer.digests, counts)
    return recording_reader.read_recording(folder)


@given(st.binary(max_size=2000))
@such(b"123456789")
def test_checksum_is_crc32c(data: bytes) -> None:
    assert crc32c(b"123456789") == 0xE3069283 and crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(data) == other_crc32c(data)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=9),
        st.lists(st.binary(max_size=300), min_size=1, max_size=5)
        | st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5)
        | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    )
)
def test_any_example_is_parsed(features: dict[str, object]) -> None:
    assert example(rl_unplugged_writer.example(features)) == features


def test_records_have_their_byte_positions(tmp_path: Path) -> None:
    path = shard(tmp_path / "s", episode(1, 3))
    data = list(records(path))
    assert [at for at, _ in data] == [0, len(data[0][1]) + 16, len(data[0][1]) + len(data[1][1]) + 32]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "x.frames"


@pytest.mark.parametrize("order", ["played", "backwards", "shuffled"])
def test_episodes_are_assembled_with_every_frame_once(tmp_path: Path, folder: Path, order: str) -> None:
    content = [*episode(1, 7), *episode(2, 4, ended=False), *episode(3, 1)]
    shuffled = np.random.default_rng(1).permutation(12).tolist()
    rows = {"played": range(12), "backwards": range(11, -1, -1), "shuffled": shuffled}[order]
    data = read(shard(tmp_path / "s", [content[i] for i in rows]), folder)
    assert data.obs.shape == (7 + 4 + 1 + 3, 84, 84) and data.obs.dtype == np.uint8
    lengths = {1: 7, 2: 4, 3: 1}
    ends = np.flatnonzero(data.final).tolist()
    numbers = []
    for start, end in zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True):
        number = next(n for n in lengths if (data.obs[start] == frame_of(1000 * n + 1)).all())
        numbers.append(number)
        assert end - start == lengths[number]
        for k in range(lengths[number] + 1):
            np.testing.assert_array_equal(data.obs[start + k], frame_of(1000 * number + k + 1))
        k = np.arange(lengths[number])
        np.testing.assert_array_equal(data.action[start:end], k % 6)
        np.testing.assert_array_equal(data.reward[start:end], k % 3 - 1)
        np.testing.assert_array_equal(data.terminated[start:end], (k == k[-1]) & (number != 2))
        np.testing.assert_array_equal(data.truncated[start:end], (k == k[-1]) & (number == 2))
    assert sorted(numbers) == [1, 2, 3] and (order != "played" or numbers == [1, 2, 3])


def test_mid_game_line_begins_with_its_preceding_frames(tmp_path: Path, folder: Path) -> None:
    """Two steps and an end; three frames before the seventh; three steps and an end."""
    content = episode(1, 9)
    data = read(shard(tmp_path / "s", [*content[:2], *content[6:]]), folder)
    assert all((frame_of(1001 + k) == frame).all() for k, frame in zip(range(10), data.obs, strict=True))
    assert data.final.tolist() == [False, False, True, True, True, True, False, False, False, True]
    assert data.truncated.tolist() == [False, True, *[False] * 8] and np.flatnonzero(data.terminated).tolist() == [8]
    counts = {"transitions": 5, "lines": 2, "leading": 3, "episodes": 1}
    assert recording_reader.metadata(folder) == counts


def test_identical_frames_are_each_stored_once() -> None:
    """Moments at which nothing moves."""
    frame = [frame_of(3)] * 4
    still = example(rl_unplugged_writer.example(features_of(Transition(frame, 0, 0.0, 1.0, frame, 0, 5))))
    for count in (5, 1):
        records = Shard(Path("s"))
        for at in range(count):
            records.add(at, still)
        assert records.trajectories() == [list(range(count))]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=30))
def test_every_record_is_in_one_consistent_line(rows_of_line: list[tuple[int, int, bool]]) -> None:
    records = Shard(Path("s"))
    for before, after, over in rows_of_line:
        records.stacks.append((before,) * 4)
        records.next_stacks.append((after,) * 4)
        records.action.append(before % 2)
        records.next_action.append(after % 2)
        records.terminated.append(over)
        records.reward.append(0.0)
        records.episode.append(0)
    lines = records.trajectories()
    assert sorted(i for line in lines for i in line) == list(range(len(rows_of_line)))
    for line in lines:
        for one, other in pairwise(line):
            assert records.next_stacks[one] == records.stacks[other] and not records.terminated[one]
            assert records.next_action[one] == records.action[other]


SMALL = [png(np.zeros((42, 84), np.uint8))] * 4
LONG = [1] * 2**21


def twice(side: int) -> list[bytes]:
    """PNGs with a second header, of another size."""
    head, last = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0), compress(bytes(min(side, 84) * (side + 1)))
    chunks = [(b"IHDR", head), (b"IDAT", last), (b"IEND", b"")]
    parts = [struct.pack(">I", len(b)) + a + b + struct.pack(">I", crc32(a + b)) for a, b in chunks]
    return [png(frame_of(1))[:33] + b"".join(parts)] * 4


NO_PROFILE = png(frame_of(1))[:-12] + b"\0\0\0\0iCCP" + struct.pack(">I", crc32(b"iCCP")) + png(frame_of(1))[-12:]
COLOURED = [png(np.zeros((84, 84, 3), np.uint8))] * 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"o_t": None}, "o_t: 4 of bytes were expected"),
        ({"a_t": [1.5]}, "a_t: 1 of int were expected"),
        ({"a_t": [-1]}, "a_t: -1 is no action of Atari"),
        ({"a_t": [18]}, "a_t: 18 is no action of Atari"),
        ({"r_t": [float("nan")]}, "r_t: nan is no reward"),
        ({"d_t": [float("nan")]}, "d_t: nan is no discount"),
        ({"r_t": [1.0, 2.0]}, "r_t: 1 of float were expected"),
        ({"o_tp1": SMALL}, "o_tp1: no grey PNG of 84×84"),
        ({"o_t": COLOURED}, "o_t: no grey PNG of 84×84"),
        ({"o_t": [b"GIF89a"] * 4}, "o_t: no grey PNG of 84×84"),
        ({"o_t": [png(frame_of(1))[:-40]] * 4}, "a damaged PNG"),
        ({"o_t": twice(9)}, "a damaged PNG"),
        ({"o_t": twice(60_000)}, "a damaged PNG"),
        ({"o_t": [NO_PROFILE] * 4}, "a damaged PNG"),
        ({"episode_id": LONG}, r"it has [\d,]+ bytes, 1,048,576 are allowed"),
    ],
)
def test_records_of_something_else_are_refused_by_byte(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    path = shard(tmp_path / "odd", episode(1, 2), **changes)
    with pytest.raises(RefusedFile, match=f"odd: record at byte 0: .*{reason}"):
        read(path, tmp_path / "x.frames")


def test_a_wrong_checksum_a_cut_gzip_and_no_gzip_are_refused_by_byte(tmp_path: Path) -> None:
    path = shard(tmp_path / "s", episode(1, 3))
    raw, second = gzip.decompress(path.read_bytes()), [at for at, _ in records(path)][1]

    def flipped(at: int) -> bytes:
        return gzip.compress(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :], 1)

    for content, reason in (
        (flipped(second + 2), f"byte {second:,}: the length's CRC-32C"),
        (flipped(second + 40), f"byte {second:,}: its CRC-32C"),
        (flipped(second + 9), f"byte {second:,}: the length's"),
        (gzip.compress(raw[: second + 30], 1), f"byte {second:,}: .* bytes are left of"),
        (gzip.compress(raw, 1)[:-20], "byte .*: Compressed file ended"),
        (raw, "byte 0: Not a gzipped file"),
    ):
        path.write_bytes(content)
        with pytest.raises(RefusedFile, match=f"s: record at {reason}"):
            list(records(path))
    with pytest.raises(RefusedFile, match="away: cannot be read"):
        list(records(tmp_path / "away"))


def bring(folder: Path, *paths: Path, workers: int = 1) -> Iterator[Conversion]:
    """An import, shard by shard."""
    return shard_conversion.convert_shards(paths, folder, rl_unplugged.convert_shard, workers=workers, origin="a test")


def brought(folder: Path, *paths: Path) -> list[bool]:
    """True for each shard that was there before the import."""
    return [conversion.was_converted for conversion in bring(folder, *paths)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_damaged_shards_are_named_and_the_others_kept(tmp_path: Path, folder: Path) -> None:
    names = ("run_1-00000-of-00100", "run_1-00001-of-00100", "run_2-00000-of-00100")
    good, bad, late = (tmp_path / name for name in names)
    shard(good, episode(1, 4))
    shard(bad, episode(2, 4), o_t=None)
    assert brought(folder, bad) == [False] and not folder.exists()
    first = list(bring(folder, good, bad))
    assert [(b.path, b.was_converted, b.refusal is None) for b in first] == [(good, False, True), (bad, False, False)]
    assert "run_1-00001-of-00100: record at byte 0: o_t" in str(first[1].refusal)
    assert len(recording_reader.read_recording(folder).obs) == 5
    stamp = (folder / f"{good.name}.00000.segment").stat().st_mtime_ns
    shard(bad, episode(2, 6))
    shard(late, episode(3, 2))
    again = list(bring(folder, good, bad, late))
    assert [b.was_converted for b in again] == [True, False, False] and not any(b.refusal for b in again)
    assert (folder / f"{good.name}.00000.segment").stat().st_mtime_ns == stamp
    data = recording_reader.read_recording(folder)
    assert len(data.obs) == 5 + 7 + 3 and data.terminated.sum() == 3
    content = recording_reader.metadata(folder)
    assert (content["files"], content["transitions"], content["episodes"]) == (3, 12, 3)
    assert all(brought(folder, good, bad, late))
    shard(good, episode(4, 9))
    (other,) = bring(folder, good)
    assert "the set holds another file of this name" in str(other.refusal)
    assert len(recording_reader.read_recording(folder).obs) == 5 + 7 + 3
    (folder / f"{good.name}.done.json").unlink()
    assert brought(folder, good) == [False]
    assert len(recording_reader.read_recording(folder).obs) == 10 + 7 + 3
    (folder / f"{late.name}.done.json").write_text("{}")
    with pytest.raises(RefusedFile, match=r"run_2-00000-of-00100\.done\.json: damaged.*; or delete it, and"):
        brought(folder, late)
    forged = {"file": late.name, "size": 1, "counts": {"transitions": "x"}, "segments": {"x": [1]}}
    (folder / f"{late.name}.done.json").write_bytes(recording_writer.seal_set(forged))
    with pytest.raises(RefusedFile, match=r"done\.json: has no record of its shard; delete it"):
        brought(folder, late)


@pytest.mark.parametrize(("opens", "error"), [(0, PermissionError(EACCES, "denied")), (1, OSError(EIO, "broken"))])
def test_a_shard_that_cannot_be_read_is_named_and_the_others_kept(
    opens: int, error: OSError, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = (shard(tmp_path / name, episode(number, 4)) for number, name in enumerate(("a", "b"), 1))
    open_regular, rest = disk.open_regular, [opens]

    def open_or_fail(path: Path, *, max_bytes: int | None = None, links: bool = False) -> BufferedReader:
        if path == bad and not rest[0]:
            raise error
        rest[0] -= path == bad
        return open_regular(path, max_bytes=max_bytes, links=links)

    monkeypatch.setattr(disk, "open_regular", open_or_fail)
    refusal, conversion = bring(folder, bad, good)
    assert f"{bad}: cannot be read ({error.strerror})" in str(refusal.refusal)
    assert (conversion.path, conversion.refusal) == (good, None)
    assert len(recording_reader.read_recording(folder).obs) == 5


def shards(folder: Path, count: int) -> list[Path]:
    return [shard(folder / f"run_1-0000{n}-of-00100", episode(n + 1, 5)) for n in range(count)]


def test_two_workers_import_the_same_as_one(tmp_path: Path) -> None:
    paths, folders = shards(tmp_path, 2), (tmp_path / "one.frames", tmp_path / "two.frames")
    for workers, target in enumerate(folders, 1):
        list(bring(target, *paths, workers=workers))
    one, two = map(recording_reader.read_recording, folders)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def slow(path: Path, writer: RecordingWriter) -> dict[str, int]:
    """Takes its time, but for the first."""
    if not path.name.endswith("0"):
        sleep(30)
    return rl_unplugged.convert_shard(path, writer)


def test_interruption_does_not_wait_for_pending_shards(tmp_path: Path, folder: Path) -> None:
    paths = [shard(tmp_path / f"run_{n}", episode(n + 1, 2)) for n in range(5)]
    files = shard_conversion.convert_shards(paths, folder, slow, workers=2, origin="a test")
    assert next(files).path == paths[0]
    began = monotonic()
    files.close()
    assert monotonic() - began < 15
    assert brought(folder, *paths) == [True, *[False] * 4]


def killed(path: Path, writer: RecordingWriter) -> dict[str, int]:
    """Ends as where the system kills a worker for lack of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


@pytest.mark.parametrize("moment", ["conversion", "submission"])
def test_killed_worker_ends_the_import_with_one_line_and_it_resumes(
    moment: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if moment == "submission":
        monkeypatch.setattr(shard_conversion.ProcessPoolExecutor, "submit", Mock(side_effect=BrokenProcessPool))
    paths = shards(tmp_path, 2)
    files = shard_conversion.convert_shards(paths, folder, killed, workers=2, origin="a test")
    with pytest.raises(ResourceExhausted, match="a worker has ended, as for lack of memory; take fewer --workers"):
        next(files)
    assert brought(folder, *paths) == [False, False]


def test_files_of_one_name_and_missing_ones_are_refused_first(tmp_path: Path, folder: Path) -> None:
    one, other = (shard(tmp_path / place / "s", episode(1, 2)) for place in "ab")
    with pytest.raises(UsageError, match="two files have the same name"):
        brought(folder, one, other)
    with pytest.raises(UsageError, match="away: no such file"):
        brought(folder, one, tmp_path / "away")
    assert brought(folder, shard(tmp_path / "..gz", episode(1, 2))) == [False]
    assert not list(folder.glob(".*")), "names without a letter"


def test_copy_of_a_shard_is_refused_by_name(tmp_path: Path, folder: Path) -> None:
    first, copy = (shard(tmp_path / name, episode(1, 4)) for name in ("run_1-00000-of-00100", "run_1-00001-of-00100"))
    with pytest.raises(RefusedFile, match=r"run_1-00000-of-00100 and run_1-00001-of-00100 hold the same") as refusal:
        brought(folder, first, copy)
    assert f"delete {folder}/{copy.name}.*, and import without {copy.name}" in str(refusal.value)
    for path in folder.glob(f"{copy.name}.*"):
        path.unlink()
    assert brought(folder, first) == [True]


@pytest.mark.parametrize("damage", [b"x", None])
def test_shard_damaged_since_is_imported_again(tmp_path: Path, folder: Path, damage: bytes | None) -> None:
    paths = shards(tmp_path, 2)
    brought(folder, *paths)
    whole = contents(folder)
    segment = folder / "run_1-00000-of-00100.00000.segment"
    segment.unlink() if damage is None else segment.write_bytes(segment.read_bytes()[:-1] + damage)
    assert [(b.path, b.was_converted) for b in bring(folder, *paths)] == [(paths[1], True), (paths[0], False)]
    assert contents(folder) == whole
