"""R11: several processes on one results folder: every seed runs once, and dead processes hold no lock."""

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.records.locks import FolderLock, holder, is_locked
from rlbench.records.store import Store, folder_of, read_record
from tests.commands import RLBENCH
from tests.forging import locked
from tests.reliability.families import CATCH

PARTS = {"spec.json", "epochs.jsonl", "outcome.json", "checkpoint", ".lock"}


def started(results: Path, seeds: str) -> subprocess.Popen[str]:
    words = [*RLBENCH, *CATCH.words(results, seeds), "--json"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("processes", "seeds"), [pytest.param(3, 2, marks=pytest.mark.slow), pytest.param(16, 8, marks=pytest.mark.soak)]
)
def test_many_processes_run_each_seed_once(processes: int, seeds: int, tmp_path: Path) -> None:
    """Each wants every seed; whoever finds one held leaves it alone and says so."""
    running = [started(tmp_path, f"0-{seeds - 1}") for _ in range(processes)]
    outputs = [process.communicate(timeout=170) for process in running]
    assert [process.returncode for process in running] == [0] * processes, [error for _, error in outputs]
    states = [row["status"] for out, _ in outputs for row in json.loads(out)["runs"]]
    assert set(states) <= {"done", "running"}
    lines = [line for _, error in outputs for line in error.splitlines()]
    began = [line for line in lines if "starts at" in line or "resumes at" in line]
    assert len(began) == seeds, f"each seed begins once: {began}"
    skips = [line for line in lines if "left alone" in line]
    assert len(skips) == states.count("running")
    pids = {str(process.pid) for process in running}
    assert all(any(f"process {pid} " in line for pid in pids) for line in skips), skips
    folders = [CATCH.folder(tmp_path, seed) for seed in range(seeds)]
    assert sorted(tmp_path.glob("toy/dqn/Catch/*/seed=*")) == sorted(folders)
    for folder in folders:
        record = read_record(folder)
        assert record.outcome is not None and record.outcome.status == "done"
        assert [epoch.number for epoch in record.epochs] == list(range(5))
        assert {path.name for path in folder.iterdir()} <= PARTS


HOLDS = """
import fcntl, sys, time
from pathlib import Path
from rlbench import suites
from rlbench.records.store import Store
from tests.reliability.test_many_processes import no_flock
if sys.argv[2:]:
    fcntl.flock = no_flock
store = Store.lock(suites.spec("toy", "dqn", "Catch"), Path(sys.argv[1]), {})
print("held", store is not None, flush=True)
time.sleep(120)
"""


def no_flock(*_: int) -> None:
    """The answer of a file system without locks, such as Lustre mounted without ``flock``."""
    raise OSError(errno.ENOSYS, "no locks")


@pytest.mark.filterwarnings("ignore:flock not supported")
@pytest.mark.parametrize("words", [(), ("no locks",)])
def test_living_lock_holder_is_named_and_a_dead_ones_run_is_taken_over(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is the kernel's and dies with its process; the file it leaves behind holds nobody up."""
    spec = suites.spec("toy", "dqn", "Catch")
    if words:
        monkeypatch.setattr("fcntl.flock", no_flock)
    first = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path), *words], stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "held True\n"
    assert Store.lock(spec, tmp_path, {}) is None
    assert holder(folder_of(spec, tmp_path)) == f"process {first.pid}" and is_locked(folder_of(spec, tmp_path))
    first.kill()
    first.communicate()
    assert (folder_of(spec, tmp_path) / ".lock").exists() and not is_locked(folder_of(spec, tmp_path))
    locked(spec, tmp_path).release()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (f"4242 {platform.node()}\n", "process 4242"),
        *((text, "another process") for text in ("4242 elsewhere.example\n", f"\x1b[2J {platform.node()}\n", "", None)),
    ],
)
def test_lock_holder_is_the_process_named_in_the_lock_file(tmp_path: Path, content: str | None, name: str) -> None:
    if content is not None:
        (tmp_path / ".lock").write_text(content)
    assert holder(tmp_path) == name


def test_lock_file_that_is_a_pipe_or_a_link_names_no_holder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    assert holder(tmp_path) == "another process"
    (tmp_path / "file").write_text(f"4242 {platform.node()}\n")
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").symlink_to(tmp_path / "file")
    assert holder(tmp_path) == "another process"


def test_lock_file_that_is_a_hard_link_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / ".lock").hardlink_to(tmp_path / "kept")
    lock = FolderLock(tmp_path)
    assert lock.acquire()
    assert (tmp_path / "kept").read_text() == "kept"
    lock.release()
