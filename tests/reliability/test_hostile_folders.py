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
from rlbench.cli.resolve import resolve
from rlbench.datasets import dqnreplay, shards
from rlbench.record.store import Store, folder_of
from rlbench.sweep.child import Child
from tests.reliability.odd import told

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


RUN = ("run", "toy", "dqn", "--task", "Catch", "--smoke", "--quiet", "--device", "cpu")
READERS = {
    "table": ("table", "toy"),
    "status": ("status",),
    "verify": ("verify", "results"),
    "check": ("check", "toy"),
    "plan": ("plan", "toy"),
    "export": ("export", "tensorboard", "--output", "out"),
}


def recorded(*, smoke: bool = False) -> Path:
    """The folder of a run that has begun, below the current folder."""
    spec = resolve("toy", "dqn", "Catch", smoke=smoke).spec
    store = Store.claim(spec, Path("results"), {})
    assert store is not None
    store.release()
    return folder_of(spec, Path("results"))


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of somebody else's beside the current one."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "victim" / "resume").mkdir(parents=True)
    (tmp_path / "victim" / "resume" / "cv.tex").write_text("precious")
    (tmp_path / "victim" / "file").write_text("precious")
    return tmp_path / "victim"


def content(folder: Path) -> dict[Path, str | None]:
    """Every file below a folder with its text."""
    return {path: path.read_text() if path.is_file() else None for path in folder.rglob("*")}


LINKS = {
    "log.txt": "file",
    "attempts.jsonl": "file",
    "epochs.jsonl": "new",
    "crash.txt": "new",
    "outcome.json": "file",
    "checkpoint": ".",
    "checkpoint/resume": "resume",
    "checkpoint/.best.9.tmp": "resume",
    ".": ".",
    "..": ".",
    "../..": ".",
    "../../../..": ".",
}


@pytest.mark.parametrize("more", [(), ("--jobs", "1"), ("--force",)], ids=" ".join)
@pytest.mark.parametrize("name", LINKS)
def test_a_run_writes_through_no_link_in_its_results(name: str, more: tuple[str, ...], victim: Path) -> None:
    link = Path(os.path.normpath(recorded(smoke=True) / name))
    if link.exists():
        link.rename(victim.parent / "moved") if link.is_dir() else link.unlink()
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.normpath(victim / LINKS[name]))
    before = content(victim)
    code, out, error = told([*RUN, *more])
    assert code == 2, (code, out, error)
    assert str(link) in error + out and "link" in error + out
    assert content(victim) == before


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_a_linked_folder_of_results_is_named_by_every_reader(depth: int, reader: str, victim: Path) -> None:
    folder = recorded()
    linked = [folder, *folder.parents][depth]
    linked.rename(victim.parent / "moved")
    linked.symlink_to(victim.parent / "moved")
    code, out, error = told(READERS[reader])
    assert code == 2, (code, out, error)
    assert f"{linked}: is a link" in error + out


def test_the_results_folder_itself_may_be_a_link(victim: Path) -> None:
    recorded()
    Path("results").rename(victim.parent / "disk")
    Path("results").symlink_to(victim.parent / "disk")
    assert told(["table", "toy"])[0] == 0
    recorded()


SPECIALS: dict[str, Callable[[Path], None]] = {
    "FIFO": os.mkfifo,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to a file": lambda path: path.symlink_to("/proc/self/environ"),
    "larger than any record": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 2**40),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["spec.json", "epochs.jsonl", "outcome.json"])
@pytest.mark.parametrize("kind", SPECIALS)
def test_a_special_file_in_a_record_is_refused_by_every_reader(
    kind: str, name: str, reader: str, victim: Path
) -> None:
    path = recorded() / name
    path.unlink(missing_ok=True)
    SPECIALS[kind](path)
    code, out, error = told(READERS[reader])
    assert code == 2, (code, out, error)
    assert str(path) in error + out
