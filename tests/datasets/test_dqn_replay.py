"""Dopamine's logs: every row becomes a row of the data set, with a final row per episode."""

import gzip
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from rlbench.datasets import dqn_replay, recording_reader, recording_writer, shard_conversion
from rlbench.datasets.episodes import Dataset
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.datasets.shard_conversion import Conversion
from rlbench.errors import RefusedFile, UsageError


def compress(array: np.ndarray) -> bytes:
    """As ``np.save`` through gzip."""
    raw = io.BytesIO()
    np.save(raw, array)
    return gzip.compress(raw.getvalue(), 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve rows, episodes ending at 4 and 9."""
    rows = np.arange(12)
    columns = {
        "observation": np.broadcast_to(rows[:, None, None], (12, 84, 84)).astype(np.uint8),
        "action": (rows % 4).astype(np.int32),
        "reward": (rows / 2).astype(np.float32),
        "terminal": np.isin(rows, (4, 9)).astype(np.uint8) * 255,
    }
    columns["observation"][:, 1, 1] = 9  # the first is not black
    for name, column in columns.items():
        (tmp_path / f"$store$_{name}_ckpt.3.gz").write_bytes(compress(column))
    return tmp_path


def read(folder: Path, columns: Mapping[str, np.ndarray] | None = None) -> Dataset:
    """The log as it is read when it was imported; ``columns`` are put into it before."""
    for name, column in (columns or {}).items():
        (folder / f"$store$_{name}_ckpt.3.gz").write_bytes(compress(column))
    (path,) = dqn_replay.logs(folder)
    writer = RecordingWriter(folder / "x.frames")
    recording_writer.finish(folder / "x.frames", writer.digests, dqn_replay.convert_log(path, writer))
    return recording_reader.read_recording(folder / "x.frames")


def test_another_log_of_equal_size_is_not_taken_for_the_first(folder: Path) -> None:
    def bring() -> Conversion:
        (result,) = shard_conversion.convert_shards(
            dqn_replay.logs(folder), target, dqn_replay.convert_log, workers=1, origin="", columns=dqn_replay.columns
        )
        return result

    target, reward = folder / "x.frames", folder / "$store$_reward_ckpt.3.gz"
    assert [bring().was_converted, bring().was_converted] == [False, True]
    done = next(target.glob("*.done.json"))
    content = recording_writer.read_sealed_set(done)
    old = recording_writer.seal_set({key: value for key, value in content.items() if key not in {"trailers", "sha256"}})
    relabeled = compress(-np.arange(12, dtype=np.float32) / 2)
    reward.write_bytes(relabeled)
    assert "the set holds another file of this name" in str(bring().refusal)
    done.write_bytes(old)  # of an older version, which knows the size alone
    assert bring().was_converted


def test_a_log_is_read_in_its_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in (3, 5, 4096):
        monkeypatch.setattr(dqn_replay, "ROWS", rows)
        dataset = read(folder)
        assert recording_reader.metadata(folder / "x.frames")["episodes"] == 2
        assert dataset.obs[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 9, 10, 11]
        assert np.flatnonzero(dataset.final).tolist() == [5, 11, 13]
        assert np.flatnonzero(dataset.terminated).tolist() == [4, 10] and np.flatnonzero(
            dataset.truncated
        ).tolist() == [12]
        live = dataset.obs[:, 0, 0][~dataset.final]
        assert (dataset.action[~dataset.final] == live % 4).all() and (dataset.reward[~dataset.final] == live / 2).all()
        assert recording_reader.metadata(folder / "x.frames") == {"transitions": 11, "episodes": 2}


@pytest.mark.parametrize(("count", "head"), [(19, 7), (22, 10), (12, 0)])
def test_newest_rows_of_the_ring_buffer_are_not_joined_to_the_oldest(folder: Path, count: int, head: int) -> None:
    (folder / "add_count_ckpt.3.gz").write_bytes(compress(np.array(count)))
    dataset = read(folder)
    obs_values = dataset.obs[:, 0, 0].tolist()
    for row in np.flatnonzero(~dataset.final):
        here = obs_values[row]
        assert dataset.terminated[row] or obs_values[row + 1] == here + 1
        assert here != head - 1 or dataset.terminated[row]
    assert recording_reader.metadata(folder / "x.frames")["transitions"] == (~dataset.final).sum()
    assert sorted({*obs_values}) == list(range(12))


def padded(steps: list[int], *, zeros: int = 3) -> dict[str, np.ndarray]:
    """Columns as Dopamine's buffer lays them: rows of zeros before each of the episodes of so many steps."""
    obs_values: list[int] = []
    for episode, count in enumerate(steps):
        obs_values += [0] * zeros + [10 * (episode + 1) + k for k in range(count)]
    rows = np.array(obs_values)
    last = np.append(rows[1:] == 0, False) & (rows > 0)
    return {
        "observation": np.broadcast_to(rows[:, None, None], (len(rows), 84, 84)).astype(np.uint8),
        "action": (rows % 4).astype(np.int32),
        "reward": (rows / 2).astype(np.float32),
        "terminal": last.astype(np.uint8),
    }


@pytest.mark.parametrize("rows", [1, 2, 5, 4096])
def test_rows_of_zeros_before_an_episode_are_no_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(dqn_replay, "ROWS", rows)
    dataset = read(tmp_path, padded([3, 1, 4]))
    assert dataset.obs[:, 0, 0].tolist() == [10, 11, 12, 12, 20, 20, 30, 31, 32, 33]
    assert np.flatnonzero(dataset.final).tolist() == [3, 5, 9]
    assert np.flatnonzero(dataset.terminated).tolist() == [2, 4]
    assert recording_reader.metadata(tmp_path / "x.frames") == {"transitions": 7, "episodes": 2}


def test_black_frames_in_mid_game_stay(tmp_path: Path) -> None:
    columns = padded([3, 6])
    for name in ("observation", "action", "reward"):
        columns[name][[9, 11, 12]] = 0  # the first step behind three rows of zeros, and two in the middle
    assert read(tmp_path, columns).obs[:, 0, 0].tolist() == [10, 11, 12, 12, 0, 21, 0, 0, 24, 25]


@pytest.mark.parametrize(("name", "value"), [("action", -1), ("action", 18), ("reward", np.nan)])
def test_invalid_actions_and_rewards_are_refused_by_position(tmp_path: Path, name: str, value: float) -> None:
    columns = padded([9])
    columns[name][7] = value
    with pytest.raises(RefusedFile, match=rf"observation_ckpt.*after row 0, row 4: the {name}"):
        read(tmp_path, columns)


def test_damage_is_refused_by_name(folder: Path) -> None:
    for name in ("observation", "action", "reward", "terminal"):
        path = folder / f"$store$_{name}_ckpt.3.gz"
        raw = path.read_bytes()
        arrays = (np.zeros((12, 7)), np.zeros(12, object)[:0], np.zeros(12, ">f4"), np.zeros(12, ">i4"))
        longer, other_crc = gzip.compress(gzip.decompress(raw) + bytes(9)), raw[:-8] + bytes(4) + raw[-4:]
        for broken in (raw[:-12], raw[:-8], b"x" + raw, longer, other_crc, *map(compress, arrays)):
            path.write_bytes(broken)
            with pytest.raises(RefusedFile, match=name):
                read(folder)
        path.unlink()
        with pytest.raises((RefusedFile, UsageError), match=name):
            read(folder)
        path.write_bytes(raw)
    for counter in (b"nothing", compress(np.zeros(3, np.int64))):
        (folder / "add_count_ckpt.3.gz").write_bytes(counter)
        with pytest.raises(RefusedFile, match="add_count"):
            read(folder)
    (folder / "$store$_reward_ckpt.3.gz").write_bytes(compress(np.zeros(11, np.float32)))
    with pytest.raises(RefusedFile, match="its columns have"):
        read(folder)
    (folder / "add_count_ckpt.3.gz").unlink()
    for rows, says in ((0, "holds no row"), (1, "holds no transition")):
        with pytest.raises(RefusedFile, match=says):
            read(folder, {name: column[:rows] for name, column in padded([4], zeros=0).items()})
