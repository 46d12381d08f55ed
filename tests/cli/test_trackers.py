"""Trackers read records: every point is written once, and no run waits for a tracker or fails with it."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util.tensor_util import make_ndarray

from rlbench.cli import trackers
from rlbench.cli.app import main
from rlbench.records.store import Record, read_record
from rlbench.report.exports import events, points, update_file
from tests.commands import RLBENCH, json_of, run_command, run_process, stderr_of, stdout_of
from tests.conftest import Capture, Patch, RecordRun

CATCH = ["run", "toy", "dqn", "--task", "Catch", "--steps", "900", "--set", "budget.epoch=100", "--quiet"]
CATCH += ["--set", "algo.learning_starts=100"]

WANDB = '''"""Stands in for W&B: what is logged lies in a file for each id, and counts on from there."""
import json, os, pathlib
class Run:
    offline = {offline}
    def __init__(self, path, settings):
        self.path, self.settings = path, settings
        lines = path.read_text().splitlines() if path.exists() else []
        steps = [json.loads(line)["step"] for line in lines if "step" in json.loads(line)]
        self.step = 0 if self.offline or not steps else max(steps) + 1
        self.write({{"init": settings}})
    def write(self, what):
        with self.path.open("a") as file:
            file.write(json.dumps(what) + "\\n")
    def log(self, data, step):
        {log}
        self.write({{"step": step, "data": data}})
    def finish(self, exit_code):
        self.write({{"finish": exit_code}})
local = []
def setup(): local or local.append(pathlib.Path("wandb", "settings").exists())
def init(**settings):
    setup()
    assert local == [False], "settings of the current folder"
    assert os.path.isabs(settings["dir"]), "the folder of the service is another"
    return Run(pathlib.Path(os.environ["FAKE_WANDB"]) / settings["id"], settings)
'''


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: Patch) -> None:
    monkeypatch.setattr(trackers, "INTERVAL", 0.02)


@pytest.fixture
def board(tmp_path: Path, monkeypatch: Patch) -> Iterator[Callable[..., Path]]:
    """Puts a module ``wandb`` where this process and its children find it; gives the folder of what is logged."""
    missing = sys.modules.pop("wandb", None)

    def put(log: str = "pass", *, offline: bool = False) -> Path:
        package, logged = tmp_path / "package", tmp_path / "logged"
        package.mkdir()
        logged.mkdir()
        (package / "wandb.py").write_text(WANDB.format(log=log, offline=offline), encoding="utf-8")
        monkeypatch.syspath_prepend(str(package))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package), *filter(None, sys.path)]))
        monkeypatch.setenv("FAKE_WANDB", str(logged))
        return logged

    yield put
    sys.modules.pop("wandb", None)
    if missing is not None:
        sys.modules["wandb"] = missing


def lines_of(path: Path, word: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if word in line]


def only_record(results: str = "results") -> Record:
    (folder,) = Path(results).glob("*/*/*/*/seed=*")
    return read_record(folder)


def curves(path: Path) -> list[tuple[int, str, float]]:
    points_by_name = []
    for event in EventFileLoader(str(path)).Load():
        points_by_name += [(event.step, value.tag, float(make_ndarray(value.tensor))) for value in event.summary.value]
    return points_by_name


def due(record: Record) -> list[tuple[int, str, float]]:
    return [(e.steps, name, value) for e in record.epochs for name, value in points(e).items()]


def same(actual: list[tuple[int, str, float]], expected: list[tuple[int, str, float]]) -> bool:
    """Equality of points in single precision."""
    return [p[:2] for p in actual] == [p[:2] for p in expected] and all(
        a[2] == pytest.approx(b[2], rel=1e-6) for a, b in zip(actual, expected, strict=True)
    )


def test_epoch_becomes_named_points(record_run: RecordRun) -> None:
    epoch = read_record(record_run([3.0, 5.0])).epochs[1]
    actual = points(epoch)
    assert (actual["evaluation/return"], actual["evaluation/return_std"], actual["evaluation/return_max"]) == (5, 1, 6)
    assert actual["training/steps_per_second"] == 100 and actual["progress/env_steps"] == epoch.env_steps
    assert set(points(read_record(record_run([1.0], seed=1)).epochs[0])) == set(actual)


def test_an_export_made_twice_holds_every_point_once(record_run: RecordRun) -> None:
    folders = [record_run([1.0, 2.0, 3.0]), record_run([1.0], suite="toy", task="Catch")]
    for has_new in (True, False):
        runs = json_of("export tensorboard --output board --json")["runs"]
        assert [run["changed"] for run in runs] == [has_new] * 2
        assert [(Path(run["folder"]).resolve(), run["epochs"]) for run in runs] == [(folders[0], 3), (folders[1], 1)]
    for run, folder in zip(runs, folders, strict=True):
        assert same(curves(Path(run["file"])), due(read_record(folder)))
    assert not list(Path("board").rglob("*.tmp"))


def test_suites_are_chosen_by_name(record_run: RecordRun) -> None:
    record_run([1.0, 2.0])
    record_run([1.0], suite="toy", task="Catch")
    assert stdout_of("export tensorboard atari --output board") == "board: 1 run, 1 with something new\n"
    Path("empty").mkdir()
    assert stdout_of("export tensorboard --results empty --output board") == "board: 0 runs, 0 with something new\n"
    assert "is no folder; choose another with --output" in stderr_of(f"export tensorboard --output {__file__}")
    assert "unknown suite 'atri'" in stderr_of("export tensorboard atri --output board")


def test_a_damaged_record_is_named_and_the_others_are_exported(record_run: RecordRun) -> None:
    record_run([1.0])
    (record_run([1.0], seed=1) / "epochs.jsonl").write_text("{}\n", encoding="utf-8")
    code, out, error = run_command("export tensorboard --output board")
    assert code == 2 and "epochs.jsonl:1" in error and out == "board: 1 run, 1 with something new\n"


def test_event_file_is_appended_or_rewritten(record_run: RecordRun, tmp_path: Path) -> None:
    epochs, path = read_record(record_run([1.0, 2.0, 3.0, 4.0])).epochs, tmp_path / "a" / "file"
    content = events(epochs)
    assert update_file(path, events(epochs[:2])) and content.startswith(path.read_bytes())
    node = path.stat().st_ino
    path.write_bytes(content[: len(path.read_bytes()) + 7])  # as a process that was killed leaves it
    assert update_file(path, content, append=True) and path.read_bytes() == content and path.stat().st_ino == node
    assert not update_file(path, content)
    assert update_file(path, content + b"more") and path.stat().st_ino != node, "a table is replaced, whole"
    assert update_file(path, events(epochs[1:])) and same(curves(path), due(only_record())[len(points(epochs[0])) :])


def test_tracking_twice_writes_every_point_once() -> None:
    words = [*CATCH, "--track", "tensorboard", "--track-dir", "seen"]
    for _ in range(2):
        assert main(words) == 0
        record = only_record()
        assert len(record.epochs) == 10
        (path,) = Path("seen/tensorboard").glob("toy/dqn/Catch/*/seed=0/*tfevents*")
        assert same(curves(path), due(record))
    assert [run["changed"] for run in json_of("export tensorboard --output seen/tensorboard --json")["runs"]] == [False]


@pytest.mark.slow
def test_wandb_gets_every_epoch_once_despite_a_crash(board: Callable[..., Path]) -> None:
    logged = board()
    words = [*CATCH, "--track", "wandb"]
    environ = {"RLBENCH_FAULT": "append.written:6", "WANDB_PROJECT": "mine"}
    assert run_process([*RLBENCH, *words], **environ).returncode == 137
    assert len(only_record().epochs) == 6
    (path,) = logged.iterdir() if list(logged.iterdir()) else [None]
    first = len(lines_of(path, "step")) if path else 0
    assert first < 10
    for _ in range(2):
        assert main(words) == 0
    record, (path,) = only_record(), logged.iterdir()
    assert path.name == f"{record.spec.id}-0"
    assert [line["step"] for line in lines_of(path, "step")] == list(range(10))
    assert [line["data"] for line in lines_of(path, "step")][first:] == [points(e) for e in record.epochs][first:]
    settings = lines_of(path, "init")[-1]["init"]
    assert settings["resume"] == "allow" and settings["config"]["algorithm"] == "dqn" and settings["id"] == path.name
    assert lines_of(path, "finish")[-1] == {"finish": 0}


@pytest.mark.parametrize("killed", [False, True])
def test_wandb_offline_gets_every_epoch_again_after_a_kill_and_no_run_for_none(
    killed: bool, board: Callable[..., Path], record_run: RecordRun, monkeypatch: Patch
) -> None:
    logged = board(offline=True)
    monkeypatch.setenv("WANDB_MODE", "offline")
    Path("wandb", "settings").mkdir(parents=True)  # may name another host for the key
    record = read_record(record_run([1.0, 2.0, 3.0], status=None))
    for epochs in (record.epochs[:2], record.epochs, record.epochs):
        tracker = trackers._tracker("wandb", Path("tracked"))
        tracker.take(replace(record, epochs=epochs))
        if epochs == record.epochs or not killed:  # W&B then keeps nothing of what was logged
            tracker.close()
    (path,) = logged.iterdir()
    assert [line["step"] for line in lines_of(path, "step")] == ([0, 1, 0, 1, 2] if killed else [0, 1, 2])
    assert [line["finish"] for line in lines_of(path, "finish")] == ([255] if killed else [255, 255])


def test_each_attempt_is_a_wandb_run(record_run: RecordRun) -> None:
    first = trackers.run_id(read_record(record_run([1.0])))
    assert trackers.run_id(read_record(record_run([1.0], force=True))) == f"{first}-1"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("RuntimeError('the network\\nis gone')", "the network is gone"),
        ("__import__('asyncio').CancelledError()", "CancelledError"),
        ("type('Mute', (Exception,), {'__str__': lambda _: 1 / 0})()", "Mute"),
    ],
)
def test_failing_tracker_is_dropped_and_the_run_continues(error: str, reason: str, board: Callable[..., Path]) -> None:
    board(f"raise {error}")
    printed = stderr_of([*CATCH, "--track", "wandb", "--track", "tensorboard"], 0)
    assert printed == f"--track wandb: {reason}; it is dropped, the runs go on\n"
    assert same(curves(next(Path("tracked").rglob("*tfevents*"))), due(only_record()))


def test_record_that_cannot_be_read_is_read_at_the_next_look(record_run: RecordRun, monkeypatch: Patch) -> None:
    record, tracker = read_record(record_run([1.0])), Mock()
    monkeypatch.setattr("rlbench.records.store.read_record", Mock(side_effect=[OSError(24, "EMFILE"), record]))
    watcher = trackers.RecordWatcher([tracker], [record.folder])
    for _ in range(3):
        watcher._look()
    tracker.take.assert_called_once_with(record)


def test_hanging_tracker_delays_the_end_only_briefly(
    record_run: RecordRun, monkeypatch: Patch, capsys: Capture
) -> None:
    record, never = read_record(record_run([1.0])), Event()
    monkeypatch.setattr(trackers, "PATIENCE", 0.1)
    monkeypatch.setattr(trackers.TensorBoard, "take", lambda _self, _record: never.wait())
    with trackers.tracking(["tensorboard"], [record.spec], Path("results"), Path("tracked")):
        pass
    never.set()
    assert capsys.readouterr().err == "--track: not every epoch was written within 0 s; the records are whole\n"


def test_a_file_in_the_place_of_the_events_folder_names_the_option() -> None:
    Path("board").mkdir()
    Path("board/tensorboard").touch()
    error = run_command([*CATCH, "--track", "tensorboard", "--track-dir", "board"])[2]
    assert "--track-dir" in error and "--output" not in error


def test_nothing_is_written_into_a_run_s_folder(record_run: RecordRun) -> None:
    folder = record_run([1.0], suite="toy", task="Catch")
    message = "is in the folder of a run; name another folder"
    assert message in stderr_of(f"export tensorboard --output {folder / 'board'} --results results")
    assert message in stderr_of([*CATCH, "--track", "tensorboard", "--track-dir", str(folder)])
    assert message in stderr_of([*CATCH, "--results", str(folder)])
    Path("c.csv").write_text("task,seed,step,return\nHopper-v4,1,1000,1\n", encoding="utf-8")
    assert message in stderr_of(["import", "c.csv", "--as", "mujoco/sac", "--results", str(folder / "checkpoint")])
    assert stdout_of("export tensorboard --output outputs/seed=0/board --results results"), "no run's folder"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "wandb",
            f"--track wandb: not installed; `{sys.executable} -m pip install wandb`, or take --track tensorboard",
        ),
        ("tensorbord", "--track: unknown tracker 'tensorbord'; did you mean 'tensorboard'?"),
    ],
)
def test_invalid_tracker_is_refused_before_training(name: str, line: str, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert stderr_of([*CATCH, "--track", name]) == f"rlbench: {line}\n"
    assert not list(Path().iterdir())


@pytest.mark.slow
def test_sweep_is_tracked_by_its_main_process() -> None:
    assert main([*CATCH, "--seeds", "0-1", "--jobs", "2", "--track", "tensorboard"]) == 0
    for folder in Path("results").glob("*/*/*/*/seed=*"):
        path = trackers.curves_in(Path("tracked/tensorboard"), read_record(folder).spec)
        assert same(curves(path), due(read_record(folder)))
