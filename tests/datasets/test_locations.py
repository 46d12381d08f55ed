"""Names, locations, scales and checksums of data sets."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench import disk
from rlbench.datasets import catalogue, checksums, d4rl, dataset_fetch
from rlbench.datasets.loader import load_dataset
from rlbench.errors import RefusedFile, UnknownName, UsageError
from rlbench.report.reference_table import dataset_scales

Columns = dict[str, NDArray[np.generic]]


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("D4RL_DATASET_DIR", "MINARI_DATASETS_PATH", "RLBENCH_DATASETS"):
        monkeypatch.delenv(variable, raising=False)


def test_every_set_of_d4rl_is_known() -> None:
    sets = catalogue.d4rl()
    assert len(sets) == 155
    one = sets["halfcheetah-medium-replay-v2"]
    assert one.url.endswith("/offline_rl/gym_mujoco_v2/halfcheetah_medium_replay-v2.hdf5")
    assert (one.features, one.actions, one.steps) == (17, 6, 202_000)
    assert one.env_id == "HalfCheetah-v4"
    assert len({each.file for each in sets.values()}) == 155
    assert all((row.low, row.high) == dataset_scales()[name] for name, row in sets.items() if name in dataset_scales())


def test_d4rls_scale_has_a_random_policy_at_0_and_the_expert_at_100() -> None:
    assert catalogue.normalize(-280.178953, "halfcheetah-medium-v2") == pytest.approx(0)
    assert catalogue.normalize(12135.0, "halfcheetah-medium-v2") == pytest.approx(100)
    assert catalogue.normalize(3234.3 / 2 - 20.272305 / 2, "hopper-expert-v2") == pytest.approx(50)
    assert catalogue.normalize(1.0, "carla-town-full-v0") is catalogue.normalize(1.0, None) is None


def test_missing_set_message_names_locations_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as missing:
        catalogue.find("halfcheetah-medium-v2")
    message = str(missing.value)
    assert missing.value.exit_code == 2
    for part in (
        f"{tmp_path}/.d4rl/datasets/halfcheetah_medium-v2.hdf5",
        "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/halfcheetah_medium-v2.hdf5",
        "1,000,000 steps, 166 MB",
        "--dataset PATH",
        "D4RL_DATASET_DIR",
        "rlbench data download halfcheetah-medium-v2",
        "rlbench data generate rlb-halfcheetah-medium",
    ):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rlb-hopper-medium", "rlb-hopper-medium: not in .*; make it: rlbench data generate rlb-hopper-medium$"),
        ("rlb-pong-qrdqn-1e6", "generate TASK --policy RUN --steps N --name rlb-pong-qrdqn-1e6; games with --epsilon"),
        ("mujoco/hopper/medium-v0", "rlbench data download mujoco/hopper/medium-v0"),
        ("ant-medium-v2", "rlbench data generate Ant-v4 --policy RUN"),
        ("pen-human-v1", "size not published"),
    ],
)
def test_every_kind_of_set_has_its_location(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        catalogue.find(name)


@pytest.mark.parametrize(
    "name", ["halfcheetah-medum-v2", "../../etc/x-v0", "/etc/x-v0", "a/../b-v0", "rlb-../x", "rlb-", "", "x"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UnknownName):
        catalogue.locate(name)


def test_a_given_path_comes_first(tmp_path: Path) -> None:
    here = tmp_path / "mine.hdf5"
    with pytest.raises(UsageError, match=r"--dataset .*mine\.hdf5: no such file"):
        catalogue.find("hopper-medium-v2", here)
    here.touch()
    assert catalogue.find("hopper-medium-v2", here) == here


def test_sets_are_imported_listed_and_found(
    tmp_path: Path, columns: Columns, write_flat: Callable[..., Path], write_minari: Callable[..., Path]
) -> None:
    source = write_flat(columns)
    there = dataset_fetch.import_dataset(source, "rlb-mine")
    assert there.path == tmp_path / ".rlbench/datasets/rlb-mine.hdf5"
    assert there.path.read_bytes() == source.read_bytes()
    assert checksums.read_seal(there.path) is not None
    one = np.zeros((1, 1))
    episode = {"observations": np.zeros((2, 2)), "actions": one, "rewards": one[0], "terminations": one[0]}
    dataset_fetch.import_dataset(write_minari([{**episode, "truncations": np.ones(1)}]), "toy/walk/medium-v0")
    assert [(location.name, location.kind) for location in catalogue.list_local()] == [
        ("rlb-mine", "own"),
        ("toy/walk/medium-v0", "minari"),
    ]
    assert load_dataset(catalogue.find("toy/walk/medium-v0")).final.tolist() == [False, True]
    assert dataset_fetch.import_dataset(source, "rlb-mine") == there
    alone = shutil.copytree(tmp_path / ".minari/datasets/toy/walk/medium-v0", tmp_path / ".minari/datasets/walk")
    there.path.with_name("rlb-Mine.hdf5").touch()  # no name that a command takes
    assert [place.name for place in catalogue.list_local()] == ["rlb-mine", "toy/walk/medium-v0", "walk"]
    assert catalogue.find("walk") == alone
    other = tmp_path / "other.hdf5"
    other.write_bytes(source.read_bytes() + b"more")
    with pytest.raises(UsageError, match="already"):
        dataset_fetch.import_dataset(other, "rlb-mine")
    with pytest.raises(UsageError, match="names a folder in Minari's layout"):
        dataset_fetch.import_dataset(source, "toy/other-v0")


def test_of_two_imports_of_one_name_at_once_the_later_is_refused(
    columns: Columns, write_flat: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (write_flat(columns, path=tmp_path / f"{k}.hdf5", rewards=np.full(30, k)) for k in (1, 2))
    place = tmp_path / ".rlbench/datasets"

    def copy(source: Path, target: Path) -> None:
        with pytest.raises(UsageError, match="another process is writing"), disk.locked(place, patience=0):
            pass
        target.write_bytes(source.read_bytes())

    def load(*_: object, **__: object) -> None:
        monkeypatch.setattr(dataset_fetch, "load_dataset", lambda *_, **__: None)
        dataset_fetch.import_dataset(first, "rlb-mine")

    monkeypatch.setattr("shutil.copyfile", copy)
    monkeypatch.setattr(dataset_fetch, "load_dataset", load)  # while the second is read, the first is imported
    with pytest.raises(UsageError, match=r"rlb-mine: is in .* already"):
        dataset_fetch.import_dataset(second, "rlb-mine")
    assert (place / "rlb-mine.hdf5").read_bytes() == first.read_bytes()
    checksums.verify(place / "rlb-mine.hdf5")


def test_other_file_cannot_take_a_d4rl_name(columns: Columns, write_flat: Callable[..., Path]) -> None:
    with pytest.raises(RefusedFile, match="observations: 3 numbers a step, hopper-medium-v2 has 11"):
        dataset_fetch.import_dataset(write_flat(columns), "hopper-medium-v2")
    wide = {"observations": np.ones((30, 11)), "next_observations": np.ones((30, 11)), "actions": np.ones((30, 3))}
    with pytest.raises(RefusedFile, match="has 30 steps, hopper-medium-v2 about 1,000,000; it is another data set"):
        dataset_fetch.import_dataset(write_flat({**columns, **wide}), "hopper-medium-v2")
    assert catalogue.list_local() == []


def test_a_file_is_recorded_on_first_use_and_a_change_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_bytes(b"one")
    seal = checksums.seal_of(path)
    assert checksums.read_seal(path) == seal
    path.touch()  # another time, the same bytes
    assert checksums.seal_of(path).sha256 == seal.sha256
    path.write_bytes(b"two")
    with pytest.raises(RefusedFile, match=r"SHA-256 .*, recorded was"):
        checksums.seal_of(path)
    (tmp_path / "set.json.sha256.json").write_text("{")
    with pytest.raises(RefusedFile, match=r"sha256\.json: damaged; delete it"):
        checksums.seal_of(path)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_change_of_equal_size_and_time_is_noticed(replaced: bool, tmp_path: Path) -> None:
    path, other = tmp_path / "set.json", tmp_path / "other.json"
    path.write_bytes(b"one")
    seal = checksums.seal_of(path)
    while time.time_ns() - path.stat().st_ctime_ns < 20_000_000:  # clocks of file systems tick every 10 ms at most
        time.sleep(0.005)
    (other if replaced else path).write_bytes(b"eno")
    if replaced:
        other.replace(path)
    os.utime(path, ns=(seal.modified, seal.modified))
    with pytest.raises(RefusedFile, match="recorded was"):
        checksums.seal_of(path)


def test_checksum_of_an_older_version_is_read_and_completed(tmp_path: Path) -> None:
    path, beside = tmp_path / "set.json", tmp_path / "set.json.sha256.json"
    path.write_bytes(b"one")
    checksums.seal_of(path)
    content = json.loads(beside.read_text())
    older = {name: content[name] for name in ("schema_version", "size", "sha256", "modified", "url")}
    beside.write_text(json.dumps(older))
    assert checksums.is_unchanged(path, checksums.seal_of(path))
    assert json.loads(beside.read_text()) == content


def test_file_that_another_program_writes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.hdf5"
    with h5py.File(path, "w") as file:
        file["rewards"] = np.ones(3)
    with path.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as HDF5 does for writing
        with pytest.raises(UsageError, match=r"cannot be locked, or is being written .*; close it in"):
            d4rl.row_count(path)
    assert d4rl.row_count(path) == 3  # steps
    with h5py.File(path, "a") as file:
        file["terminals"], file["timeouts"] = np.array([0, 1, 0]), np.array([False, False, True])
    assert d4rl.row_count(path) == 5  # and two final observations
    with h5py.File(path, "w", libver="latest") as file:  # whose header says so, also after a kill
        file.flush()
        shutil.copy(path, tmp_path / "copy.hdf5")
    with pytest.raises(RefusedFile, match=r"being written, or the program that wrote it was killed .*h5clear -s"):
        d4rl.row_count(tmp_path / "copy.hdf5")


@pytest.mark.timeout(60)
def test_rows_that_were_never_written_are_not_counted_one_by_one(tmp_path: Path) -> None:
    path, count = tmp_path / "set.hdf5", 10**13
    with h5py.File(path, "w") as file:
        for key in ("rewards", "terminals", "timeouts"):
            file.create_dataset(key, (count,), "?", chunks=(1000,), fillvalue=True)
    assert d4rl.row_count(path) == count


def test_checksum_of_a_partial_file_is_not_stored(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.hdf5", tmp_path / "set.hdf5"
    with h5py.File(whole, "w") as file:
        file["rewards"] = np.ones(1000)
    path.write_bytes(whole.read_bytes()[:1000])
    with pytest.raises(RefusedFile, match="no whole HDF5 file"):
        checksums.seal_of(path)
    assert checksums.read_seal(path) is None
    path.write_bytes(whole.read_bytes())
    assert checksums.seal_of(path).sha256 == checksums.compute_seal(whole).sha256


@pytest.mark.parametrize(
    ("path", "name", "is_named"),
    [
        ("a/hopper_medium-v2.hdf5", "hopper-medium-v2", True),
        ("a/hopper-medium-v2.hdf5", "hopper-medium-v2", True),
        ("a/hopper_expert-v2.hdf5", "hopper-medium-v2", False),
        ("a/data.hdf5", "hopper-medium-v2", False),
        ("b/mujoco/hopper/medium-v0", "mujoco/hopper/medium-v0", True),
        ("b/hopper/medium-v0", "mujoco/hopper/medium-v0", False),
        ("a/rlb-x.hdf5", "rlb-x", True),
        ("a/rlb-y.hdf5", "rlb-x", False),
    ],
)
def test_a_file_is_known_by_its_name(tmp_path: Path, path: str, name: str, *, is_named: bool) -> None:
    assert catalogue.has_name(tmp_path / path, name) is is_named


@pytest.mark.parametrize(
    ("variable", "name", "kind", "below", "file"),
    [
        ("D4RL_DATASET_DIR", "hopper-medium-v2", "d4rl", ".d4rl/datasets", "hopper_medium-v2.hdf5"),
        ("MINARI_DATASETS_PATH", "a/b-v0", "minari", ".minari/datasets", "a/b-v0"),
        ("RLBENCH_DATASETS", "rlb-x", "own", ".rlbench/datasets", "rlb-x.hdf5"),
    ],
)
def test_folder_of_a_kind_is_the_variables_or_in_the_home(
    variable: str, name: str, kind: catalogue.Kind, below: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path.home()
    for value, folder in {"": below, str(home / "other"): "other", "~/sets": "sets"}.items():  # ~: no shell has read it
        monkeypatch.setenv(variable, value)
        assert (catalogue.folder(kind), catalogue.locate(name).path) == (home / folder, home / folder / file)
