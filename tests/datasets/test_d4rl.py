"""D4RL's layout, read against files that the tests write, and against one step at a time."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench.datasets.d4rl import provenance, read_d4rl
from rlbench.datasets.hdf5 import CHUNK
from rlbench.errors import RefusedFile, UsageError

Columns = dict[str, NDArray[np.generic]]
WriteFlat = Callable[..., Path]
TRAJECTORIES = Path(__file__).parents[3] / "shared/data/trajectories"


def test_columns_are_read_unchanged_with_every_next_observation_in_the_row_behind(
    columns: Columns, write_flat: WriteFlat
) -> None:
    dataset = read_d4rl(write_flat(columns))
    live = ~dataset.final
    assert (dataset.obs[live] == columns["observations"]).all()
    assert (dataset.obs[1:][live[:-1]] == columns["next_observations"]).all()
    assert (dataset.action[live] == columns["actions"]).all()
    assert (dataset.reward[live] == columns["rewards"]).all()
    assert [array.dtype.kind for array in dataset] == list("fffbbb")
    assert list(np.flatnonzero(dataset.terminated[live])) == [3, 14]
    assert list(np.flatnonzero(dataset.truncated[live])) == [13, 24]


def test_step_both_terminated_and_truncated_counts_as_terminated(columns: Columns, write_flat: WriteFlat) -> None:
    dataset = read_d4rl(write_flat(columns, timeouts=np.ones(30, np.bool_)))
    assert list(np.flatnonzero(dataset.terminated[~dataset.final])) == [3, 14]
    assert not (dataset.terminated & dataset.truncated).any()


def test_float64_flags_and_a_second_axis_of_one_are_read(columns: Columns, write_flat: WriteFlat) -> None:
    wide: dict[str, object] = {key: np.asarray(value, np.float64) for key, value in columns.items()}
    for key in ("rewards", "terminals", "timeouts"):
        wide[key] = np.asarray(wide[key])[:, None]
    one, other = read_d4rl(write_flat(wide)), read_d4rl(write_flat(columns))
    assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


def test_missing_next_observations_stay_unknown(columns: Columns, write_flat: WriteFlat) -> None:
    dataset = read_d4rl(write_flat(columns, next_observations=None))
    assert list(np.flatnonzero(dataset.final)) == [4, 16]  # nothing bootstraps from those behind a termination


def truncations(path: Path, limit: int | None = None) -> list[int]:
    """The steps at which a file's episodes are cut."""
    dataset = read_d4rl(path, limit=limit)
    return np.flatnonzero(dataset.truncated[~dataset.final]).tolist()


def test_without_timeouts_breaks_are_truncations(columns: Columns, write_flat: WriteFlat) -> None:
    assert truncations(write_flat(columns, timeouts=None)) == [13, 24]


def test_without_both_the_tasks_limit_truncates_episodes(columns: Columns, write_flat: WriteFlat) -> None:
    path = write_flat(columns, timeouts=None, next_observations=None)
    assert truncations(path, limit=10) == [13, 24]
    with pytest.raises(RefusedFile, match="timeouts: missing"):
        read_d4rl(path)


def test_consecutive_limits_each_truncate_an_episode(write_flat: WriteFlat) -> None:
    ends = np.isin(np.arange(30), [19])
    flat = {"observations": np.zeros((30, 3)), "actions": np.zeros((30, 2)), "rewards": np.zeros(30), "terminals": ends}
    assert truncations(write_flat(flat), limit=6) == [5, 11, 17, 25]  # 18 and 19 are an episode of their own


@pytest.mark.parametrize("row", [CHUNK - 1, CHUNK, CHUNK + 7])
def test_nan_is_found_anywhere(write_flat: WriteFlat, row: int) -> None:
    rows = CHUNK + 10
    reward = np.zeros(rows, np.float32)
    reward[row] = np.nan
    flat = {"observations": np.zeros((rows, 1)), "actions": np.zeros((rows, 1)), "rewards": reward}
    with pytest.raises(RefusedFile, match=f"rewards: NaN or infinity in row {row};"):
        read_d4rl(write_flat({**flat, "terminals": np.zeros(rows, np.bool_)}))


NAN = np.full((30, 3), 0.5)
NAN[17, 1] = np.nan


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        *[(key, None, "missing") for key in ("observations", "actions", "rewards", "terminals")],
        ("observations", NAN, "NaN or infinity in row 17"),
        ("next_observations", NAN, "NaN or infinity in row 17"),
        ("observations", np.full((30, 3), 1e300), "1e\\+300 does not fit float32 in row 0"),
        ("next_observations", np.full((30, 3), -1e39), "-1e\\+39 does not fit float32 in row 0"),
        ("rewards", np.full(30, -np.inf), "NaN or infinity in row 0"),
        ("actions", np.zeros(30, np.int64), "discrete"),
        ("actions", np.zeros((30, 2), np.int32), "discrete"),
        ("actions", np.zeros(30), r"shape \[30\]"),
        ("actions", np.zeros((29, 2)), "29 rows"),
        ("rewards", np.zeros((30, 2)), r"shape \[30, 2\]"),
        ("observations", np.zeros((30, 4, 4)), r"shape \[30, 4, 4\]"),
        ("observations", np.zeros((0, 3)), "empty"),
        ("next_observations", np.zeros((30, 4)), r"shape \[30, 4\]"),
        ("terminals", np.full(30, 2), "0 and 1"),
        ("timeouts", np.zeros(31, np.bool_), "31 rows"),
        ("rewards", np.array([b"pickle"] * 30), "texts"),
    ],
)
def test_invalid_files_are_refused_by_key(
    columns: Columns, write_flat: WriteFlat, key: str, value: object, says: str
) -> None:
    path = write_flat(columns, **{key: value}) if np.size(np.asarray(value)) else _bare(write_flat, columns, key, value)
    with pytest.raises(RefusedFile, match=says) as refusal:
        read_d4rl(path)
    assert f"{path}: {key}: " in str(refusal.value)
    assert refusal.value.exit_code == 2


def _bare(write_flat: WriteFlat, columns: Columns, key: str, value: object) -> Path:
    path = write_flat(columns, **{key: None})
    with h5py.File(path, "a") as file:
        file.create_dataset(key, data=value)
    return path


@pytest.mark.parametrize(
    "dtype",
    [h5py.string_dtype(), h5py.vlen_dtype(np.uint8), h5py.ref_dtype, "V16", np.dtype([("a", "f4")]), "f4", None],
    ids=["text", "vlen", "reference", "opaque", "compound", "never written", "group"],
)
def test_arrays_without_numbers_are_refused_unread(columns: Columns, write_flat: WriteFlat, dtype: object) -> None:
    path = write_flat(columns, rewards=None)
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", shape=(30,), dtype=dtype) if dtype is not None else file.create_group("rewards")
    with pytest.raises(RefusedFile, match=r"rewards: (holds .*(not numbers|never written)|a group)"):
        read_d4rl(path)


def test_truncated_foreign_and_missing_files_are_refused(columns: Columns, write_flat: WriteFlat) -> None:
    path = write_flat(columns)
    for raw, reason in ((path.read_bytes()[:-200], "truncated"), (b"\x80\x04\x95 a pickle", "")):
        path.write_bytes(raw)
        with pytest.raises(RefusedFile, match=rf"set\.hdf5: no whole HDF5 file \({reason}"):
            read_d4rl(path)
    path.unlink()
    with pytest.raises(UsageError, match="no such file"):
        read_d4rl(path)


def test_a_flipped_byte_is_refused_with_its_key(columns: Columns, write_flat: WriteFlat) -> None:
    path = write_flat(columns)
    with h5py.File(path) as file:
        start = file["actions"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[start + 40] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(RefusedFile, match="actions: damaged"):
        read_d4rl(path)


def test_metadata_of_the_file_are_text(columns: Columns, write_flat: WriteFlat) -> None:
    path = write_flat(columns)
    with h5py.File(path, "a") as file:
        file.attrs.update({"env_id": "Toy-v4", "steps": 30, "returns": [1.0, 2.0]})
        file["metadata/algorithm"] = np.bytes_(b"SAC")
        file["metadata/iteration"] = 7
    texts = {"env_id": "Toy-v4", "steps": "30", "metadata/algorithm": "SAC", "metadata/iteration": "7"}
    assert provenance(path) == texts


@pytest.mark.skipif(not TRAJECTORIES.is_dir(), reason="the real trajectories are not on this machine")
@pytest.mark.parametrize(("name", "episodes"), [("halfcheetah-cs285_fall2023-expert", 2), ("door-hand_dapg-human", 25)])
def test_real_trajectories_are_truncated_and_never_terminated(name: str, episodes: int) -> None:
    dataset = read_d4rl(TRAJECTORIES / f"{name}.hdf5")
    assert dataset.truncated.sum() == episodes
    assert not dataset.terminated.any()
    assert dataset.truncated[~dataset.final][-1]
