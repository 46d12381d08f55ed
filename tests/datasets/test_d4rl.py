"""D4RL's layout: read against files that the tests write; written with provenance, equal bytes and no partial file."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench.datasets import checksums, d4rl
from rlbench.datasets.d4rl import provenance, read_d4rl, write_hdf5
from rlbench.datasets.episodes import CHUNK
from rlbench.datasets.hdf5 import is_number_or_text
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError

D4RLArrays = dict[str, NDArray[np.generic]]
WriteFlat = Callable[..., Path]
TRAJECTORIES = Path(__file__).parents[3] / "shared/data/trajectories"


def test_columns_are_read_unchanged_with_every_next_observation_in_the_row_behind(
    columns: D4RLArrays, write_flat: WriteFlat
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


def test_zeros_behind_the_features_are_not_read(columns: D4RLArrays, write_flat: WriteFlat) -> None:
    width, plain = columns["observations"].shape[1], read_d4rl(write_flat(columns))
    for number in (0.0, 1.0):
        wide = {
            key: np.pad(columns[key], ((0, 0), (0, 5)), constant_values=number)
            for key in ("observations", "next_observations")
        }
        dataset = read_d4rl(write_flat({**columns, **wide}), features=width)
        assert dataset.obs.shape[1] == (width + 5 if number else width)
        assert all((a == b).all() for a, b in zip(dataset._replace(obs=dataset.obs[:, :width]), plain, strict=True))
    zeros = {"observations": np.pad(columns["observations"], ((0, 0), (0, 5)))}
    with pytest.raises(
        RefusedFile, match=f"next_observations: not zero where observations are, from column {width} on"
    ):
        read_d4rl(write_flat({**columns, **wide, **zeros}), features=width)


def test_step_both_terminated_and_truncated_counts_as_terminated(columns: D4RLArrays, write_flat: WriteFlat) -> None:
    dataset = read_d4rl(write_flat(columns, timeouts=np.ones(30, np.bool_)))
    assert list(np.flatnonzero(dataset.terminated[~dataset.final])) == [3, 14]
    assert not (dataset.terminated & dataset.truncated).any()


def test_float64_flags_and_a_second_axis_of_one_are_read(columns: D4RLArrays, write_flat: WriteFlat) -> None:
    wide: dict[str, object] = {key: np.asarray(value, np.float64) for key, value in columns.items()}
    for key in ("rewards", "terminals", "timeouts"):
        wide[key] = np.asarray(wide[key])[:, None]
    one, other = read_d4rl(write_flat(wide)), read_d4rl(write_flat(columns))
    assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


def test_missing_next_observations_stay_unknown(columns: D4RLArrays, write_flat: WriteFlat) -> None:
    dataset = read_d4rl(write_flat(columns, next_observations=None))
    assert list(np.flatnonzero(dataset.final)) == [4, 16]  # nothing bootstraps from those behind a termination


def truncations(path: Path, limit: int | None = None) -> list[int]:
    """The steps at which a file's episodes are cut."""
    dataset = read_d4rl(path, limit=limit)
    return np.flatnonzero(dataset.truncated[~dataset.final]).tolist()


def test_without_timeouts_breaks_are_truncations(columns: D4RLArrays, write_flat: WriteFlat) -> None:
    assert truncations(write_flat(columns, timeouts=None)) == [13, 24]


def test_without_both_the_tasks_limit_truncates_episodes(columns: D4RLArrays, write_flat: WriteFlat) -> None:
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
    columns: D4RLArrays, write_flat: WriteFlat, key: str, value: object, says: str
) -> None:
    path = write_flat(columns, **{key: value})
    with pytest.raises(RefusedFile, match=says) as refusal:
        read_d4rl(path)
    assert f"{path}: {key}: " in str(refusal.value)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    "dtype",
    [h5py.string_dtype(), h5py.vlen_dtype(np.uint8), h5py.ref_dtype, "V16", np.dtype([("a", "f4")]), "f4", None],
    ids=["text", "vlen", "reference", "opaque", "compound", "never written", "group"],
)
def test_arrays_without_numbers_are_refused_unread(columns: D4RLArrays, write_flat: WriteFlat, dtype: object) -> None:
    path = write_flat(columns, rewards=None)
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", shape=(30,), dtype=dtype) if dtype is not None else file.create_group("rewards")
    with pytest.raises(RefusedFile, match=r"rewards: (holds .*(not numbers|never written)|a group)"):
        read_d4rl(path)


def test_truncated_foreign_and_missing_files_are_refused(columns: D4RLArrays, write_flat: WriteFlat) -> None:
    path = write_flat(columns)
    for raw, reason in ((path.read_bytes()[:-200], "truncated"), (b"\x80\x04\x95 a pickle", "")):
        path.write_bytes(raw)
        with pytest.raises(RefusedFile, match=rf"set\.hdf5: no whole HDF5 file \({reason}"):
            read_d4rl(path)
    path.unlink()
    with pytest.raises(UsageError, match="no such file"):
        read_d4rl(path)


def test_a_flipped_byte_is_refused_with_its_key(columns: D4RLArrays, write_flat: WriteFlat) -> None:
    path = write_flat(columns)
    with h5py.File(path) as file:
        start = file["actions"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[start + 40] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(RefusedFile, match="actions: damaged"):
        read_d4rl(path)


def test_metadata_of_the_file_are_text(columns: D4RLArrays, write_flat: WriteFlat) -> None:
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


ATTRIBUTES = {"name": "rlb-small", "recipe": '{"steps":5}', "episodes": 2, "return_mean": 1.5}


def experience(rows: int = 5) -> d4rl.D4RLArrays:
    """Some steps that differ in every number."""
    numbers = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    flags = np.arange(rows) % 5
    return d4rl.D4RLArrays(
        observations=numbers, actions=-numbers[:, :2] / (3 * rows), rewards=numbers[:, 0] / 2, terminals=flags == 1,
        timeouts=flags == 4, next_observations=numbers + 100,
    )  # fmt: skip


def put(path: Path, rows: int = 5) -> d4rl.DatasetFile:
    """Write it."""
    return write_hdf5(path, experience(rows), ATTRIBUTES)


def test_the_layout_is_d4rls_with_provenance_in_its_attributes(tmp_path: Path) -> None:
    put(tmp_path / "rlb-small.hdf5")
    data = experience()
    with h5py.File(tmp_path / "rlb-small.hdf5") as file:
        layout = {name: (file[name].dtype, file[name][:].tolist()) for name in file}
        assert layout == {
            "observations": (np.float32, data.observations.tolist()),
            "actions": (np.float32, data.actions.tolist()),
            "rewards": (np.float32, data.rewards.tolist()),
            "terminals": (np.bool_, [False, True, False, False, False]),
            "timeouts": (np.bool_, [False, False, False, False, True]),
            "next_observations": (np.float32, (data.observations + 100).tolist()),
        }
        assert all(file[n].compression == "gzip" and file[n].fletcher32 and file[n].chunks for n in file)
        assert dict(file.attrs) == ATTRIBUTES


def test_checksum_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rlb-small.hdf5"
    digest = put(path)
    raw = path.read_bytes()
    assert digest == (path, sha256(raw).hexdigest(), len(raw))
    document = json.loads((tmp_path / "deep" / "rlb-small.hdf5.sha256.json").read_text())
    assert (document["sha256"], document["size"], document["url"]) == (digest.sha256, digest.bytes, None)
    assert checksums.seal_of(path).sha256 == digest.sha256
    assert sorted(p.name for p in path.parent.iterdir()) == ["rlb-small.hdf5", "rlb-small.hdf5.sha256.json"]


def test_equal_experience_gives_equal_bytes_and_other_experience_others(tmp_path: Path) -> None:
    sums = [put(tmp_path / name, rows).sha256 for name, rows in (("a", 9000), ("b", 9000), ("c", 8999))]
    assert sums[0] == sums[1] != sums[2]


full = Mock(side_effect=OSError(28, "No space left on device"))


def test_a_write_that_fails_leaves_what_was_there_and_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rlb-small.hdf5"
    before = put(path)
    monkeypatch.setattr(h5py.File, "create_dataset", full)
    with pytest.raises(ResourceExhausted, match="No space left on device; free some space"):
        put(path, rows=7)
    assert sha256(path.read_bytes()).hexdigest() == before.sha256
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rlb-small.hdf5", "rlb-small.hdf5.sha256.json"]


def test_replaced_data_set_replaces_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "rlb-small.hdf5"
    put(path)
    (tmp_path / "rlb-small.hdf5.part").symlink_to(tmp_path / "precious")
    digest = put(path, rows=7)
    assert not path.is_symlink() and not (tmp_path / "precious").exists()
    assert json.loads((tmp_path / "rlb-small.hdf5.sha256.json").read_text())["sha256"] == digest.sha256


def test_new_data_set_never_has_an_old_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rlb-small.hdf5"
    put(path)
    monkeypatch.setattr(checksums, "write_seal", full)
    with pytest.raises(ResourceExhausted):
        put(path, rows=7)
    assert [p.name for p in tmp_path.iterdir()] == ["rlb-small.hdf5"]


def test_only_attributes_of_one_number_or_text_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file can claim any memory for a list of sequences: all of them may be one object."""
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.attrs.update({"env_id": "Hopper-v4", "seed": 3, "bytes": np.bytes_("x"), "pair": np.array([1, 2])})
        sequences = np.array([np.arange(2), np.arange(3)], object)
        file.attrs.create("many", sequences, dtype=h5py.vlen_dtype(np.int32))
        file.create_dataset("metadata/algorithm", (), h5py.vlen_dtype(np.int32))
    names, read = set[str](), h5py.AttributeManager.__getitem__
    monkeypatch.setattr(h5py.AttributeManager, "__getitem__", lambda self, name: (names.add(name), read(self, name))[1])
    assert provenance(tmp_path / "a.hdf5") == {"bytes": "x", "env_id": "Hopper-v4", "seed": "3"}
    assert names == {"env_id", "seed", "bytes"}
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert not is_number_or_text(file["metadata/algorithm"])


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(UsageError, match="cannot be written; choose another folder with RLBENCH_DATASETS"):
        put(tmp_path / "deep" / "a")


def test_a_checksum_of_an_earlier_version_still_counts(tmp_path: Path) -> None:
    path = tmp_path / "rlb-small.hdf5"
    digest, beside = put(path), tmp_path / "rlb-small.hdf5.sha256.json"
    document = json.loads(beside.read_text())
    del document["checksum"]
    beside.write_text(json.dumps(document))
    assert checksums.verify(path).sha256 == digest.sha256
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(RefusedFile, match="recorded was"):
        checksums.seal_of(path)
    for broken in ({**document, "url": "elsewhere", "checksum": "0" * 16}, {**document, "more": 1}, {"size": 1}, [1]):
        beside.write_text(json.dumps(broken))
        with pytest.raises(RefusedFile, match="damaged; delete it"):
            checksums.seal_of(path)
