"""Runs on a failing machine: full disks, closed terminals, damaged records."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.config.overrides import apply_settings, parse
from rlbench.records.store import folder_of
from tests.commands import RLBENCH, run_process

SMALL = ("budget.steps=600", "budget.epoch=200", "budget.segment=200", "algo.learning_starts=100", "algo.batch=8")
FILES = ("protocol.episodes=8", "protocol.envs=8", "algo.replay.capacity=400")
SETS = [word for change in (*SMALL, *FILES) for word in ("--set", change)]


def words(results: Path, *more: str) -> list[str]:
    return [*RLBENCH, *f"run toy dqn --task Catch --device cpu --results {results}".split(), *SETS, *more]


def folder(results: Path, seed: int = 0) -> Path:
    spec = apply_settings(suites.spec("toy", "dqn", "Catch", seed=seed), [parse(c) for c in (*SMALL, *FILES)])
    return folder_of(spec, results)


@pytest.mark.slow
def test_closed_stderr_does_not_end_a_run(tmp_path: Path) -> None:
    line = f"{' '.join(words(tmp_path))} 2>&1 >{tmp_path / 'out'} | head -1"
    subprocess.run(["bash", "-c", line], capture_output=True, timeout=120, check=True)
    waited = time.monotonic() + 60
    while not (folder(tmp_path) / "outcome.json").exists():
        assert time.monotonic() < waited
        time.sleep(0.05)
    assert json.loads((folder(tmp_path) / "outcome.json").read_text())["status"] == "done"


@pytest.mark.slow
def test_sweep_continues_beside_a_damaged_record(tmp_path: Path) -> None:
    assert run_process(words(tmp_path, "--seeds", "1")).returncode == 0
    (folder(tmp_path, 1) / "outcome.json").write_text("{")
    done = run_process(words(tmp_path, "--seeds", "0-2", "--json"))
    assert done.returncode == 2
    assert [row["status"] for row in json.loads(done.stdout)["runs"]] == ["done", "refused", "done"]
    assert f"{folder(tmp_path, 1) / 'outcome.json'}: damaged" in done.stderr


def interrupted(results: Path) -> Path:
    """A run that was killed after its first checkpoint, with more than one epoch on disk."""
    process = subprocess.Popen(words(results), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "epoch 2" in line:
            break
    process.kill()
    process.communicate()
    return folder(results)


@pytest.mark.slow
def test_truncated_record_is_refused_before_training(tmp_path: Path) -> None:
    where = interrupted(tmp_path)
    if (where / "outcome.json").exists():
        (where / "outcome.json").unlink()  # the run was faster than the signal: leave what a kill would have left
    epochs = (where / "epochs.jsonl").read_text()
    if (where / "checkpoint" / "resume").is_dir():
        (where / "epochs.jsonl").write_text(epochs.splitlines(keepends=True)[0])
        fewer = run_process(words(tmp_path))
        assert fewer.returncode == 2
        assert "epochs.jsonl: holds 1 epochs" in fewer.stderr
    (where / "spec.json").rename(tmp_path / "aside")
    lost = run_process(words(tmp_path))
    assert lost.returncode == 2
    assert "spec.json: missing beside" in lost.stderr


def test_output_to_a_device_does_not_replace_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    done = run_process([*RLBENCH, "table", "toy", "--format", "csv", "--output", str(pipe)])
    assert done.returncode == 0, done.stderr
    assert "CartPole-v1" in reader.communicate(timeout=30)[0]
    assert pipe.is_fifo()


@pytest.mark.parametrize(("path", "redirection"), [("/dev/stdout", ">table"), ("loop", "")])
def test_output_to_an_open_file_is_written_to_it(path: str, redirection: str, tmp_path: Path) -> None:
    """Descriptor 1 leads to stderr, whose log was replaced; a link to itself was an internal error."""
    (tmp_path / "log").write_text("line of before\n")
    (tmp_path / "loop").symlink_to("loop")
    line = f"{' '.join(RLBENCH)} table toy --algo dqn --format csv --output {path} {redirection} 2>>log"
    subprocess.run(["bash", "-c", line], cwd=tmp_path, timeout=120, check=True)
    assert "CartPole-v1" in (tmp_path / ("table" if redirection else path)).read_text()
    assert (tmp_path / "log").read_text().startswith("line of before\n")


def test_a_mistyped_environment_variable_is_refused(tmp_path: Path) -> None:
    done = run_process(words(tmp_path, "--dry-run"), RLBENCH_STEP="5")
    assert done.returncode == 2
    assert "RLBENCH_STEP" in done.stderr
    assert "did you mean 'RLBENCH_STEPS'" in done.stderr
