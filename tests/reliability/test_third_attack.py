"""A third attack: hard links, special files among data sets, and files of the current folder that libraries read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from rlbench import disk
from rlbench.cli import completion, replay
from rlbench.cli.resolve import resolve
from rlbench.cli.trackers import Wandb
from rlbench.config.footprint import footprint
from rlbench.datasets import catalogue, checksums, policies, recording_format, recording_writer, sb3_import, tfrecord
from rlbench.errors import RefusedFile
from rlbench.records import attempts, files
from rlbench.records.store import Record, Store, folder_of, read_record
from rlbench.report import baseline, check, tensorboard
from rlbench.report.remaining_work import remaining_runs
from rlbench.report.sources import Sources
from tests.behavior.test_offline import write
from tests.commands import run_command, stderr_of
from tests.conftest import RecordRun, epoch

SPEC = resolve("toy", "dqn", "Catch").spec


WRITERS: dict[str, Callable[[Path], object]] = {
    "epochs.jsonl": lambda results: Store.claim(SPEC, results, {}),
    "crash.txt": lambda results: Store.claim(SPEC, results, {}),
    "log.txt": lambda results: attempts.open_log(folder_of(SPEC, results)).close(),
    "attempts.jsonl": lambda results: attempts.note(folder_of(SPEC, results), {"event": "begun"}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_of_a_record_with_a_second_name_is_not_appended_to(name: str, tmp_path: Path) -> None:
    store = Store.claim(SPEC, tmp_path / "results", {})
    assert store is not None
    store.append(epoch(0, 1.0, 0))
    store.release()
    precious, link = tmp_path / "precious", folder_of(SPEC, tmp_path / "results") / name
    link.touch()
    os.link(link, precious)
    before = precious.read_bytes()
    with pytest.raises(RefusedFile, match=f"{name}: has a second name"):
        WRITERS[name](tmp_path / "results")
    assert precious.read_bytes() == before


def test_curves_are_appended_to_no_file_with_a_second_name(tmp_path: Path) -> None:
    (tmp_path / "curves").write_bytes(b"old")
    os.link(tmp_path / "curves", tmp_path / "precious")
    with pytest.raises(RefusedFile, match="second name"):
        tensorboard.bring_up(tmp_path / "curves", b"older")
    tensorboard.bring_up(tmp_path / "curves", b"new")  # a replaced file is another one
    assert (tmp_path / "precious").read_bytes() == b"old"


READERS: dict[str, Callable[[Path], object]] = {
    "a shard of recordings": recording_format.read_segment,
    "the head of recordings": recording_writer.read_sealed_set,
    "a policy": policies.read_policy_file,
    "a policy of Stable-Baselines3": lambda path: sb3_import.convert_sb3(path, task="Hopper-v4"),
    "any data": checksums.measure,
    "a shard of TensorFlow": lambda path: list(tfrecord.records(path)),
    "a short text": disk.content,
}
BOUNDED = ("a shard of recordings", "the head of recordings", "a policy", "a short text")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("reader", READERS)
def test_data_are_read_from_no_special_file(reader: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("fifo", "zero"):
        with pytest.raises(RefusedFile, match="is no regular file"):
            READERS[reader](tmp_path / name)


@pytest.mark.parametrize("reader", BOUNDED)
def test_oversized_data_file_is_refused_unread(reader: str, tmp_path: Path) -> None:
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 2**40)
    with pytest.raises(RefusedFile, match="1,099,511,627,776 bytes"):
        READERS[reader](tmp_path / "huge")


@pytest.mark.parametrize("link", ["marker", "folder"])
def test_wandb_log_count_is_not_written_through_a_link(link: str, record_run: RecordRun, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    where, record = tmp_path / "wandb", read_record(record_run([1.0]))
    if link == "folder":
        where.symlink_to(tmp_path)
    else:
        where.mkdir()
        (where / f"{record.spec.id}-0.logged").symlink_to(tmp_path / "precious")
    run = SimpleNamespace(offline=True, step=0, log=lambda *_, **__: None, finish=lambda **_: None)
    tracker = Wandb(cast("ModuleType", SimpleNamespace(init=lambda **_: run)), where)
    if link == "folder":
        with pytest.raises(RefusedFile, match="is a link"):
            tracker.take(record)
        assert not list(tmp_path.glob("*.logged"))
    else:
        tracker.take(record)
        assert (where / f"{record.spec.id}-0.logged").read_text() == "1\n"
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_file_of_the_current_folder_changes_no_plot(tmp_path: Path) -> None:
    """A FIFO of matplotlib's name would hang its import."""
    os.mkfifo(tmp_path / "matplotlibrc")
    words = [sys.executable, "-P", "-c", "import rlbench.report.plots, os; print(os.getcwd())"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"{tmp_path}\n", "")


def memory(words: Sequence[str], *path: str) -> object:
    """A number of a command's JSON, by the keys that lead to it."""
    code, out, error = run_command(words)
    assert code == 0, error
    found = json.loads(out)
    for key in path:
        found = found[int(key)] if key.isdecimal() else found[key]
    return found


def test_memory_is_estimated_from_the_rows_of_the_given_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    spec = resolve("offline", "il", "hopper-medium-v2").spec
    totals = []
    for steps in (None, 300):
        if steps is not None:
            write(tmp_path / catalogue.d4rl_dataset("hopper-medium-v2").file, steps=steps)
        totals.append(
            {
                memory(["show", "offline", "il", "hopper-medium-v2", "--json"], "memory", "total"),
                memory(
                    ["run", "offline", "il", "--task", "hopper-medium-v2", "--dry-run", "--json"], "plan", "0", "memory"
                ),
                next(
                    row.memory
                    for row in remaining_runs("offline", Sources(tmp_path))
                    if row.key.dataset == spec.task.id
                ),
            }
        )
    assert totals == [{footprint(spec).total}, {footprint(spec, steps=300).total}]


def test_a_run_on_a_file_is_replayed_on_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path / "none"))
    data, other = (str(write(tmp_path / f"{name}.hdf5", seed=seed)) for seed, name in enumerate(("some", "other")))
    run = ["run", "offline", "il", "--task", "Hopper-v4", "--dataset", data, "--smoke", "--quiet", "--device", "cpu"]
    assert run_command([*run, "--eval-workers", "0"])[0] == 0
    folder = str(next(tmp_path.glob("results/**/seed=0")))
    replay = ["verify", "--replay", folder, "--epochs", "0"]
    assert "--dataset" in stderr_of(replay)
    assert "is another" in stderr_of([*replay, "--dataset", other])
    assert run_command([*replay, "--dataset", data])[0] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OMP_NUM_THREADS", "200000"),
        ("OMP_NUM_THREADS", "4,9999"),
        ("MKL_NUM_THREADS", "10" * 30),
        ("OMP_WAIT_POLICY", "x" * 1_000),
        ("MKL_CBWR", "a/b"),
    ],
)
def test_a_replay_sets_no_variable_that_ends_the_process(name: str, value: str) -> None:
    """Of 200,000 threads libgomp's stack overflows: a segmentation fault."""
    record = SimpleNamespace(environment={name: value}, folder=Path("f"))
    with pytest.raises(RefusedFile, match=name), replay._variables(cast("Record", record)):
        raise AssertionError("it is set")


def test_a_replay_that_does_not_fit_into_memory_is_refused_with_the_number(tmp_path: Path) -> None:
    spec = resolve("toy", "dqn", "Catch", sets=["algo.replay.capacity=100000000000"]).spec
    store = Store.claim(spec, tmp_path, {"device": "cpu", "torch_threads": 1})
    assert store is not None
    store.append(epoch(0, 1.0, 0))
    store.release()
    code, _, error = run_command(["verify", "--replay", str(folder_of(spec, tmp_path)), "--epochs", "0"])
    assert code == 2 and "on this machine, which has" in error, error


BASELINES: dict[str, Callable[[dict[str, object]], list[dict[str, object]]]] = {
    "a number whose square is none": lambda cell: [{**cell, "scores": {"0": 1e308, "1": -1e308}}],
    "a truth value": lambda cell: [{**cell, "scores": {"0": True}}],
    "a seed twice": lambda cell: [{**cell, "scores": {"0": 1.0, "00": 0.0}}],
    "a cell twice": lambda cell: [cell, {**cell, "scores": {"0": -1.0}}],
}


@pytest.mark.parametrize("harm", BASELINES)
def test_a_forged_baseline_is_refused(harm: str, tmp_path: Path) -> None:
    cell: dict[str, object] = {"suite": "toy", "algorithm": "dqn", "task": "Catch", "dataset": "", "id": "0123"}
    cell |= {"scores": {"0": 1.0}, "speeds": {}}
    content = {"kind": baseline.KIND, "schema_version": 1, "commits": [], "machines": []}
    path = tmp_path / "b.json"
    path.write_text(files.seal({**content, "cells": [cell]}))
    assert baseline.read_baseline(path).entries
    path.write_text(files.seal({**content, "cells": BASELINES[harm](cell)}))
    with pytest.raises(RefusedFile, match="not a baseline"):
        baseline.read_baseline(path)


def test_a_strict_check_whose_baseline_has_none_of_the_cells_does_not_pass() -> None:
    new = check.Finding(suite="toy", algorithm="dqn", task="Catch", aspect="score", word="NEW", reason="")
    passed = replace(new, word="PASSED")
    assert (check.exit_code([new], strict=True), check.exit_code([new], strict=False)) == (4, 0)
    assert check.exit_code([new, passed], strict=True) == 0


@pytest.mark.parametrize("option", ["--junit", "--summary"])
def test_folder_in_place_of_a_file_is_a_usage_error(option: str, tmp_path: Path) -> None:
    assert "is a folder; name a file" in stderr_of(["check", "toy", "--results", str(tmp_path), option, str(tmp_path)])


def test_completion_offers_no_data_set_that_a_shell_would_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path))
    for name in ("rlb-plain", "rlb-$(touch canary)"):
        (tmp_path / f"{name}.hdf5").touch()
    offers = completion.datasets()
    assert "rlb-plain" in offers and "rlb-$(touch canary)" not in offers


def test_a_field_of_a_record_whose_name_does_not_print_reaches_no_terminal(tmp_path: Path) -> None:
    store = Store.claim(SPEC, tmp_path, {})
    assert store is not None
    store.release()
    path = store.folder / "spec.json"
    head = files.read_sealed(path)
    path.write_text(files.seal({**head, "spec": {**SPEC.model_dump(mode="json"), "\x1b]0;PWNED\x07\u202e": 1}}))
    code, out, _ = run_command(["verify", str(tmp_path)])
    assert code == 2 and "not a spec of this schema" in out
    assert all(line.isprintable() for line in out.split("\n"))
