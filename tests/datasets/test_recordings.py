"""Recorded play on disk: complete or interrupted recordings are read, and damage is refused by name."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rlbench.datasets import catalogue, loader, recording_format, recording_reader, recording_writer
from rlbench.datasets.episodes import Dataset
from rlbench.datasets.recording_format import FINAL, TERMINATED, TRUNCATED
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.errors import RefusedFile, RlbenchError, UsageError

SHAPE = (4, 3)

Episode = tuple[int, bool]  # steps, and whether it ended by itself


def frame(track: int, episode: int, number: int, dtype: str = "u1") -> np.ndarray:
    """A frame that is unique to its env, episode and step."""
    return np.random.default_rng((track, episode, number)).integers(0, 255, SHAPE).astype(dtype)


def write(folder: Path, tracks: list[list[Episode]], *, rows: int = 7, done: bool = True, dtype: str = "u1") -> None:
    """Tracks side by side, a row of each in turn, as envs play."""
    writer = RecordingWriter(folder, rows=rows)
    plans = [
        [(e, n, steps, ended) for e, (steps, ended) in enumerate(episodes) for n in range(steps + 1)]
        for episodes in tracks
    ]
    for moment in range(max(map(len, plans))):
        for track, plan in enumerate(plans):
            if moment < len(plan):
                episode, number, steps, ended = plan[moment]
                obs_frame = frame(track, episode, number, dtype)
                end = number == steps - 1
                marks = FINAL * (number == steps) | (TERMINATED if ended else TRUNCATED) * end
                step = (0, 0.0) if number == steps else (number % 5, number / 2)
                writer.add(recording_writer.row(track, obs_frame, *step, marks))
    writer.flush()
    if done:
        recording_writer.finish(folder, writer.digests, {"task": "Toy"})


def expected(tracks: list[list[Episode]]) -> list[tuple[int, int, int, int]]:
    """Track, episode, number in it and its steps, of every row in the order of reading."""
    return [(t, e, n, s) for t, track in enumerate(tracks) for e, (s, _) in enumerate(track) for n in range(s + 1)]


episodes = st.lists(
    st.lists(st.tuples(st.integers(1, 90), st.booleans()), min_size=1, max_size=3), min_size=1, max_size=3
)


@settings(max_examples=12, phases=(Phase.explicit, Phase.generate))
@given(episodes, st.integers(1, 400), st.sampled_from(["u1", "<f4"]))
def test_any_episodes_round_trip(tracks: list[list[Episode]], rows: int, dtype: str) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place, "x.frames")
        write(folder, tracks, rows=rows, dtype=dtype)
        data = recording_reader.read_recording(folder)
    due = expected(tracks)
    assert data.obs.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(data.obs, np.stack([frame(t, e, n, dtype) for t, e, n, _ in due]))
    live = np.array([n < s for _, _, n, s in due])
    numbers = np.array([n for _, _, n, _ in due])
    np.testing.assert_array_equal(data.final, ~live)
    np.testing.assert_array_equal(data.action, np.where(live, numbers % 5, 0))
    np.testing.assert_array_equal(data.reward, np.where(live, numbers / 2, 0).astype(np.float32))
    ends = np.array([n == s - 1 for _, _, n, s in due])
    itself = np.array([tracks[t][e][1] for t, e, _, _ in due])
    np.testing.assert_array_equal(data.terminated, ends & itself)
    np.testing.assert_array_equal(data.truncated, ends & ~itself)
    assert data.action.dtype == np.int64 and data.reward.dtype == np.float32


def check(dataset: Dataset, whole: Dataset) -> None:
    """Every transition of ``dataset`` is one of ``whole``, in its order and with its own next frame."""
    assert dataset.final[-1]
    assert not dataset.final[0] and not (dataset.final[1:] & dataset.final[:-1]).any()
    live = np.flatnonzero(~dataset.final)
    by_frame = {whole.obs[row].tobytes(): row for row in np.flatnonzero(~whole.final)}
    rows = [by_frame[dataset.obs[row].tobytes()] for row in live]
    for mine, theirs in zip(live, rows, strict=True):
        np.testing.assert_array_equal(dataset.obs[mine + 1], whole.obs[theirs + 1])
        assert (dataset.action[mine], dataset.reward[mine]) == (whole.action[theirs], whole.reward[theirs])
        assert dataset.terminated[mine] == whole.terminated[theirs]
        assert (dataset.terminated[mine] or dataset.truncated[mine]) == dataset.final[mine + 1]
        assert dataset.truncated[mine] or not whole.truncated[theirs]
    assert not (dataset.action[dataset.final].any() or dataset.reward[dataset.final].any())


@settings(max_examples=12, phases=(Phase.explicit, Phase.generate))
@given(episodes, st.integers(9, 90), st.integers(0, 40))
def test_set_without_its_last_files_is_readable_up_to_there(tracks: list[list[Episode]], rows: int, lost: int) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place, "x.frames")
        write(folder, tracks, rows=rows)
        whole = recording_reader.read_recording(folder)
        (folder / "dataset.json").unlink()
        assert recording_reader.metadata(folder) == {"state": "unfinished"} and not catalogue.is_complete(folder)
        with pytest.raises(UsageError, match="is unfinished; make a data set of its steps with rlbench data subset"):
            loader.data_file(folder)
        files = sorted(folder.glob("*.segment"))
        for path in files[max(1, len(files) - lost) :]:
            path.unlink()
        try:
            data = recording_reader.read_recording(folder)
        except UsageError:  # one file, and of every track one row in it
            return
    check(data, whole)
    if lost == 0:
        assert all(np.array_equal(a, b) for a, b in zip(data[:5], whole[:5], strict=True))


@settings(max_examples=12, phases=(Phase.explicit, Phase.generate))
@given(episodes, st.integers(9, 90), st.data())
def test_a_subset_is_the_first_transitions_whether_read_or_written(
    tracks: list[list[Episode]], rows: int, data: st.DataObject
) -> None:
    with TemporaryDirectory() as place:
        folder, other = Path(place, "x.frames"), Path(place, "y.frames")
        write(folder, tracks, rows=rows)
        whole = recording_reader.read_recording(folder)
        count = data.draw(st.integers(1, int((~whole.final).sum())))
        dataset = recording_reader.read_recording(folder, count)
        check(dataset, whole)
        assert (~dataset.final).sum() == count
        np.testing.assert_array_equal(dataset.obs, whole.obs[: len(dataset.obs)])
        recording_reader.subset(folder, other, count)
        again = recording_reader.read_recording(other)
        assert all(np.array_equal(a, b) for a, b in zip(again, dataset, strict=True))
        assert recording_reader.metadata(other) == {"task": "Toy", "name": "y", "subset_of": "x", "steps": count}
        with pytest.raises(UsageError, match="were requested; request fewer"):
            recording_reader.read_recording(folder, int((~whole.final).sum()) + 1)


def test_equal_play_gives_equal_files(tmp_path: Path) -> None:
    for name in ("a.frames", "b.frames"):
        write(tmp_path / name, [[(30, True), (4, False)], [(20, True)]])
    a, b = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("a.frames", "b.frames"))
    assert a == b and len(a) > 3


def test_a_flipped_byte_in_any_file_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "x.frames"
    write(folder, [[(20, True)]], rows=12)
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        for at in {0, 16, 20, 81, 82, 100, len(raw) // 2, len(raw) - 1}:
            broken = bytearray(raw)
            broken[at] ^= 1
            path.write_bytes(broken)
            with pytest.raises(RefusedFile, match=path.name):
                recording_reader.read_recording(folder)
            with pytest.raises(RefusedFile, match=path.name):
                recording_reader.verify_recording(folder)
            with pytest.raises(RefusedFile, match=path.name):  # before anything of it is unpacked
                recording_writer.read_sealed_set(path) if path.suffix == ".json" else recording_format.read_segment(
                    path
                )
        path.write_bytes(raw[:-3])
        with pytest.raises(RefusedFile, match=path.name):
            recording_reader.read_recording(folder)
        path.write_bytes(raw)
    recording_reader.verify_recording(folder)


def test_a_missing_file_and_one_of_another_set_are_refused_by_name(tmp_path: Path) -> None:
    folder, other = tmp_path / "x.frames", tmp_path / "y.frames"
    write(folder, [[(20, True)]], rows=12)
    write(other, [[(21, True)]], rows=12)
    path = folder / "play.00000.segment"
    path.unlink()
    with pytest.raises(RlbenchError, match=r"play\.00000"):
        recording_reader.read_recording(folder)
    path.write_bytes((other / "play.00001.segment").read_bytes())
    with pytest.raises(RefusedFile, match=r"play\.00000\.segment: is not a file of this set"):
        recording_reader.read_recording(folder)


@pytest.mark.parametrize("reader", ["read_recording", "verify_recording", "subset"])
def test_a_file_that_is_exchanged_between_the_steps_and_the_frames_is_refused(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, steps in (("a", 9), ("b", 8)):
        write(tmp_path / name, [[(steps, True)]], rows=99)
    (other,), parts = (tmp_path / "b").glob("*.segment"), recording_reader._chunks

    def exchanged(*arguments: Any) -> list[recording_reader.ChunkOfSet]:
        chunks = parts(*arguments)
        other.replace(chunks[0].path)
        return chunks

    monkeypatch.setattr(recording_reader, "_chunks", exchanged)
    more = (tmp_path / "c", 3) if reader == "subset" else ()
    with pytest.raises(RefusedFile, match="was exchanged while the set was read"):
        getattr(recording_reader, reader)(tmp_path / "a", *more)


def test_sets_are_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path))
    folder = tmp_path / "rlb-toy.frames"
    with pytest.raises(UsageError, match="rlb-toy: not in"):
        catalogue.resolve("rlb-toy")
    write(folder, [[(5, True)]])
    assert catalogue.resolve("rlb-toy") == ("rlb-toy", folder) and catalogue.resolve(str(folder)) == (None, folder)
    assert catalogue.Location("rlb-toy", "own", folder) in catalogue.list_local()
    assert len(loader.load_dataset(folder, "rlb-toy").obs) == 6 and loader.dataset_metadata(folder) == {"task": "Toy"}
    assert loader.data_file(folder) == folder / "dataset.json"


def test_transition_begun_at_an_interruption_is_left_out(tmp_path: Path) -> None:
    writer, first_frame = RecordingWriter(tmp_path / "x.frames"), frame(0, 0, 0)
    for track, rows in enumerate(("tf", "tfs", "ss", "s", "tff", "ftff")):
        for kind in rows:
            marks = {"f": FINAL, "t": TERMINATED, "s": 0}[kind]
            writer.add(recording_writer.row(track, first_frame, int(kind != "f"), float(kind != "f"), marks))
    writer.flush()
    data = recording_reader.read_recording(tmp_path / "x.frames")
    assert "".join("f" if final else "s" for final in data.final) == "sfsfsfsffsf"
    assert data.terminated.nonzero()[0].tolist() == [0, 2, 6, 9] and data.truncated.nonzero()[0].tolist() == [4]


def test_file_of_a_newer_set_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "x.frames", [[(5, True)]])
    segment = tmp_path / "x.frames" / "play.00000.segment"
    segment.write_bytes(segment.read_bytes().replace(b"frames-1", b"frames-2"))
    with pytest.raises(RefusedFile, match="or of a newer rlbench"):
        recording_format.read_segment(segment)


@pytest.mark.parametrize(
    ("action", "reward", "metadata"),
    [(-1, 0.0, "the action -1"), (2**40, 0.0, "the action 1099511627776"), (0, np.inf, "the reward inf")],
)
def test_invalid_actions_and_rewards_are_refused_by_file(
    tmp_path: Path, action: int, reward: float, metadata: str
) -> None:
    writer, first_frame = RecordingWriter(tmp_path / "x.frames"), frame(0, 0, 0)
    writer.add(recording_writer.row(0, first_frame, 1, 1.0, 0))
    writer.add(recording_writer.row(0, first_frame, action, reward, TERMINATED))
    writer.add(recording_writer.row(0, first_frame, 0, 0.0, FINAL))
    writer.flush()
    for look in (recording_reader.read_recording, recording_reader.read_steps):
        with pytest.raises(RefusedFile, match=rf"play\.00000\.segment: .*row 1: {metadata}"):
            look(tmp_path / "x.frames")


def test_files_of_frames_of_another_size_are_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "x.frames"
    write(folder, [[(20, True)]], rows=50, done=False)
    write(tmp_path / "y.frames", [[(20, True)]], rows=50, dtype="<f4")
    (folder / "play.00001.segment").write_bytes((tmp_path / "y.frames" / "play.00000.segment").read_bytes())
    with pytest.raises(RefusedFile, match=r"play\.00001\.segment: has frames float32 \[4, 3\]"):
        recording_reader.read_recording(folder)


def test_set_that_does_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_reader, "ROW", 1)  # less than its frame
    write(tmp_path / "x.frames", [[(20, True)]])
    assert len(recording_reader.read_recording(tmp_path / "x.frames", max_bytes=21 * 12).obs) == 21
    with pytest.raises(UsageError, match=r"21 frames do not fit into memory; .* rlbench data subset"):
        recording_reader.read_recording(tmp_path / "x.frames", max_bytes=21 * 12 - 1)
    assert len(recording_reader.read_recording(tmp_path / "x.frames", 5, max_bytes=6 * 12).obs) == 6


def test_frames_of_a_chunk_and_of_a_file_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, room = tmp_path / "x.frames", tmp_path / "y.frames", 42 * (recording_reader.ROW + 2 * 12)
    monkeypatch.setattr(recording_writer, "BYTES", 20 * 12)
    write(source, [[(20, True)], [(20, True)]], rows=100)
    assert len(list(source.glob("*.segment"))) == 3
    for work in (recording_reader.verify_recording, partial(recording_reader.subset, target=target, steps=5)):
        work(source, max_bytes=room)
        with pytest.raises(RefusedFile, match=r"segment: with it the set takes .* this machine has"):
            work(source, max_bytes=room - 42 * 2 * 12)


@pytest.mark.parametrize("name", ["../a.segment", "a\0.segment"])
def test_a_list_that_names_no_file_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.frames").mkdir()
    recording_writer.finish(tmp_path / "x.frames", {name: 64 * "0"}, {})
    with pytest.raises(RefusedFile, match="no file in its folder"):
        recording_writer.contents(tmp_path / "x.frames")
