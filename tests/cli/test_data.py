"""The output of ``rlbench data``."""

import errno
import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from rlbench.datasets import checksums, dataset_fetch
from rlbench.datasets.loader import load_dataset
from tests.commands import json_of, line_of_refusal, run_command, stdout_of
from tests.datasets.conftest import minari_set


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Four episodes of five steps and one of two: returns 0, 5, 10, 15; every other one terminates."""
    path = tmp_path / ".rlbench/datasets/rlb-toy.hdf5"
    path.parent.mkdir(parents=True)
    last = np.arange(22) % 5 == 4
    with h5py.File(path, "w") as file:
        file["observations"] = np.stack([np.arange(22.0), np.ones(22)], 1)
        file["actions"] = np.linspace(-1.05, 1.05, 22)[:, None]
        file["rewards"] = np.repeat(np.arange(5.0), 5)[:22]
        file["terminals"] = last & (np.arange(22) < 10)
        file["timeouts"] = last & (np.arange(22) >= 10)
        file.attrs["env_id"] = "Toy-v4"
    return path


def test_list_names_what_is_here_and_what_d4rl_has(own: Path) -> None:
    rows = dict(line.split("\t") for line in stdout_of("data list").splitlines())
    assert rows["rlb-toy"] == str(own)
    assert rows["halfcheetah-medium-v2"] == "-"
    assert rows["rlb-halfcheetah-medium"] == "-"  # can be made
    assert "halfcheetah-medium-v0" not in rows
    listed = json_of("data list --all --json")["datasets"]
    assert len(listed) == 156 + 9  # our own recipes
    none = dict.fromkeys(("url", "env_id", "reference", "note"))
    assert listed[0] == {"name": "rlb-toy", "kind": "own", "path": str(own), **none}


def test_names_of_files_with_line_breaks_and_tabs_make_no_lines(own: Path, tmp_path: Path) -> None:
    sets = tmp_path / ".minari" / "datasets" / "a\nrlb-hopper-medium\tok"
    (sets / "data").mkdir(parents=True)
    for name in ("main_data.hdf5", "metadata.json"):
        (sets / "data" / name).touch()
    results = tmp_path / "a\nno fault"
    (results / "toy" / "seed=0").mkdir(parents=True)
    (results / "toy" / "seed=0" / "spec.json").touch()
    for words, code in ((["data", "list"], 0), (["data", "verify"], 2)):
        lines = stdout_of(words, code).splitlines()
        assert [line for line in lines if line.startswith("rlb-hopper-medium\tok")] == []
        assert any(line.startswith("a\\nrlb-hopper-medium\\tok\t") for line in lines)
    for words, code in ((["list", "runs", "--results", str(results)], 0), (["verify", str(results)], 2)):
        assert len(stdout_of(words, code).splitlines()) == 1 + (words[0] == "verify")


def test_show_counts_episodes_returns_ends_and_coverage(own: Path) -> None:
    summary = json_of("data show rlb-toy --json")
    assert (summary["steps"], summary["features"], summary["actions"], summary["episodes"]) == (22, 2, 1, 5)
    assert (summary["terminated"], summary["truncated"], summary["unfinished"]) == (2, 2, 1)
    assert summary["returns"]["mean"] == 7.5
    assert summary["returns"]["quartiles"] == [3.75, 7.5, 11.25]
    assert summary["lengths"]["high"] == 5
    assert sum(bar["count"] for bar in summary["histogram"]) == 4
    assert summary["outside"] == pytest.approx(2 / 22)
    assert summary["action_cover"] == 1
    assert summary["metadata"] == {"env_id": "Toy-v4"}
    assert len(summary["sha256"]) == 64
    text = stdout_of(f"data show {own}")
    assert "2 terminated, 2 truncated, 1 not marked" in text
    assert text.count("#" * 40) == 4
    with h5py.File(own, "a") as file:
        file.attrs["note"] = "\x1b[2J" + "x" * 900
        file.attrs[b"caf\xe9"] = 1.0
    own.with_name(own.name + ".sha256.json").unlink()
    text = stdout_of(f"data show {own}")
    assert "?[2Jxx" in text and "caf\ufffd" in text
    assert max(len(line) for line in text.splitlines()) < 300


def test_show_gives_d4rls_score_for_d4rls_sets(tmp_path: Path) -> None:
    path = tmp_path / ".d4rl/datasets/hopper_medium-v2.hdf5"
    path.parent.mkdir(parents=True)
    with h5py.File(path, "w") as file:
        file["observations"] = np.zeros((4, 11))
        file["actions"] = np.zeros((4, 3))
        file["rewards"] = np.full(4, 3234.3 / 4)
        file["terminals"] = np.zeros(4)
        file["timeouts"] = [0, 0, 0, 1]
    assert json_of("data show hopper-medium-v2 --json")["normalized"] == pytest.approx(100)


def test_verify_notices_a_change_since_the_first_use(own: Path) -> None:
    assert stdout_of("data verify").startswith("rlb-toy\tok ")
    with h5py.File(own, "a") as file:
        file["rewards"][3] = 7.0
    code, out, error = run_command("data verify --json")
    assert code == 2 and "recorded was" in json.loads(out)["datasets"][0]["fault"]
    assert "1 of 1 data sets did not pass: rlb-toy" in error


def test_verify_goes_on_after_a_file_that_it_may_not_read(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(own, own.with_name("rlb-a.hdf5"))
    verify = checksums.verify

    def refused(path: Path) -> checksums.Seal:
        if path.stem == "rlb-a":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return verify(path)

    monkeypatch.setattr(checksums, "verify", refused)
    first, second = stdout_of("data verify", 2).splitlines()
    assert first.endswith("rlb-a.hdf5: Permission denied; check its permissions") and second.startswith("rlb-toy\tok ")


def test_import_verifies_and_names_a_data_set(own: Path, tmp_path: Path) -> None:
    path = Path(stdout_of(f"data import {own} --name rlb-copy").strip())
    assert path.read_bytes() == own.read_bytes()
    for words in ("--workers 3", "--task Hopper-v4"):
        assert f"{own}: is no shard; leave --task and --workers out" in line_of_refusal(f"data import {own} {words}")
    assert "give it one: --name" in line_of_refusal(f"data import {own.rename(tmp_path / 'nameless.hdf5')}")
    broken = tmp_path / "rlb-broken.hdf5"
    broken.write_bytes(path.read_bytes()[:-9])
    assert "no whole HDF5 file" in line_of_refusal(f"data import {broken}")
    assert not (path.parent / broken.name).exists()


@pytest.mark.parametrize("size", [-9, None])
def test_import_copies_the_file_that_it_checked_or_none(
    size: int | None, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_and_exchange(path: Path, name: str, *, max_bytes: int | None) -> None:
        load_dataset(path, name, max_bytes=max_bytes)
        path.write_bytes((path.read_bytes() + b"0")[:size])

    monkeypatch.setattr(dataset_fetch, "load_dataset", read_and_exchange)
    assert "changed while it was read" in line_of_refusal(f"data import {own} --name rlb-copy")
    assert [path.name for path in own.parent.iterdir()] == [own.name]


def test_download_of_a_generated_set_names_the_generate_command() -> None:
    assert "rlbench data generate rlb-hopper-medium" in line_of_refusal("data download rlb-hopper-medium")
    games = "rlbench data generate TASK --policy RUN --steps N --name rlb-pong-qrdqn-1e6; games with --epsilon 0.2"
    assert games in line_of_refusal("data download rlb-pong-qrdqn-1e6")  # no recipe has that name


def test_download_of_an_own_set_that_is_here_prints_its_path(own: Path) -> None:
    assert stdout_of("data download rlb-toy") == f"{own}\n"


def test_a_refused_data_set_leaves_no_row_and_is_named_once(own: Path) -> None:
    with h5py.File(own, "a") as file:
        file.attrs["env_id"] = "Hopper-v4"
    code, out, error = run_command(f"run offline td3bc Hopper-v4 --dataset {own} --quiet")
    assert (code, out) == (2, "")
    assert error.count("observations and actions of 2 and 1 dimensions, Hopper-v4 has 11 and 3") == 1
    assert stdout_of("list runs") == ""


def walk(folder: Path) -> Path:
    """A data set of Minari's whose id has no namespace."""
    one = np.zeros((1, 1))
    ends = {"terminations": one[0], "truncations": np.ones(1)}
    episode = {"observations": np.zeros((2, 2)), "actions": one, "rewards": one[0], **ends}
    return minari_set(folder, [episode], dataset_id="walk-v0")


def test_a_set_of_minari_without_a_namespace_is_imported_by_its_own_name(tmp_path: Path) -> None:
    folder = walk(tmp_path / "from")
    for _ in range(2):
        assert stdout_of(f"data import {folder}") == f"{tmp_path / '.minari/datasets/walk-v0'}\n"
    assert stdout_of("data verify walk-v0").startswith("walk-v0\tok ")
    for name in ("walk", "rlb-walk-v0"):  # neither is a name of Minari's
        assert line_of_refusal(f"data import {folder} --name {name}")


def test_verify_of_all_sets_reads_none_of_their_names_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk(tmp_path / ".minari/datasets/walk")
    (tmp_path / "here").mkdir()
    (tmp_path / "here/walk").touch()
    monkeypatch.chdir(tmp_path / "here")
    assert stdout_of("data verify").startswith("walk\tok ")
    assert "walk: " in stdout_of("data verify walk", 2)  # by name, a path comes first
