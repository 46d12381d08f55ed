"""Written data sets: D4RL's layout, provenance, equal bytes, and no partial file."""

import json
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np
import pytest

from rlbench.datasets import checksums, d4rl
from rlbench.datasets.d4rl import Columns, write_hdf5
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError

ATTRIBUTES = {"name": "rlb-small", "recipe": '{"steps":5}', "episodes": 2, "return_mean": 1.5}


def columns(rows: int = 5) -> Columns:
    """Some steps that differ in every number."""
    numbers = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    flags = np.arange(rows) % 5
    return Columns(
        observations=numbers, actions=-numbers[:, :2] / (3 * rows), rewards=numbers[:, 0] / 2, terminals=flags == 1,
        timeouts=flags == 4, next_observations=numbers + 100,
    )  # fmt: skip


def put(path: Path, rows: int = 5) -> d4rl.Written:
    """Write it."""
    return write_hdf5(path, columns(rows), ATTRIBUTES)


def test_the_layout_is_d4rls(tmp_path: Path) -> None:
    put(tmp_path / "rlb-small.hdf5")
    written = columns()
    with h5py.File(tmp_path / "rlb-small.hdf5") as file:
        layout = {name: (file[name].dtype, file[name][:].tolist()) for name in file}
        assert layout == {
            "observations": (np.float32, written.observations.tolist()),
            "actions": (np.float32, written.actions.tolist()),
            "rewards": (np.float32, written.rewards.tolist()),
            "terminals": (np.bool_, [False, True, False, False, False]),
            "timeouts": (np.bool_, [False, False, False, False, True]),
            "next_observations": (np.float32, (written.observations + 100).tolist()),
        }
        assert all(file[n].compression == "gzip" and file[n].fletcher32 and file[n].chunks for n in file)


def test_provenance_is_in_the_file(tmp_path: Path) -> None:
    put(tmp_path / "rlb-small.hdf5")
    with h5py.File(tmp_path / "rlb-small.hdf5") as file:
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


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


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
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ResourceExhausted):
        put(path, rows=7)
    assert [p.name for p in tmp_path.iterdir()] == ["rlb-small.hdf5"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
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
