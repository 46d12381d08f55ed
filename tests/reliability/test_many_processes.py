"""R11: several processes on one results folder: every seed runs once, and dead processes hold no lock."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.records.locks import FolderLock, holder
from rlbench.records.store import Store, folder_of, read_record
from tests.forging import locked

PARTS = ("spec.json", "epochs.jsonl", "outcome.json")
SETS = (
    "budget.steps=600", "budget.epoch=200", "budget.segment=200", "algo.learning_starts=100", "algo.batch=8",
    "protocol.episodes=8", "protocol.envs=8", "algo.replay.capacity=400",
)  # fmt: skip


def started(results: Path, seeds: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "rlbench", "run", "toy", "dqn", "--task", "Catch", "--seeds", seeds, "--json"]
    words += ["--device", "cpu", "--results", str(results), *(w for s in SETS for w in ("--set", s))]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def folders(results: Path) -> list[Path]:
    return sorted(results.glob("toy/dqn/Catch/*/seed=*"))


def together(results: Path, processes: int, seeds: int) -> None:
    """``processes`` want ``seeds`` each; whoever finds one held leaves it alone and says so."""
    running = [started(results, f"0-{seeds - 1}") for _ in range(processes)]
    outputs = [process.communicate(timeout=170) for process in running]
    assert [process.returncode for process in running] == [0] * processes, [error for _, error in outputs]
    rows = [json.loads(out)["runs"] for out, _ in outputs]
    assert {row["status"] for rows_of_one in rows for row in rows_of_one} <= {"done", "running"}
    began = [line for _, error in outputs for line in error.splitlines() if "starts at" in line or "resumes at" in line]
    assert len(began) == seeds, f"each seed begins once: {began}"
    skips = [line for _, error in outputs for line in error.splitlines() if "left alone" in line]
    assert len(skips) == sum(row["status"] == "running" for rows_of_one in rows for row in rows_of_one)
    pids = {str(process.pid) for process in running}
    assert all(any(f"process {pid} " in line for pid in pids) for line in skips), skips
    assert len(folders(results)) == seeds
    for folder in folders(results):
        record = read_record(folder)
        assert record.outcome is not None and record.outcome.status == "done"
        assert [epoch.number for epoch in record.epochs] == list(range(4))
        assert {path.name for path in folder.iterdir()} <= {*PARTS, "checkpoint", ".lock"}


@pytest.mark.slow
def test_four_processes_run_each_of_two_seeds_once(tmp_path: Path) -> None:
    together(tmp_path, processes=4, seeds=2)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_sixteen_processes_run_each_of_eight_seeds_once(tmp_path: Path) -> None:
    together(tmp_path, processes=16, seeds=8)


HOLDS = """
import sys, time
from pathlib import Path
from rlbench import suites
from rlbench.records.store import Store
store = Store.lock(suites.spec("toy", "dqn", "Catch"), Path(sys.argv[1]), {})
print("held", store is not None, flush=True)
time.sleep(120)
"""


def test_living_lock_holder_is_named_and_a_dead_ones_run_is_taken_over(tmp_path: Path) -> None:
    """The lock is the kernel's and dies with its process; the file it leaves behind holds nobody up."""
    spec = suites.spec("toy", "dqn", "Catch")
    first = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "held True\n"
    assert Store.lock(spec, tmp_path, {}) is None
    assert holder(folder_of(spec, tmp_path)) == f"process {first.pid}"
    first.kill()
    first.communicate()
    assert (folder_of(spec, tmp_path) / ".lock").exists()
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
