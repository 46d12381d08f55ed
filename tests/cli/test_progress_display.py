"""The display of a sweep: its advance, its remaining time, its bars, and its lines without a terminal."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.cli import progress_display
from rlbench.records.types import Outcome, Progress
from rlbench.sweep.events import Begun, Ending, EpochEnd
from rlbench.sweep.plan import Job
from tests.conftest import Capture, Patch

CATCH = suites.spec("toy", "dqn", "Catch")
PAUSED = "paused at 4,000 steps by --until; the same command without it goes on"
EPOCH = EpochEnd(number=1, steps=2_000, seconds=61.0, evaluation=0.5, episodes=8, steps_per_second=1_234.5)


def job(seed: int) -> Job:
    return Job(spec=CATCH.model_copy(update={"seed": seed}), folder=Path("x"))


def progress(steps: int) -> Progress:
    return Progress(env_steps=steps, updates=0, last_return=1.0)


def ending(
    of: Job, status: str = "done", *, started: bool = True, outcome: Outcome | None = None, reason: str = "why"
) -> Ending:
    rest = {"is_paused": reason.startswith("--until"), "log": None, "attempts": None}
    return Ending(job=of, status=status, reason=reason, outcome=outcome, started=started, **rest)


def interrupted_at(steps: int) -> Outcome:
    counts = {"env_steps": steps, "updates": 0, "epochs": 2, "best_epoch": 1}
    return Outcome(status="interrupted", reason="why", seconds=1.0, final=0.5, best=0.5, weights=None, **counts)


@pytest.fixture
def clock(monkeypatch: Patch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress_display, "monotonic", lambda: now[0])
    return now


def test_the_remaining_time_follows_from_the_steps_of_this_sweep(clock: list[float]) -> None:
    jobs = [job(0), job(1), job(2)]
    lines = progress_display.Lines(jobs, quiet=True)
    assert (sum(lines.done.values()), lines.remaining_seconds) == (0, None)
    lines.end(ending(jobs[0], started=False))  # done before: its steps are neither left nor a speed
    lines.show(jobs[1], Begun(12_000))  # half of it was done before
    assert (sum(lines.done.values()), lines.remaining_seconds) == (36_000, None)
    clock[0] = 10.0
    lines.show(jobs[1], progress(18_000))
    assert lines.remaining_seconds == pytest.approx(30_000 / 600)
    clock[0] = 20.0
    lines.end(ending(jobs[1]))
    assert lines.remaining_seconds == pytest.approx(24_000 / 600)
    lines.show(jobs[2], Begun(0))
    lines.show(jobs[2], progress(12_000))
    lines.show(jobs[2], Begun(6_000))  # it died, and resumes from its checkpoint
    assert sum(lines.done.values()) == 24_000 * 2 + 6_000


def test_runs_that_pause_count_to_their_pause(clock: list[float], capsys: Capture) -> None:
    first, second = (replace(job(seed), until=3_000) for seed in (0, 1))  # an epoch has 2,000 steps
    lines = progress_display.Lines([first, second])
    lines.show(first, Begun(0))
    clock[0] = 10.0
    outcome = interrupted_at(4_000)
    lines.show(first, progress(4_000))
    lines.end(ending(first, "interrupted", outcome=outcome, reason="--until 3,000 steps"))
    assert lines.remaining_seconds == pytest.approx(10.0)
    assert capsys.readouterr().err.splitlines() == [
        "toy/dqn/Catch seed 0  starts at 0/4,000 steps",
        f"toy/dqn/Catch seed 0: {PAUSED}  [1/2 runs, ETA 0:10]",
    ]


def test_without_a_terminal_every_event_is_a_line(capsys: Capture) -> None:
    one = job(0)
    with progress_display.display([job(0), job(1)], quiet=False) as display:
        display.begin(one)
        display.show(one, Begun(0))
        display.show(one, progress(3_000))
        display.show(one, EPOCH)
        display.pause(one, "crashed: ended by SIGSEGV; it is started again")
        display.show(one, Begun(2_000))
        display.end(ending(one))
        display.end(ending(job(1), "refused"))
    out, err = capsys.readouterr()
    assert out == ""
    *lines, done, refusal = err.splitlines()
    assert lines == [
        "toy/dqn/Catch seed 0  starts at 0/24,000 steps",
        "toy/dqn/Catch seed 0  epoch 1  2,000/24,000 steps  evaluation 0.5 over 8 episodes, 1,234 steps/s  1:01",
        "toy/dqn/Catch seed 0: crashed: ended by SIGSEGV; it is started again",
        "toy/dqn/Catch seed 0  resumes at 2,000/24,000 steps",
    ]
    assert done.startswith("toy/dqn/Catch seed 0: done  [1/2 runs, ETA 0:0")
    assert refusal == "toy/dqn/Catch seed 1: refused: why  [2/2 runs]"


@pytest.mark.parametrize(
    ("status", "started", "line"),
    [
        ("done", True, "done"),
        ("done", False, "done already (why); --force runs it again"),
        ("failed", True, "failed: why (traceback: x/failure.txt)"),
        ("failed", False, "failed already (why); --force runs it again"),
        ("interrupted", True, "stopped at 0 steps (why); the same command resumes"),
        ("running", True, "why; left alone"),
        ("halted", True, "halted: why"),
    ],
)
def test_line_of_an_ending_names_the_next_step(capsys: Capture, status: str, line: str, *, started: bool) -> None:
    with progress_display.display([job(0)], quiet=False) as display:
        display.end(ending(job(0), status, started=started))
    assert capsys.readouterr().err == f"toy/dqn/Catch seed 0: {line}\n"


@pytest.mark.parametrize("kind", [progress_display.Lines, progress_display.Bars])
def test_no_reason_reaches_a_terminal_raw(kind: type[progress_display.Lines], capsys: Capture) -> None:
    display, reason = kind([job(0)]), "\x1b]0;PWNED\x07 \x9b2J\r\u202e\u2066\nnext"
    display.begin(job(0))
    display.pause(job(0), reason)
    display.end(ending(job(0), "failed", reason=reason))
    assert set(capsys.readouterr().err) & set(reason) <= set(" PWNED0]; 2Jnext\n")


def test_quiet_display_writes_nothing(capsys: Capture) -> None:
    one = job(0)
    with progress_display.display([job(0)], quiet=True) as display:
        display.begin(one)
        display.show(one, Begun(0))
        display.end(ending(one))
    assert capsys.readouterr() == ("", "")


def test_terminal_shows_a_bar_per_running_job_and_one_for_the_suite(clock: list[float]) -> None:
    jobs = [job(0), replace(job(1), until=8_000)]
    bars = progress_display.Bars(jobs)
    for one in jobs:
        bars.begin(one)
        bars.show(one, Begun(0))
    clock[0] = 5.0
    bars.show(jobs[0], progress(6_000))
    steps = {task.description: (task.completed, task.total) for task in bars.bars.tasks}
    assert steps == {"2 runs": (6_000, 32_000), "dqn Catch seed 0": (6_000, 24_000), "dqn Catch seed 1": (0, 8_000)}
    assert "ETA 0:21" in bars.bars.tasks[0].fields["note"]
    bars.show(jobs[1], Progress(env_steps=6_000, updates=0, last_return=None, evaluated=3))
    assert bars.bars.tasks[2].fields["note"] == f"evaluating: 3/{CATCH.protocol.episodes} episodes"
    bars.show(jobs[0], progress(12_000))  # within a tenth of a second no bar moves
    assert bars.bars.tasks[1].completed == 6_000
    bars.end(ending(jobs[0]))
    bars.pause(jobs[1], "crashed")
    assert [task.description for task in bars.bars.tasks] == ["2 runs"]
    assert "1 ended" in bars.bars.tasks[0].fields["note"]


@pytest.mark.parametrize(
    ("columns", "task", "expected"),
    [
        (200, "PongNoFrameskip-v4", "100 steps/s  ETA {}  return 0.5  evaluation 0.5"),
        (80, "Pong", "100 steps/s  ETA {}"),
    ],
)
def test_bar_of_a_run_fits_the_terminal(
    clock: list[float], monkeypatch: Patch, columns: int, task: str, expected: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    pong = suites.spec("atari", "dqn", "PongNoFrameskip-v4", seed=7)
    one = Job(spec=pong.model_copy(update={"budget": CATCH.budget}), folder=Path("x"))
    bars = progress_display.Bars([one])
    bars.begin(one)
    bars.show(one, Begun(0))
    (bar,) = bars.bars.tasks
    assert bar.description == f"dqn {task} seed 7"
    bars.show(one, EPOCH)
    for clock[0], steps, note in ((10.0, 1_000, "0 steps/s"), (20.0, 2_000, expected)):
        bars.show(one, Progress(env_steps=steps, updates=0, last_return=0.5))
        assert bar.fields["note"].startswith(note.format("≤ 3:40"))
    assert bar.fields["note"] == expected.format("≤ 3:40")
