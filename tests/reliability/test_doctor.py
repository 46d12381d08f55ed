"""``rlbench doctor``: a line for every requirement of a run, with a remedy for every missing one."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import tomllib
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from rlbench import suites
from rlbench.cli import doctor
from rlbench.cli.resolve import resolve
from rlbench.config.footprint import footprint
from rlbench.records import machine
from tests.commands import run_command
from tests.laws.source import ROOT
from tests.laws.test_command_line import parsed, unknown

Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil gives it
LINES = {
    "python", "torch", "device", "gymnasium", "ale roms", "envpool", "mujoco", "gymnasium_robotics", "h5py",
    "d4rl data", "minari data", "own data", "updates", "c++ compiler", "disk", "memory",
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RLBENCH_DATASETS", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)


def actual(*words: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """The exit code, and state and detail of every line by what it is about."""
    code, out, _ = run_command(["doctor", *words, "--json"])
    rows: dict[str, list[tuple[str, str]]] = {}
    for row in json.loads(out)["findings"]:
        rows.setdefault(row["what"], []).append((row["state"], row["detail"]))
    return code, rows


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A machine on which packages cannot be imported."""
    usual = doctor._try_import

    def fail_import(name: str) -> ModuleType | str:
        return f"ModuleNotFoundError: No module named '{name}'" if name in names else usual(name)

    monkeypatch.setattr(doctor, "_try_import", fail_import)
    monkeypatch.delenv("MUJOCO_GL", raising=False)  # rendering sets it, and doctor names its library first


def test_doctor_prints_every_requirement() -> None:
    code, rows = actual()
    assert (code, set(rows)) == (0, LINES)
    assert all(state in {"ok", "optional"} for lines in rows.values() for state, _ in lines)


def test_doctor_names_the_update_engine_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ((state, detail),) = actual("toy")[1]["updates"]
    assert (state, detail.partition(";")[0]) == ("ok", "eager: no CUDA GPU")


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
    code, rows = actual(suite)
    assert code == 2
    ((state, detail),) = rows[line]
    assert state == "missing" and remedy in detail


def test_missing_roms_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = doctor._rom
    monkeypatch.setattr(doctor, "_rom", lambda roms, game: game != "pong" and usual(roms, game))
    code, rows = actual("atari")
    assert code == 2 and rows["ale roms"][0][0] == "missing" and "none for pong;" in rows["ale roms"][0][1]


def test_full_disk_little_memory_and_read_only_folder_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12, 5))
        code, rows = actual("toy")
        assert code == 2 and "needed; free some" in rows["disk"][0][1]
    with monkeypatch.context() as patch:
        patch.setattr(machine, "available_memory", lambda: 10_000_000)
        code, rows = actual("toy")
        assert code == 2 and rows["memory"][0][0] == "missing" and "close other programs" in rows["memory"][0][1]
    monkeypatch.setattr(os, "access", lambda *_: False)
    code, rows = actual("toy")
    assert code == 2 and "cannot be written" in rows["disk"][0][1] and "RLBENCH_RESULTS" in rows["disk"][0][1]


def test_gpu_without_a_cuda_torch_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = importlib.import_module("torch")
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        patch.setattr(doctor, "DRIVER", tmp_path)
        (line,) = actual("toy")[1]["device"]
        assert line[0] == "optional" and "there is an NVIDIA GPU" in line[1] and "pypi.org/simple torch==2" in line[1]
        patch.setattr(doctor, "DRIVER", tmp_path / "none")
        assert "install its driver" in actual("toy")[1]["device"][0][1]
    gpu = SimpleNamespace(is_available=lambda: True, get_device_name=lambda _: "H200", device_count=lambda: 1)
    monkeypatch.setattr(torch, "cuda", gpu)
    assert actual("toy")[1]["device"] == [("ok", "cuda: H200")]


def test_data_folders_are_listed_with_their_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = actual("offline")[1]
    assert rows["own data"][0][0] == "optional" and "rlbench data generate" in rows["own data"][0][1]
    corpus = Path(__file__).parent / "corpus" / "schema-1"
    monkeypatch.setenv("RLBENCH_DATASETS", str(corpus))
    assert actual("offline")[1]["own data"] == [("ok", f"2 sets in {corpus}")]


def test_missing_compiler_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    code, rows = actual("toy")
    assert code == 0 and rows["c++ compiler"][0][0] == "optional" and "apt install g++" in rows["c++ compiler"][0][1]


SETTINGS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "torch": ("toy", lambda patch: without(patch, "torch")),
    "gymnasium": ("mujoco", lambda patch: without(patch, "gymnasium", "mujoco")),
    "emulator": ("atari", lambda patch: without(patch, "ale_py.roms")),
    "roms": ("atari", lambda patch: patch.setattr(doctor, "_rom", lambda _roms, _game: False)),
    "robotics": ("goals", lambda patch: without(patch, "gymnasium_robotics")),
    "hdf5": ("offline", lambda patch: without(patch, "h5py")),
    "envpool": ("atari", lambda patch: patch.setattr(importlib.util, "find_spec", lambda _: None)),
    "compiler": ("toy", lambda patch: patch.setattr(shutil, "which", lambda _: None)),
    "driver": ("toy", lambda patch: patch.setattr(doctor, "DRIVER", Path("/"))),
    "disk": ("toy", lambda patch: patch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12, 5))),
    "permission": ("toy", lambda patch: patch.setattr(os, "access", lambda *_: False)),
    "memory": ("mujoco", lambda patch: patch.setattr(machine, "available_memory", lambda: 10_000_000)),
    "some memory": ("mujoco", lambda patch: patch.setattr(machine, "available_memory", lambda: 1_400_000_000)),
}
REQUIRED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = {*REQUIRED["dependencies"], *REQUIRED["optional-dependencies"]["envpool"]}


@pytest.mark.parametrize("what", SETTINGS)
def test_every_remedy_is_a_valid_command(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, take = SETTINGS[what]
    before = actual(suite)[1]
    with monkeypatch.context() as patch:
        take(patch)
        after = actual(suite)[1]
    lacking = [detail for lines in after.values() for state, detail in lines if state != "ok"]
    assert lacking and after != before
    for detail in lacking:
        commands = [shlex.split(command) for command in re.findall(r"`([^`]+)`", detail)]
        assert commands, detail
        for words in commands:
            run_typed(words)


def run_typed(words: list[str]) -> None:
    """Fails for a command that cannot be typed."""
    if words[0] == "rlbench":
        assert not list(unknown(parsed(words[1:])))
    elif words[1:4] == ["-m", "pip", "install"]:
        assert Path(words[0]).is_file()
        assert words[-1].startswith("torch==") or words[-1] in {name.split("  #")[0] for name in PACKAGES}
    else:
        assert words[0] in {"apt", "export", "unset"}


def test_remedy_for_little_memory_is_a_fitting_replay_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 1_400_000_000)
    ((state, detail),) = actual("mujoco")[1]["memory"]
    (command,) = re.findall(r"`rlbench run ([^`]+)`", detail)
    suite, algo, _, field = command.split()
    spec = resolve(suite, algo, suites.tasks(suite, with_reference=True)[0], sets=[field]).spec
    assert state == "missing" and footprint(spec).total < 1_400_000_000
    monkeypatch.setattr(machine, "available_memory", lambda: 10_000_000)
    assert "rlbench run toy dqn" in actual("mujoco")[1]["memory"][0][1]
