"""Statistics of benchmark samples; no assertion is about a measured time."""

import pytest

from benchmarks.figures import Figures, floors, ratios
from benchmarks.report import load, markdown, report, save
from benchmarks.stopwatch import Stopwatch


@pytest.fixture
def figures():
    measurements = Figures()
    measurements.add("gemm", "gemm", 1, "GFLOP/s", [100.0, 200.0, 400.0])
    measurements.add("dqn-update", "rlbench", 1, "ms", [10.0, 40.0, 20.0])
    measurements.add("dqn-update", "plain", 1, "ms", [30.0])
    measurements.add("dqn-pong", "rlbench", 1, "env steps/s", [300.0])
    measurements.add("dqn-pong", "stable-baselines3", 1, "env steps/s", [100.0])
    measurements.add("storage dqn", "10000 stored", 1, "µs", [100.0])
    measurements.add("storage dqn", "1000000 stored", 1, "µs", [125.0])
    return measurements


def test_samples_of_one_figure_gather_and_the_median_is_the_middle_one(figures):
    figures.add("dqn-update", "plain", 1, "ms", [50.0, 70.0])
    assert figures.of("dqn-update", "plain", 1) == 50.0
    assert figures.of("dqn-update", "plain", 2) is None


def test_a_ratio_above_one_is_better_whatever_the_unit(figures):
    measurements = {(r.workload, r.against): r.value for r in ratios(figures)}
    assert measurements == {
        ("dqn-update", "plain"): 1.5,
        ("dqn-pong", "stable-baselines3"): 3.0,
        ("storage dqn", "10000 stored"): 0.8,
    }


def test_measurements_in_other_units_are_not_compared():
    measurements = Figures()
    measurements.add("value-update dqn 64", "rlbench", 1, "updates/s", [10.0])
    measurements.add("value-update dqn 64", "time over floor", 1, "×", [2.0])
    assert ratios(measurements) == []


def test_the_floor_is_the_work_of_an_update_at_the_speed_of_the_machine(figures):
    floors(figures)
    assert figures.of("dqn-update", "floor (double target)", 1) == pytest.approx(13.9)
    assert figures.of("dqn-update", "floor (plain target)", 1) == pytest.approx(10.9)


def test_the_table_is_made_from_the_written_file_and_leaves_unmeasured_cells_empty(figures, tmp_path):
    figures.add("dqn-pong", "rlbench", 2, "env steps/s", [400.0])
    text = report(figures, {"repeat": 1})
    save(text, tmp_path / "machine.json")
    assert load(tmp_path / "machine.json") == text
    table = markdown(text)
    assert "| dqn-pong | stable-baselines3, env steps/s | 100 ± 0% | 3.00× |  |  |" in table
    assert "| dqn-pong | rlbench, env steps/s | 300 ± 0% |  | 400 ± 0% |  |" in table


def test_inner_part_is_subtracted_from_the_outer_one(monkeypatch):
    ticks = iter([0.0, 1.0, 4.0, 10.0])  # outer begins, inner begins, inner ends, outer ends
    monkeypatch.setattr("benchmarks.stopwatch.perf_counter", lambda: next(ticks))
    watch = Stopwatch()
    watch.timed("outer", watch.timed("inner", lambda: None))()
    assert watch.seconds == {"inner": 3.0, "outer": 7.0}


def test_a_part_that_fails_is_still_counted_and_the_error_passes():
    watch = Stopwatch()
    with pytest.raises(ZeroDivisionError):
        watch.timed("broken", lambda: 1 // 0)()
    assert "broken" in watch.seconds
