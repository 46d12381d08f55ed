"""What a sweep shows: how far it has come, when it will end, and one line where there is no terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbench import suites
from rlbench.cli import sweep_display
from rlbench.records.types import Progress
from rlbench.sweep.events import Begun, Ending, Said
from rlbench.sweep.plan import Job

CATCH = suites.spec("toy", "dqn", "Catch")


def job(seed: int) -> Job:
    return Job(spec=CATCH.model_copy(update={"seed": seed}), folder=Path("x"), threads=1, memory=1)


def progress(steps: int) -> Progress:
    return Progress(env_steps=steps, updates=0, last_return=1.0)


def ending(made: Job, status: str = "done", log: Path | None = Path("log")) -> Ending:
    return Ending(job=made, status=status, reason="why", outcome=None, log=log, attempts=1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(sweep_display, "monotonic", lambda: now[0])
    return now


def test_the_rest_of_a_sweep_is_foretold_by_what_it_has_made_itself(clock: list[float]) -> None:
    jobs = [job(0), job(1), job(2)]
    advance = sweep_display.Advance(jobs)
    assert (advance.share, advance.left) == (0.0, None)
    advance.end(jobs[0], here=False)  # done before: work that is not left, and no speed
    advance.begin(jobs[1], 12_000)  # half was there
    assert (advance.share, advance.left) == (0.5, None)
    clock[0] = 10.0
    advance.come(jobs[1], 18_000)
    assert advance.left == pytest.approx(30_000 / 600)
    clock[0] = 20.0
    advance.end(jobs[1], here=True)
    assert advance.left == pytest.approx(24_000 / 600)
    advance.begin(jobs[2], 0)
    advance.come(jobs[2], 12_000)
    advance.begin(jobs[2], 6_000)  # it died, and resumes from its checkpoint
    assert advance.share == pytest.approx((24_000 * 2 + 6_000) / 72_000)


def test_without_a_terminal_every_start_epoch_and_end_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    shown, one = sweep_display.display([job(0), job(1)], quiet=False), job(0)
    with shown:
        shown.begin(one)
        shown.tell(one, Begun(2_000))
        shown.tell(one, progress(3_000))
        shown.tell(one, Said("an epoch"))
        shown.pause(one, "crashed: ended by SIGSEGV; it is started again")
        shown.end(ending(one))
        shown.end(ending(job(1), "failed"))
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert lines[:4] == [
        "toy/dqn/Catch seed 0  starts (1 thread)",
        "toy/dqn/Catch seed 0  resumes at 2,000/24,000 steps",
        "an epoch",
        "toy/dqn/Catch seed 0: crashed: ended by SIGSEGV; it is started again",
    ]
    assert lines[4].startswith("toy/dqn/Catch seed 0: done  [1/2 runs, ETA 0:0")
    assert lines[5] == "toy/dqn/Catch seed 1: failed (why)  [2/2 runs]"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    shown, one = sweep_display.display([job(0)], quiet=True), job(0)
    shown.begin(one)
    shown.end(ending(one))
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_a_running_job_and_one_for_all(clock: list[float]) -> None:
    jobs = [job(0), job(1)]
    table = sweep_display.Table(jobs)
    for made in jobs:
        table.begin(made)
        table.tell(made, Begun(0))
    clock[0] = 5.0
    table.tell(jobs[0], progress(6_000))
    shown = {task.description: task.completed for task in table.bars.tasks}
    assert shown == {"2 runs": 6_000 / 48_000, "dqn Catch seed 0": 6_000, "dqn Catch seed 1": 0}
    assert "ETA 0:35" in table.bars.tasks[0].fields["note"]
    table.tell(jobs[1], Progress(env_steps=6_000, updates=0, last_return=None, evaluated=3))
    assert table.bars.tasks[2].fields["note"] == f"evaluating: 3/{CATCH.protocol.episodes} games"
    table.end(ending(jobs[0]))
    table.pause(jobs[1], "crashed")
    assert [task.description for task in table.bars.tasks] == ["2 runs"]
    assert "1 ended" in table.bars.tasks[0].fields["note"]
