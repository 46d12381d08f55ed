"""Minari's own downloader, with a folder instead of its remote storage."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import minari
import numpy as np
import pytest
from minari.storage import remotes
from minari.storage.remotes.cloud_storage import CloudStorage

from rlbench.datasets import checksums, dataset_fetch
from rlbench.datasets.minari import read_minari, remote_names
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError

NAME = "toy/walk/medium-v0"
DATA = Path(NAME, "data", "main_data.hdf5")


@pytest.fixture
def server(write_minari: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The remote's folder with one data set of three steps; downloads go to the folder ``local``."""
    ends = np.array([False, False, True])
    episode = {
        "observations": np.arange(8.0).reshape(4, 2),
        "actions": np.zeros((3, 1)),
        "rewards": np.ones(3),
        "terminations": ends,
        "truncations": ~ends,
    }
    root = tmp_path / "server"
    write_minari([episode], NAME, root)
    (root / "toy" / "namespace_metadata.json").write_text("{}")

    class Folder(CloudStorage):
        def __init__(self, name: str, token: str | None = None) -> None:
            assert name == "farama-minari"

        def list_datasets(self, prefix: str | None = None) -> Iterator[str]:
            return (name for name in [NAME] if name.startswith(prefix or ""))

        def get_dataset_metadata(self, dataset_id: str) -> dict[str, object]:
            content: dict[str, object] = json.loads((root / dataset_id / "data" / "metadata.json").read_text())
            return {**content, "minari_version": minari.__version__}

        def download_dataset(self, dataset_id: str, path: Path) -> None:
            shutil.copytree(root / dataset_id, path / dataset_id, dirs_exist_ok=True)

        def download_namespace_metadata(self, namespace: str, path: Path) -> None:
            (path / namespace).mkdir(parents=True, exist_ok=True)
            shutil.copy(root / "toy" / "namespace_metadata.json", path / namespace)

        def list_namespaces(self) -> list[str]:
            return ["toy", "toy/walk"]

        def upload_dataset(self, dataset_id: str) -> None:
            raise NotImplementedError

        def upload_namespace(self, namespace: str) -> None:
            raise NotImplementedError

    monkeypatch.delenv("MINARI_REMOTE", raising=False)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "local"))
    monkeypatch.setitem(remotes._registry, "hf", lambda: Folder)
    return root


def test_a_data_set_is_listed_downloaded_and_recorded(
    server: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert remote_names() == [NAME]
    assert list(dataset_fetch.download_dataset(NAME)) == []
    local = tmp_path / "local" / DATA
    assert local.read_bytes() == (server / DATA).read_bytes()
    assert read_minari(tmp_path / "local" / NAME).obs.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    seal = checksums.read_seal(local)
    assert seal is not None and seal.size == local.stat().st_size
    assert capsys.readouterr().out == ""
    shutil.rmtree(server)
    assert list(dataset_fetch.download_dataset(NAME)) == []  # without the server


def test_interrupted_download_is_completed(server: Path, tmp_path: Path) -> None:
    (tmp_path / "local" / NAME / "data").mkdir(parents=True)
    list(dataset_fetch.download_dataset(NAME))
    assert (tmp_path / "local" / DATA).read_bytes() == (server / DATA).read_bytes()


def test_another_file_than_the_recorded_one_is_refused(server: Path, tmp_path: Path) -> None:
    list(dataset_fetch.download_dataset(NAME))
    (tmp_path / "local" / DATA).unlink()
    (server / DATA).write_bytes(b"another file")
    with pytest.raises(RefusedFile, match=r"recorded was [0-9a-f]{12}"):
        list(dataset_fetch.download_dataset(NAME))


def test_a_storage_format_that_nothing_here_reads_is_refused(server: Path) -> None:
    (server / DATA).unlink()
    with pytest.raises(RefusedFile, match="only the storage format hdf5 is read"):
        list(dataset_fetch.download_dataset(NAME))


def test_unknown_name_or_storage_is_a_usage_error(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"Couldn't find any version .* `rlbench data list --remote`"):
        list(dataset_fetch.download_dataset("toy/run/medium-v0"))
    monkeypatch.setenv("MINARI_REMOTE", "https://example.org")
    with pytest.raises(UsageError, match=r"MINARI_REMOTE=https://example\.org: give hf://ORGANISATION"):
        remote_names()


@pytest.mark.parametrize("failure", [ConnectionError("no route\nto host"), KeyError("size")])
def test_failing_remote_is_reported_in_one_line(
    failure: Exception, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(remotes._registry, "hf", Mock(side_effect=failure))
    with pytest.raises(ResourceExhausted, match="run the same command again") as raised:
        list(dataset_fetch.download_dataset(NAME))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("package", ["minari", "huggingface_hub"])
def test_without_the_packages_the_remedy_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINARI_REMOTE", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    sys.modules.pop("minari.storage.remotes.huggingface", None)
    with pytest.raises(UsageError, match=r"pip install 'minari\[hf\]"):
        remote_names()
