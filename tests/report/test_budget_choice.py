"""The choice of runs within a budget of hours."""

from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbench import suites
from rlbench.errors import UsageError
from rlbench.records.imported import write_curves
from rlbench.report.evidence import Evidence
from rlbench.report.reference_table import CellKey
from rlbench.report.remaining_work import (
    RemainingRuns,
    Throughput,
    choose_cells,
    parse_budget,
    remaining_runs,
    seeds_needed,
    throughput,
)
from rlbench.report.run_index import Runs, gather
from rlbench.report.verdict import Verdict, Word
from tests.commands import json_of, stderr_of, stdout_of
from tests.conftest import Patch, RecordSeeds
from tests.reliability.test_hostile_curves import CURVE
from tests.report.conftest import RESULTS


def row(name: str, hours: float | None, seeds: int = 10, *, runnable: bool = True) -> RemainingRuns:
    key = CellKey("toy", name, "Catch", "")
    seed_steps = (3_600_000,) * seeds
    speed = None if hours is None else sum(seed_steps) / hours / 3600
    return RemainingRuns(
        key=key, seeds=tuple(range(seeds)), seed_steps=seed_steps, speed=speed, memory=1, runnable=runnable
    )


@pytest.mark.parametrize(
    ("word", "more", "seeds"),
    [
        ("NOT RUN", None, 3),
        ("PARTIAL", None, 3),
        ("INCONCLUSIVE", 2, 2),
        ("INCONCLUSIVE", 101, None),  # more than anybody would run
        ("REPRODUCED", None, None),
        ("ABOVE", None, None),
        ("BELOW", None, None),
        ("CONSISTENT", None, None),
        ("NOT COMPARABLE", None, None),
    ],
)
def test_number_of_seeds_that_a_verdict_needs(word: Word, more: int | None, seeds: int | None) -> None:
    assert seeds_needed(Verdict(word, more)) == seeds


def test_cheapest_verdict_is_chosen_first_and_the_next_row_is_named() -> None:
    rows = [row("dear", 100.0), row("cheap", 10.0), row("decided", 1.0), row("nearly", 20.0), row("unknown", None)]
    verdicts = {row("decided", None).key: Verdict("BELOW"), row("nearly", None).key: Verdict("INCONCLUSIVE", 1)}
    choice = choose_cells(rows, verdicts, 6.0)
    assert [(r.key.algorithm, r.seeds, r.hours) for r in choice.rows] == [
        ("nearly", (0,), 2.0),
        ("cheap", (0, 1, 2), 3.0),
    ]
    assert (choice.hours, choice.beyond, choice.unknown) == (5.0, 1, 1)
    assert choice.after is not None and choice.after.key.algorithm == "dear"


def test_rows_that_cannot_run_or_lack_seeds_are_not_chosen() -> None:
    assert choose_cells([row("a", 1.0, runnable=False), row("b", 1.0, seeds=2)], {}, 100.0).rows == ()


@given(st.lists(st.floats(0.1, 20), min_size=1, max_size=7), st.floats(0, 40))
def test_no_other_choice_within_the_budget_decides_more_verdicts(hours: list[float], budget: float) -> None:
    rows = [row(str(number), length, seeds=3) for number, length in enumerate(hours)]
    most = max(n for n in range(len(rows) + 1) for part in combinations(hours, n) if sum(part) <= budget + 1e-9)
    got = len(choose_cells(rows, {}, budget).rows)
    assert got in {most, most - 1} if abs(sum(sorted(hours)[:most]) - budget) < 1e-6 else got == most


@pytest.mark.parametrize(("text", "hours"), [("2h", 2.0), ("90m", 1.5), ("1.5d", 36.0)])
def test_durations_are_parsed(text: str, hours: float) -> None:
    assert parse_budget(text) == hours


@pytest.mark.parametrize("text", ["2", "h", "-1h", "2 h", "1w"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--budget"):
        parse_budget(text)


def test_every_atari_cell_has_estimated_hours() -> None:
    *_, whole = stdout_of(["plan", "atari", "--results", str(RESULTS)]).splitlines()
    assert whole.startswith("the whole table: 56 cells, 560 runs, 5,600,000,000 steps, ")
    assert all(cell.hours for cell in remaining_runs("atari", Evidence(RESULTS), whole=True))


def test_plan_with_a_budget_prints_json_and_lines() -> None:
    first, second, *_ = json_of(["plan", "mujoco", "--budget", "900d", "--results", str(RESULTS), "--json"])["include"]
    budget = round(first["hours"] + second["hours"] / 2, 3)
    words = ["plan", "mujoco", "--budget", f"{budget}h", "--results", str(RESULTS)]
    plan = json_of([*words, "--json"])
    rounding = 0.00005 * len(plan["include"])  # four digits are printed: a fifth of a second
    assert sum(cell["hours"] for cell in plan["include"]) <= budget + rounding
    assert plan["include"] and len(plan["after"]) == 1
    assert [cell["hours"] for cell in plan["include"]] == sorted(cell["hours"] for cell in plan["include"])
    lines = stdout_of([*words, "--lines"]).splitlines()
    assert f"next: `rlbench run {' --seeds '.join(lines[-1].rsplit(' ', 1))} --results {RESULTS}` takes" in stdout_of(
        words
    )
    assert len(lines) == len(plan["include"]) + 1


def test_an_inconclusive_cell_gets_seeds_beyond_the_tenth(
    record_seeds: RecordSeeds, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("rlbench.report.remaining_work.throughput", lambda *_, **__: Throughput(100.0, "cell", True))
    budget = suites.spec("toy", "dqn", "Catch").budget
    scores = ([0.8 if seed == 3 else 1.0] * (budget.steps // budget.epoch + 1) for seed in range(10))
    record_seeds(*scores, suite="toy", task="Catch")
    words = ["plan", "toy", "dqn", "--budget", "900d", "--results", str(tmp_path / "results"), "--json"]
    (catch,) = (cell for cell in json_of(words)["include"] if cell["task"] == "Catch")
    assert catch["seeds"].startswith("10,11")
    assert "Catch" not in {cell["task"] for cell in json_of([*words, "--seeds", "0-11"])["include"]}
    assert "enough seeds" not in stdout_of(["plan", "toy", "ppo", *words[3:-1], "--seeds", "0-9"])
    for seeds in ("0-11", "0-9"):  # too few are missing, or none
        assert ", 1 cell in need of more seeds than are planned" in stdout_of([*words[:-1], "--seeds", seeds])


def test_chosen_seeds_cost_the_steps_that_they_lack() -> None:
    nearly = replace(row("nearly", 10.0, seeds=4), seed_steps=(3_600_000, 360, 360, 720), speed=1.0)
    choice = choose_cells([row("short", 1.0, seeds=4), nearly], {}, 100.0)
    assert [(r.key.algorithm, r.seeds, r.steps, r.hours) for r in choice.rows] == [
        ("nearly", (1, 2, 3), 1440, 0.4),
        ("short", (0, 1, 2), 10_800_000, 0.75),
    ]


def test_unfinished_seeds_that_hold_a_verdict_open_are_chosen() -> None:
    paused = replace(row("paused", 1.0, seeds=4), begun=(3,), seed_steps=(3_600_000, 3_600_000, 3_600_000, 360))
    choice = choose_cells([paused], {paused.key: Verdict("INCONCLUSIVE")}, 100.0)
    assert [(cell.seeds, cell.steps) for cell in choice.rows] == [((3,), 360)]
    for verdict in (Verdict("REPRODUCED"), Verdict("INCONCLUSIVE", 101)):
        assert not choose_cells([paused], {paused.key: verdict}, 100.0).rows
    many = replace(paused, begun=(0, 1, 2, 3))
    assert choose_cells([many], {paused.key: Verdict("PARTIAL")}, 100.0).rows[0].seeds == (0, 1, 2, 3)
    begun = replace(paused, seed_steps=(360, 3_600_000, 3_600_000, 3_600_000))
    assert choose_cells([begun], {paused.key: Verdict("INCONCLUSIVE")}, 100.0).rows[0].seeds == (3,)


def test_more_seeds_of_an_open_cell_train_to_the_step_at_which_it_is_tested(tmp_path: Path) -> None:
    """SAC on HalfCheetah is informative at 50,000 steps; three committed seeds are tested at 200,000."""
    rows_of = partial(remaining_runs, "mujoco", Evidence(RESULTS), algorithms=["sac"], informative=True)
    untils = [{row.key.task: row.until for row in rows_of(whole=whole)} for whole in (False, True)]
    assert [until["HalfCheetah-v4"] for until in untils] == [200_000, 50_000]
    copytree(RESULTS / "mujoco/sac/HalfCheetah-v4", tmp_path / "mujoco/sac/HalfCheetah-v4")
    for place in tmp_path.rglob("seed=*"):
        if place.name != "seed=0":
            rmtree(place)
    (row,) = (
        row
        for row in remaining_runs("mujoco", Evidence(tmp_path), informative=True)
        if row.key[1:3] == ("sac", "HalfCheetah-v4")
    )
    assert row.until == 50_000


def test_lines_of_a_plan_are_none_where_nothing_is_missing() -> None:
    plan = f"plan toy c51 --lines --budget 1h --results {RESULTS}"
    assert stdout_of(plan) == ""
    assert "--lines and --json contradict each other" in stderr_of(f"{plan} --json")


@pytest.mark.parametrize("seeds", [1, 3])
def test_imported_curves_are_no_runs_in_a_plan(seeds: int, tmp_path: Path) -> None:
    copytree(RESULTS / "toy/dqn/CartPole-v1", tmp_path / "toy/dqn/CartPole-v1")  # for the speed
    budget = suites.spec("toy", "dqn", "Catch").budget.steps
    curve = replace(CURVE, suite="toy", algorithm="dqn", task="Catch", steps=(0, budget))
    write_curves([replace(curve, seed=seed, returns=(0.0, 1.0 - seed / 1000)) for seed in range(seeds)], tmp_path)
    planned = stdout_of(f"plan toy dqn --budget 10h --lines --results {tmp_path}").splitlines()
    assert "toy dqn Catch 0,1,2" in planned


def test_speed_is_unknown_for_algorithms_with_twenty_gradient_steps_a_step() -> None:
    runs_by_key = gather(RESULTS)
    assert any((key.suite, key.algorithm) == ("mujoco", "sac") for key in runs_by_key)
    assert throughput(CellKey("mujoco", "redq", "Ant-v4", ""), runs_by_key, "AMD EPYC", gpu=False) is None
    toys = CellKey("toy", "redq", "Pendulum-v1", "")
    assert toys in runs_by_key, "its own runs do"
    assert throughput(toys, runs_by_key, "AMD EPYC", gpu=False) is not None
    others = throughput(CellKey("toy", "dqn", "Catch", ""), {toys: runs_by_key[toys]}, "AMD EPYC", gpu=False)
    assert others is None


@pytest.mark.parametrize(
    ("devices", "gpu", "speed", "nearest"),
    [
        (("cpu", "cuda"), False, 50.0, "algorithm"),
        (("cpu", "cuda"), True, 2000.0, "cell"),
        (("cuda", "cuda"), False, 2000.0, "cell on a GPU"),
        (("cpu", "cpu"), True, 2000.0, "cell on a CPU"),
    ],
)
def test_speed_on_a_gpu_is_not_used_for_a_machine_without_one(
    devices: tuple[str, str], gpu: bool, speed: float, nearest: str
) -> None:
    pong, pacman = (CellKey("atari", "c51", f"{game}NoFrameskip-v4", "") for game in ("Pong", "MsPacman"))
    run = next(run for runs in gather(RESULTS).values() for run in runs.complete if run.speeds)
    runs_by_key = {
        key: Runs(complete=[replace(run, speeds=(speed,), environment={"device": device, "cpu": "AMD EPYC"})])
        for key, speed, device in ((pong, 50.0, devices[0]), (pacman, 2000.0, devices[1]))
    }
    expected = throughput(pacman, runs_by_key, "AMD EPYC", gpu=gpu)
    assert (expected.speed, expected.nearest, expected.here) == (speed, nearest, " on " not in nearest)


def test_speed_comes_from_the_same_family_before_the_same_suite() -> None:
    unknown = {"ddpg", "reinforce"}  # as if nobody had run these yet
    runs_by_key = {key: runs for key, runs in gather(RESULTS).items() if key.algorithm not in unknown}
    cells = (("sac", "HalfCheetah-v3"), ("ddpg", "Ant-v3"), ("reinforce", "Ant-v3"))
    keys = (CellKey("mujoco", algorithm, task, "") for algorithm, task in cells)
    sac, redq, ppo = (throughput(key, runs_by_key, "AMD EPYC", gpu=False) for key in keys)
    assert redq is not None and ppo is not None and sac is not None
    assert (redq.nearest, ppo.nearest) == ("family", "family")
    assert redq.speed < ppo.speed / 2
