"""The output of ``rlbench data``."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from rlbench.cli.app import main
from tests.commands import stdout_of

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No verb meets the data sets of the developer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("D4RL_DATASET_DIR", "MINARI_DATASETS_PATH", "MINARI_REMOTE"):
        monkeypatch.delenv(name, raising=False)


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


def printed(capsys: Capture, *line: str, code: int = 0) -> str:
    assert main(["data", *line]) == code
    return capsys.readouterr().out


def complaint(capsys: Capture, *line: str) -> str:
    assert main(["data", *line]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return captured.err


def test_list_names_what_is_here_and_what_d4rl_has(own: Path, capsys: Capture) -> None:
    rows = dict(line.split("\t") for line in printed(capsys, "list").splitlines())
    assert rows["rlb-toy"] == str(own)
    assert rows["halfcheetah-medium-v2"] == "-"
    assert "halfcheetah-medium-v0" not in rows
    listed = json.loads(printed(capsys, "list", "--all", "--json"))["datasets"]
    assert len(listed) == 156 + 9  # our own recipes
    assert listed[0] == {
        "name": "rlb-toy",
        "kind": "own",
        "path": str(own),
        "url": None,
        "env_id": None,
        "reference": None,
        "note": None,
    }


def test_show_counts_episodes_returns_ends_and_coverage(own: Path, capsys: Capture) -> None:
    summary = json.loads(printed(capsys, "show", "rlb-toy", "--json"))
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
    text = printed(capsys, "show", str(own))
    assert "2 terminated, 2 truncated, 1 not marked" in text
    assert text.count("#" * 40) == 4
    with h5py.File(own, "a") as file:
        file.attrs["note"] = "\x1b[2J" + "x" * 900
    own.with_name(own.name + ".sha256.json").unlink()
    text = printed(capsys, "show", str(own))
    assert "?[2Jxx" in text
    assert max(len(line) for line in text.splitlines()) < 300


def test_show_gives_d4rls_score_for_d4rls_sets(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / ".d4rl/datasets/hopper_medium-v2.hdf5"
    path.parent.mkdir(parents=True)
    with h5py.File(path, "w") as file:
        file["observations"] = np.zeros((4, 11))
        file["actions"] = np.zeros((4, 3))
        file["rewards"] = np.full(4, 3234.3 / 4)
        file["terminals"] = np.zeros(4)
        file["timeouts"] = [0, 0, 0, 1]
    assert json.loads(printed(capsys, "show", "hopper-medium-v2", "--json"))["normalized"] == pytest.approx(100)


def test_verify_notices_a_change_since_the_first_use(own: Path, capsys: Capture) -> None:
    first = printed(capsys, "verify")
    assert first.startswith("rlb-toy\tok ")
    with h5py.File(own, "a") as file:
        file["rewards"][3] = 7.0
    assert main(["data", "verify", "--json"]) == 2
    captured = capsys.readouterr()
    assert "recorded was" in json.loads(captured.out)["datasets"][0]["fault"]
    assert "1 of 1 data sets did not pass: rlb-toy" in captured.err


def test_import_verifies_and_names_a_data_set(own: Path, capsys: Capture, tmp_path: Path) -> None:
    path = Path(printed(capsys, "import", str(own), "--name", "rlb-copy").strip())
    assert path.read_bytes() == own.read_bytes()
    assert "give it one: --name" in complaint(capsys, "import", str(own.rename(tmp_path / "nameless.hdf5")))
    broken = tmp_path / "rlb-broken.hdf5"
    broken.write_bytes(path.read_bytes()[:-9])
    assert "no whole HDF5 file" in complaint(capsys, "import", str(broken))
    assert not (path.parent / broken.name).exists()


def test_download_of_a_generated_set_names_the_generate_command(capsys: Capture) -> None:
    assert "rlbench data generate rlb-hopper-medium" in complaint(capsys, "download", "rlb-hopper-medium")


def test_missing_data_set_is_reported_in_one_line_with_a_remedy(capsys: Capture) -> None:
    assert "rlbench data generate rlb-halfcheetah-medium" in complaint(capsys, "show", "halfcheetah-medium-v2")
    assert "did you mean 'halfcheetah-medium-v2'" in complaint(capsys, "show", "halfcheetah-medum-v2")


def test_imported_sb3_zip_generates_data(capsys: Capture, tmp_path: Path) -> None:
    zipped, policy_file = (
        Path(__file__).parents[1] / "datasets/sb3-2.9.2-sac-pendulum.zip",
        tmp_path / "policy.safetensors",
    )
    assert "--task" in complaint(capsys, "import", str(zipped))
    output = printed(capsys, "import", str(zipped), "--task", "Pendulum-v1", "--output", str(policy_file))
    assert output.startswith(f"{policy_file}: plays Pendulum-v1, 3 numbers to 1, SHA-256 ")
    assert policy_file.stat().st_size > 1000
    assert printed(capsys, "import", str(zipped), "--task", "Pendulum-v1", "--output", str(policy_file)) == output


def test_list_names_the_sets_that_can_be_made(capsys: Capture) -> None:
    assert "rlb-halfcheetah-medium\t-\n" in printed(capsys, "list")


def test_a_refused_data_set_leaves_no_row_and_is_named_once(own: Path, capsys: Capture) -> None:
    with h5py.File(own, "a") as file:
        file.attrs["env_id"] = "Hopper-v4"
    learn = ["run", "offline", "td3bc", "Hopper-v4", "--dataset", str(own), "--results", "results", "--quiet"]
    assert main(learn) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("observations and actions of 2 and 1 numbers, Hopper-v4 has 11 and 3") == 1
    assert stdout_of(["list", "runs"]) == ""
