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
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from rlbench import suites
from rlbench.cli import doctor
from rlbench.cli.resolve import resolve
from rlbench.config.footprint import footprint
from rlbench.errors import UsageError
from rlbench.records import machine
from tests.commands import run_command, stdout_of
from tests.laws.source import ROOT
from tests.laws.test_command_line import parsed, unknown

Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil gives it
LINES = {
    "python", "torch", "device", "gymnasium", "ale roms", "envpool", "mujoco", "gymnasium_robotics", "h5py",
    "d4rl data", "minari data", "own data", "updates", "c++ compiler", "disk", "memory",
}  # fmt: skip

FOLDERS = ("RLBENCH_DATASETS", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH")


@pytest.fixture(autouse=True)
def nothing_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in FOLDERS:
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


def test_doctor_prints_a_line_for_each_requirement_of_its_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "ale_py.roms")
    (missing,) = [line for line in stdout_of("doctor atari", 2).splitlines() if line.startswith("missing")]
    assert "pip install 'ale-py>=0.12'" in missing
    lines = stdout_of("doctor toy").splitlines()
    assert {"python", "torch", "disk"} <= {line.split()[1].rstrip(":") for line in lines}
    assert all(line.split()[0] in {"ok", "optional"} and "mujoco" not in line for line in lines)


@pytest.mark.parametrize(("gpu", "engine"), [(False, "eager: no CUDA GPU; on rollouts numpy"), (True, "cuda-graph")])
def test_doctor_names_the_update_engine_of_a_run(gpu: bool, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch, "cuda", SimpleNamespace(is_available=lambda: gpu, get_device_name=str, device_count=lambda: 1)
    )
    ((state, detail),) = actual("toy")[1]["updates"]
    assert state == "ok" and detail.startswith(engine)


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


class Lack(NamedTuple):
    """A machine that lacks something, and what doctor says of it."""

    suite: str
    take: Callable[[pytest.MonkeyPatch], None]
    line: str
    remedy: str
    code: int = 2


def without_pong(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = doctor._has_rom
    monkeypatch.setattr(doctor, "_has_rom", lambda game: game != "pong" and usual(game))


def with_memory(count: int) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(machine, "available_memory", lambda: count)


def with_results_at(target: str) -> Callable[[pytest.MonkeyPatch], None]:
    def take(patch: pytest.MonkeyPatch) -> None:
        Path("link").symlink_to(target)
        patch.setenv("RLBENCH_RESULTS", "link")

    return take


def long_name(variable: str, patch: pytest.MonkeyPatch) -> None:
    """A name that the system refuses, as it does a folder below an unreadable one."""
    patch.setenv(variable, "x" * 300)


LACKS = {
    "torch": Lack("toy", lambda patch: without(patch, "torch"), "torch", "pip install 'torch>=2.10'"),
    "gymnasium": Lack("toy", lambda patch: without(patch, "gymnasium"), "gymnasium", "pip install 'gymnasium>=1.2'"),
    "mujoco": Lack("mujoco", lambda patch: without(patch, "mujoco"), "mujoco", "pip install 'mujoco>=3.2,<4'"),
    "emulator": Lack("atari", lambda patch: without(patch, "ale_py.roms"), "ale", "pip install 'ale-py"),
    "roms": Lack("atari", without_pong, "ale roms", "none for pong;"),
    "robotics": Lack(
        "goals", lambda patch: without(patch, "gymnasium_robotics"), "gymnasium_robotics",
        "pip install 'gymnasium-robotics>=1.4'",
    ),
    "hdf5": Lack("offline", lambda patch: without(patch, "h5py"), "h5py", "pip install 'h5py>=3.12'"),
    "envpool": Lack(
        "atari", lambda patch: without(patch, "envpool"), "envpool", "pip install 'envpool>=1.2'", 0
    ),
    "compiler": Lack(
        "toy", lambda patch: patch.setattr(shutil, "which", lambda _: None), "c++ compiler", "`apt install g++`", 0
    ),
    "driver": Lack(
        "toy", lambda patch: patch.setattr(doctor, "DRIVER", Path("/")), "device", "there is an NVIDIA GPU", 0
    ),
    "disk": Lack(
        "toy", lambda patch: patch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12, 5)), "disk",
        "needed; free some",
    ),
    "permission": Lack(
        "toy", lambda patch: patch.setattr(os, "access", lambda *_: False), "disk",
        "cannot be written; name another folder: `export RLBENCH_RESULTS=",
    ),
    "loop": Lack("toy", with_results_at("link"), "disk", "link cannot be written"),
    "dangling link": Lack("toy", with_results_at("none"), "disk", "link cannot be written"),
    "file name": Lack("toy", partial(long_name, "RLBENCH_RESULTS"), "disk", "File name too long; name another"),
    **{
        f"{kind} name": Lack("offline", partial(long_name, name), f"{kind} data", f"too long; `export {name}=")
        for kind, name in zip(("own", "d4rl", "minari"), FOLDERS, strict=True)
    },
    "own file": Lack(
        "offline", lambda patch: patch.setenv("RLBENCH_DATASETS", __file__), "own data", "a directory; `export RLB"
    ),
    "rom name": Lack("atari", partial(long_name, "ALE_ROMS_DIR"), "ale roms", "`unset ALE_ROMS_DIR`"),
    "memory": Lack("mujoco", with_memory(10_000_000), "memory", "close other programs, or begin with `rlbench run toy"),
    "some memory": Lack("mujoco", with_memory(1_400_000_000), "memory", "--set algo.replay.capacity="),
}  # fmt: skip
REQUIRED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = {*REQUIRED["dependencies"], *REQUIRED["optional-dependencies"]["envpool"]}


@pytest.mark.parametrize("what", LACKS)
def test_whatever_is_missing_is_named_with_a_remedy_that_can_be_typed(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, take, line, remedy, code = LACKS[what]
    before = actual(suite)[1]
    with monkeypatch.context() as patch:
        take(patch)
        after_code, after = actual(suite)
    assert after != before and after_code == code and before.keys() - after.keys() <= {"ale roms", "device", "updates"}
    ((state, detail),) = after[line]
    assert state == ("missing" if code else "optional") and remedy in detail
    for detail in (detail for lines in after.values() for state, detail in lines if state != "ok"):
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


def failing_spec(*_: object) -> None:
    raise UsageError("toy/dqn: its spec fails")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("algorithms", lambda _: (), "toy has no algorithm with a task; mend the plug-in, or uninstall it"),
        ("spec", failing_spec, "toy/dqn: its spec fails"),
    ],
)
def test_a_suite_without_a_run_is_missing_beside_the_others(
    name: str, value: Callable[..., object], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, name, value)
    code, rows = actual("toy")
    assert code == 2 and ("missing", text) in rows["suite"] and "torch" in rows
