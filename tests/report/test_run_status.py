"""States of runs, read without disturbing running ones."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.records.files import folders
from rlbench.records.store import read_record
from rlbench.report.run_index import RunStatus, run_status
from tests.commands import stdout_of
from tests.conftest import RecordRun
from tests.forging import locked


def statuses(results: Path) -> list[RunStatus]:
    return [run_status(folder) for folder in folders(results)]


@pytest.mark.parametrize(
    ("status", "state"), [("done", "done"), ("failed", "failed"), ("interrupted", "interrupted"), (None, "interrupted")]
)
def test_state_of_an_unlocked_run_is_its_outcome(
    record_run: RecordRun, results: Path, status: str | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_run([1.0, 3.0, 2.0], status=status)
    (run_state,) = statuses(results)
    assert (run_state.state, run_state.name, run_state.seed) == (state, "atari/dqn/BreakoutNoFrameskip-v4", 0)
    assert (run_state.env_steps, run_state.budget) == (200_000, 10_000_000)
    assert (run_state.best, run_state.eta_seconds) == (3.0, None)
    monkeypatch.setattr("rlbench.report.run_index.read_record", None)
    assert statuses(results) == [run_state], "an unchanged record is read once"


def test_a_run_names_the_settings_that_it_changes(record_run: RecordRun, results: Path) -> None:
    words = {"suite": "toy", "task": "Catch", "status": "interrupted"}
    for sets in ([], ["algo.lr=0.5"], ["algo.lr=0.25", "budget.steps=5000"]):
        record_run([0.5], sets=sets, **words)
    names = {"toy/dqn/Catch", "toy/dqn/Catch lr=0.5", "toy/dqn/Catch lr=0.25"}
    assert {run.setting for run in statuses(results)} == {"published", "lr=0.5", "lr=0.25"}
    output = stdout_of(["status", "--results", str(results)])
    assert all(name in output for name in names)


def test_locked_run_is_running_with_an_eta(record_run: RecordRun, results: Path) -> None:
    record_run([1.0, 3.0, 2.0], status=None)
    store = locked(suites.spec("atari", "dqn", "BreakoutNoFrameskip-v4"), results)
    (running,) = statuses(results)
    store.release()
    (released,) = statuses(results)
    assert (running.state, released.state) == ("running", "interrupted")
    assert running.eta_seconds == pytest.approx(98, abs=5)  # 100,000 steps a second, 9,800,000 to go


def test_status_of_a_run_stopped_between_epochs_has_its_saved_steps(record_run: RecordRun, results: Path) -> None:
    stopped = record_run([1.0, 3.0], status="interrupted")
    outcome, epochs = read_record(stopped).outcome, read_record(record_run([1.0, 3.0, 2.0], seed=1)).epochs
    store = locked(suites.spec("atari", "dqn", "BreakoutNoFrameskip-v4"), results)
    store.finish(replace(outcome, env_steps=133_000))
    store.release()
    saved, _ = statuses(results)
    assert (saved.env_steps, saved.reason) == (133_000, "a test says interrupted")
    store = locked(suites.spec("atari", "dqn", "BreakoutNoFrameskip-v4"), results)
    store.append(epochs[2])  # a second attempt records an epoch, and is killed
    store.release()
    killed, _ = statuses(results)
    assert (killed.state, killed.env_steps, killed.reason) == ("interrupted", 200_000, "ended without a message")


def test_an_expected_end_needs_neither_the_epochs_nor_a_right_clock(record_run: RecordRun, results: Path) -> None:
    folder = record_run([0.0] * 4, suite="toy", algo="ppo", task="Catch", status=None)
    epochs = folder / "epochs.jsonl"
    store = locked(suites.spec("toy", "ppo", "Catch"), results)
    now = run_status(folder).eta_seconds
    os.utime(epochs, (4e9, 4e9))  # the clock was set back since
    later = run_status(folder).eta_seconds
    store.release()
    assert now is not None and later is not None and now <= later < now + 60
