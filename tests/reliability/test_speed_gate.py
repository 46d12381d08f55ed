"""R16: the speed gate ignores equal speeds and other machines, alarms on a loss, and reports too few runs."""

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbench.errors import UsageError
from rlbench.report import check
from rlbench.report.baseline import (
    MIN_SLOWDOWN,
    MIN_SPEEDS,
    SLOWER_MADS,
    SUSPECT_MADS,
    Baseline,
    Entry,
    baseline_of,
    rule_speed,
)
from rlbench.report.check import against_baseline
from rlbench.report.run_index import group_runs
from rlbench.report.runs import Run
from tests.conftest import Patch
from tests.reliability.test_survivorship import run_of, spec_of

NAME = ("toy", "dqn", "Catch")
HERE, THERE = "cpu, A", "cpu, B"
speeds = st.lists(st.floats(10, 10_000), min_size=MIN_SPEEDS, max_size=20)


def std_of(values: list[float]) -> float:
    """Median absolute deviation by its definition."""
    middle = statistics.median(values)
    return statistics.median([abs(value - middle) for value in values])


@given(speeds, st.integers(0, 10**6))
def test_equal_speeds_never_alarm(before: list[float], turn: int) -> None:
    again = before[turn % len(before) :] + before[: turn % len(before)]
    assert rule_speed(before, again).word == "PASSED"
    assert rule_speed(before, [statistics.median(before)]).word == "PASSED"


@given(speeds, st.lists(st.floats(1, 10_000), min_size=1, max_size=9))
def test_rulings_on_speeds_follow_the_definition(before: list[float], later: list[float]) -> None:
    middle, now, spread = statistics.median(before), statistics.median(later), std_of(before)
    word = rule_speed(before, later).word
    slower = now < (1 - MIN_SLOWDOWN) * middle
    assert (word == "SLOWER") == (slower and now < middle - SLOWER_MADS * spread)
    assert (word == "PASSED") == (not slower or now >= middle - SUSPECT_MADS * spread)


@given(speeds)
def test_true_loss_of_speed_alarms_despite_noise(before: list[float]) -> None:
    """By more than the noise and more than what matters."""
    lost = min(0.9 * statistics.median(before), statistics.median(before) - 4.1 * std_of(before))
    if lost > 0:
        assert rule_speed(before, [lost]).word == "SLOWER"


@given(st.lists(st.floats(10, 1_000), min_size=0, max_size=MIN_SPEEDS - 1), st.lists(st.floats(1, 10), max_size=3))
def test_too_few_runs_are_reported_with_their_number(before: list[float], later: list[float]) -> None:
    ruling = rule_speed(before, later)
    assert ruling.word == "TOO FEW"
    assert f"{len(before)} baseline" in ruling.reason and f"{len(later)} later" in ruling.reason


def fast(seed: int, speed: float, cpu: str, **environment: int) -> Run:
    """A finished run of a machine at a speed."""
    run = run_of(spec_of(NAME, seed), [1.0, 1.0], "done", f"x/{cpu}/{seed}")
    return replace(run, speeds=(speed,), environment={"device": "cpu", "cpu": cpu, **environment})


def words(runs: list[Run], saved: dict[str, tuple[float, ...]], monkeypatch: Patch, *, other: bool) -> list[str]:
    """The gate's findings on speeds against a baseline of some machines."""
    spec = spec_of(NAME, 0)
    entry = Entry(
        suite="toy", algorithm="dqn", task="Catch", dataset="", id=spec.id, scores=dict.fromkeys(range(5), 1.0),
        speeds=saved,
    )  # fmt: skip
    baseline = Baseline(cells=(entry,), commits=(), machines=tuple(saved))
    monkeypatch.setattr(check, "gather", lambda _: group_runs(runs))
    comparison = against_baseline("toy", Path("none"), baseline, alpha=0.05, margin=0.05, other_machine=other)
    return [finding.word for finding in comparison if finding.aspect == "speed"]


def test_another_model_of_machine_is_refused_and_never_compared(monkeypatch: Patch) -> None:
    slow = [fast(seed, 10.0, "B") for seed in range(5)]
    with pytest.raises(UsageError, match=f"made on {THERE}, the baseline on {HERE}") as refusal:
        words(slow, {HERE: (100.0,) * 5}, monkeypatch, other=False)
    assert "--other-machine" in str(refusal.value)
    assert words(slow, {HERE: (100.0,) * 5}, monkeypatch, other=True) == []
    assert words(slow, {HERE: (100.0,) * 5, THERE: (10.0,) * 5}, monkeypatch, other=False) == ["PASSED"]
    assert words(slow, {HERE: (10.0,) * 5, THERE: (100.0,) * 5}, monkeypatch, other=False) == ["SLOWER"]


def test_runs_with_other_numbers_of_threads_are_not_compared(monkeypatch: Patch) -> None:
    slow = [fast(seed, 10.0, "A", torch_threads=1) for seed in range(5)]
    (entry,) = baseline_of(group_runs(slow)).cells
    assert [*entry.speeds] == [f"{HERE}, 1 thread"]
    for saved, findings in (("8 threads", []), ("1 thread", ["SLOWER"])):
        assert words(slow, {f"{HERE}, {saved}": (100.0,) * 5}, monkeypatch, other=True) == findings
    assert words(slow, {HERE: (100.0,) * 5}, monkeypatch, other=False) == ["SLOWER"], "an older baseline has no threads"


def test_speed_is_the_median_of_the_epochs() -> None:
    run = run_of(spec_of(NAME, 0), [1.0, 1.0], "done", "x")
    assert [replace(run, speeds=speeds).speed for speeds in ((10.0, 30.0, 20.0), ())] == [20.0, None]
    two = replace(run, speeds=(10.0,), resumed=({"cpu": "another"},))
    assert two.speed is None and [name.endswith(", another") for name in two.machines] == [False, True]
