"""A machine without the OpenGL library that ``MUJOCO_GL`` names: ``import mujoco`` fails there, rendering or not."""

import subprocess
import sys
from pathlib import Path

import pytest

from rlbench.envs.opengl import import_remedy
from rlbench.errors import UsageError
from tests.commands import run_process
from tests.conftest import Patch

WITHOUT_OPENGL = """
import ctypes, ctypes.util, sys
from rlbench.cli.app import main

load, find = ctypes.CDLL.__init__, ctypes.util.find_library
def refuse(self, name=None, *rest, **options):
    if name and any(library in str(name) for library in ("EGL", "OSMesa")):
        raise OSError(f"{name}: cannot open shared object file")
    load(self, name, *rest, **options)
ctypes.CDLL.__init__ = refuse
ctypes.util.find_library = lambda name: None if name in ("EGL", "OSMesa") else find(name)
sys.argv[0] = "rlbench"
sys.exit(main())
"""

EGL = "MUJOCO_GL=egl needs libEGL, which is missing here; `unset MUJOCO_GL`, or `apt install libegl1`"


def rlbench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command on such a machine."""
    return run_process([sys.executable, "-P", "-c", WITHOUT_OPENGL, *arguments], MUJOCO_GL="egl")


@pytest.mark.parametrize(
    ("backend", "sentence"),
    [
        ("", None),
        ("EGL", EGL.replace("=egl", "=EGL")),
        (
            "osmesa",
            "MUJOCO_GL=osmesa needs libOSMesa, which is missing here; `unset MUJOCO_GL`, or `apt install libosmesa6`",
        ),
        ("vulkan", "MUJOCO_GL=vulkan: MuJoCo cannot be imported with this backend; `unset MUJOCO_GL`"),
    ],
)
def test_the_remedy_names_library_and_variable(backend: str, sentence: str | None, monkeypatch: Patch) -> None:
    monkeypatch.setenv("MUJOCO_GL", backend)
    assert import_remedy() == sentence


def test_training_ends_with_one_line_and_records_nothing(tmp_path: Path) -> None:
    ended = rlbench("run", "mujoco", "ppo", "--task", "Hopper-v4", "--results", str(tmp_path))
    assert ended.returncode == UsageError.exit_code, ended.stderr
    (line,) = (line for line in ended.stderr.splitlines() if "MUJOCO_GL" in line)
    assert EGL in line and "Traceback" not in ended.stderr
    assert not list(tmp_path.rglob("outcome.json"))


def test_doctor_names_both_for_every_package_that_imports_mujoco(tmp_path: Path) -> None:
    ended = rlbench("doctor", "goals", "--results", str(tmp_path), "--json")
    assert ended.returncode == UsageError.exit_code, ended.stderr
    assert ended.stdout.count(EGL) == 2
    assert "pip install 'mujoco" not in ended.stdout
