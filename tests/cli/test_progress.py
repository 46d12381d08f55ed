"""The progress note of a run, fitted to the terminal's width."""

from __future__ import annotations

import pytest

from rlbench import suites
from rlbench.cli import progress_display
from rlbench.cli.progress_display import Drawing, Speed
from rlbench.records.types import Progress

CATCH = suites.spec("toy", "dqn", "Catch")  # 24,000 steps


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress_display, "monotonic", lambda: now[0])
    return now


def drawing(monkeypatch: pytest.MonkeyPatch, columns: int) -> Drawing:
    monkeypatch.setenv("COLUMNS", str(columns))
    return Drawing(redraws=1)


@pytest.mark.parametrize(
    ("columns", "wanted"), [(200, "100 steps/s  ETA 3:50  return 0.5  evaluation 1"), (80, "100 steps/s  ETA 3:50")]
)
def test_progress_note_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], columns: int, wanted: str
) -> None:
    drawn, speed = drawing(monkeypatch, columns), Speed()
    record = Progress(env_steps=0, updates=0, last_return=None)
    assert drawn.note(CATCH, record, speed) == "0 steps/s"
    clock[0] = 10.0
    record = Progress(env_steps=1_000, updates=0, last_return=0.5)
    assert drawn.note(CATCH, record, speed, "evaluation 1") == wanted


def test_progress_note_counts_episodes_during_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Progress(env_steps=0, updates=0, last_return=None, evaluated=3)
    assert drawing(monkeypatch, 200).note(CATCH, record, Speed()) == f"evaluating: 3/{CATCH.protocol.episodes} episodes"


@pytest.mark.parametrize(("columns", "wanted"), [(200, "PongNoFrameskip-v4"), (80, "Pong")])
def test_title_of_a_bar_has_algorithm_task_and_seed(monkeypatch: pytest.MonkeyPatch, columns: int, wanted: str) -> None:
    pong = suites.spec("atari", "dqn", "PongNoFrameskip-v4", seed=7)
    assert drawing(monkeypatch, columns).title(pong) == f"dqn {wanted} seed 7"
