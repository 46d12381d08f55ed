"""Mean returns of data sets in every layout."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from rlbench.datasets import recording_writer
from rlbench.datasets.recording_format import FINAL, TERMINATED, TRUNCATED, Chunk, Steps
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.datasets.summary import EXPERT, DatasetReturn, dataset_return
from rlbench.errors import RefusedFile
from tests.commands import stdout_of


def write(
    path: Path, *, ends: list[int], timeouts: list[int], attributes: dict[str, float | str] | None = None
) -> Path:
    """Seven steps that pay 1, 2, … 7 in D4RL's layout."""
    with h5py.File(path, "w") as file:
        file["observations"], file["actions"] = np.zeros((7, 2), np.float32), np.zeros((7, 1), np.float32)
        file["rewards"] = np.arange(1, 8, dtype=np.float32)
        file["terminals"], file["timeouts"] = np.isin(np.arange(7), ends), np.isin(np.arange(7), timeouts)
        file.attrs.update(attributes or {})
    return path


def test_only_whole_episodes_count(tmp_path: Path) -> None:
    path = write(tmp_path / "x.hdf5", ends=[1], timeouts=[4])  # 1 + 2, 3 + 4 + 5, and 6 + 7 that nobody ended
    assert dataset_return(path) == DatasetReturn(7.5, None)


def test_data_set_without_whole_episodes_has_no_return(tmp_path: Path) -> None:
    assert dataset_return(write(tmp_path / "x.hdf5", ends=[], timeouts=[])) == DatasetReturn(None, None)


def test_generated_set_has_its_return_in_its_metadata(tmp_path: Path) -> None:
    path = write(tmp_path / "rlb-x.hdf5", ends=[1], timeouts=[4], attributes={"return_mean": 3.0})
    assert dataset_return(path) == DatasetReturn(3.0, None)  # the episode of 12 was cut where its env had its share


def recorded(folder: Path, metadata: dict[str, float]) -> Path:
    """Recorded play of two terminated games and one that was cut."""
    reel = RecordingWriter(folder)
    marks = np.array([0, TERMINATED, FINAL, 0, TERMINATED, FINAL, TRUNCATED, FINAL], np.uint8)
    rewards = np.array([1, 2, 0, 0, -1, 0, 50, 0], np.float32)  # 3, −1, and 50 of the game that was cut
    reel.add(Chunk(0, np.zeros((8, 4, 4), np.uint8), Steps(np.zeros(8, np.int64), rewards, marks)))
    reel.flush()
    recording_writer.finish(folder, reel.digests, metadata)
    return folder


@pytest.mark.parametrize(("metadata", "expert"), [({}, None), ({EXPERT: 20.5}, 20.5)])
def test_recorded_play_has_its_return_and_its_experts(
    tmp_path: Path, metadata: dict[str, float], expert: float | None
) -> None:
    folder = recorded(tmp_path / "rlb-x.frames", metadata)
    assert dataset_return(folder) == DatasetReturn(1.0, expert)
    assert " 1.0 ± 2.0, from -1.0 to 3.0, " in stdout_of(f"data show {folder}")


def test_games_that_a_time_limit_ends_count_in_the_return_of_recorded_play(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "rlb-x.frames", {"return_mean": 17.25})  # of 3, −1 and 50: no mark tells a limit
    assert dataset_return(folder) == DatasetReturn(17.25, None)
    text = stdout_of(f"data show {folder}")
    assert " mean 17.2 of whole episodes; of terminated ones 1.0 ± 2.0, from -1.0 to 3.0, " in text


def test_an_own_set_names_its_expert(tmp_path: Path) -> None:
    path = write(tmp_path / "rlb-x.hdf5", ends=[1], timeouts=[4], attributes={EXPERT: 20.5})
    assert dataset_return(path) == DatasetReturn(7.5, 20.5)


@pytest.mark.parametrize("key", ["return_mean", EXPERT])
@pytest.mark.parametrize("message", ["abc", "nan", "inf", ""])
def test_invalid_return_in_metadata_is_refused_by_its_key(tmp_path: Path, key: str, message: str) -> None:
    path = write(tmp_path / "rlb-x.hdf5", ends=[1], timeouts=[4], attributes={key: message})
    with pytest.raises(RefusedFile, match=f"{key}: '{message}' is no number"):
        dataset_return(path)
