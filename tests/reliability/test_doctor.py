"""``rlbench doctor``: a line for everything a run needs, with a remedy for everything that is not there."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from collections import namedtuple
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from rlbench import suites
from rlbench.cli import doctor
from rlbench.record import machine
from tests.reliability.odd import told

Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil gives it
LINES = {
    "python", "torch", "device", "gymnasium", "ale roms", "envpool", "mujoco", "gymnasium_robotics", "h5py",
    "d4rl data", "minari data", "own data", "engine", "updates", "c++ compiler", "disk", "memory", "cores", "threads",
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RLBENCH_DATASETS", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)


def found(*words: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """The exit code, and state and detail of every line by what it is about."""
    code, out, _ = told(["doctor", *words, "--json"])
    rows: dict[str, list[tuple[str, str]]] = {}
    for row in json.loads(out)["findings"]:
        rows.setdefault(row["what"], []).append((row["state"], row["detail"]))
    return code, rows


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A machine on which packages cannot be imported."""
    usual = doctor._imported

    def imported(name: str) -> ModuleType | str:
        return f"ModuleNotFoundError: No module named '{name}'" if name in names else usual(name)

    monkeypatch.setattr(doctor, "_imported", imported)


def test_everything_has_its_line_and_every_suite_its_engine() -> None:
    code, rows = found()
    assert (code, set(rows)) == (0, LINES)
    assert [detail.partition(":")[0] for _, detail in rows["engine"]] == suites.names()
    assert all(state in {"ok", "optional"} for lines in rows.values() for state, _ in lines)


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a card")
def test_it_says_how_updates_will_be_computed_and_why_not_faster() -> None:
    ((state, detail),) = found("toy")[1]["updates"]
    assert (state, detail.partition(";")[0]) == ("ok", "eager: no CUDA card")


@pytest.mark.parametrize(
    ("package", "suite", "line", "remedy"),
    [
        ("torch", "toy", "torch", "pip install 'torch>=2.10'"),
        ("gymnasium", "toy", "gymnasium", "pip install 'gymnasium>=1.2'"),
        ("ale_py.roms", "atari", "ale", "pip install 'ale-py"),
        ("mujoco", "mujoco", "mujoco", "pip install 'mujoco>=3.2,<4'"),
        ("gymnasium_robotics", "goals", "gymnasium_robotics", "pip install 'gymnasium-robotics>=1.4'"),
        ("h5py", "offline", "h5py", "pip install 'h5py>=3.12'"),
    ],
)
def test_a_missing_package_is_exit_2_with_its_remedy(
    package: str, suite: str, line: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, package)
    code, rows = found(suite)
    assert code == 2
    ((state, detail),) = rows[line]
    assert state == "missing" and remedy in detail


def test_roms_that_are_gone_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = doctor._rom
    monkeypatch.setattr(doctor, "_rom", lambda roms, game: game != "pong" and usual(roms, game))
    code, rows = found("atari")
    assert code == 2 and rows["ale roms"][0][0] == "missing" and "none for pong;" in rows["ale roms"][0][1]


def test_a_full_disk_little_memory_and_a_read_only_folder_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12, 5))
        code, rows = found("toy")
        assert code == 2 and "needed; free some" in rows["disk"][0][1]
    with monkeypatch.context() as patch:
        patch.setattr(machine, "available_memory", lambda: 10_000_000)
        code, rows = found("toy")
        assert code == 2 and rows["memory"][0][0] == "missing" and "--set" in rows["memory"][0][1]
    monkeypatch.setattr(os, "access", lambda *_: False)
    code, rows = found("toy")
    assert code == 2 and "cannot be written" in rows["disk"][0][1] and "--results" in rows["disk"][0][1]


def test_a_card_that_torch_does_not_see_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = importlib.import_module("torch")
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        patch.setattr(doctor, "DRIVER", tmp_path)
        (line,) = found("toy")[1]["device"]
        assert line[0] == "optional" and "there is an NVIDIA card" in line[1] and "CUDA builds" in line[1]
        patch.setattr(doctor, "DRIVER", tmp_path / "none")
        assert "install its driver" in found("toy")[1]["device"][0][1]
    card = SimpleNamespace(is_available=lambda: True, get_device_name=lambda _: "H200", device_count=lambda: 1)
    monkeypatch.setattr(torch, "cuda", card)
    rows = found("toy")[1]
    assert rows["device"] == [("ok", "cuda: H200")] and "on cuda" in rows["engine"][0][1]


@pytest.mark.parametrize(
    ("asked", "state"), [("", "ok"), ("1", "ok"), ("4096", "optional"), ("many", "optional"), ("0", "optional")]
)
def test_a_number_of_threads_that_does_not_fit_is_said(asked: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    ((said, detail),) = found("toy")[1]["threads"]
    assert said == state and ("unset it" in detail) == (state == "optional")


def test_data_folders_say_what_is_in_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = found("offline")[1]
    assert rows["own data"][0][0] == "optional" and "rlbench data generate" in rows["own data"][0][1]
    corpus = Path(__file__).parent / "corpus" / "schema-1"
    monkeypatch.setenv("RLBENCH_DATASETS", str(corpus))
    assert found("offline")[1]["own data"] == [("ok", f"2 sets in {corpus}")]


def test_no_compiler_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    code, rows = found("toy")
    assert code == 0 and rows["c++ compiler"][0][0] == "optional" and "apt install g++" in rows["c++ compiler"][0][1]
