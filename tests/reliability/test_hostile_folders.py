"""R10: no code of the current folder runs, and no link, special file or name in a stranger's results is followed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlbench.build import beside
from rlbench.cli import opengl, sweep
from rlbench.datasets import dqnreplay, shards
from rlbench.sweep.child import Child

PLANTED = "import os\nopen(os.environ['CANARY'], 'w').close()\n"


def sweep_child() -> None:
    """A run of a sweep."""
    child = Child(["--version"], Path("results"), os.environ)
    child.process.wait(60)
    os.close(child.pipe)


def judge() -> None:
    """An offline evaluation worker."""
    words = [sys.executable, *beside.PROGRAM, "0", "1"]
    subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)


def import_workers() -> None:
    """Workers of a data import."""
    missing = {name: Path(name) for name in ("a", "b")}
    Path("set").mkdir()
    results = list(shards._converted(missing, Path("set"), dqnreplay.converted, 2))
    assert all(result.refused is not None for result in results)


CHILDREN: dict[str, tuple[Callable[[], object], str]] = {
    "a sweep's run, a library": (sweep_child, "typer.py"),
    "a sweep's run, another checkout": (sweep_child, "rlbench/__main__.py"),
    "an offline evaluation worker": (judge, "numpy.py"),
    "the look for OpenGL": (lambda: opengl._renders("disabled"), "mujoco.py"),
    "the look for GPUs": (lambda: sweep._cards("cuda"), "torch.py"),
    "a data import's workers": (import_workers, "pickle.py"),
}


@pytest.mark.parametrize("name", CHILDREN)
def test_no_child_process_imports_from_the_current_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, planted = CHILDREN[name]
    (tmp_path / "work" / planted).parent.mkdir(parents=True)
    (tmp_path / "work" / planted).write_text(PLANTED)
    if "/" in planted:
        (tmp_path / "work" / planted).with_name("__init__.py").write_text("__version__ = '9.9.9'\n")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("CANARY", str(tmp_path / "canary"))
    monkeypatch.setattr(sweep, "GPU_DRIVERS", ("/",), raising=False)
    start()
    assert not (tmp_path / "canary").exists()
