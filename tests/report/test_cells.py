"""The verdict, score and note of a cell with given runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlbench.records.types import Status
from rlbench.report.cells import Cell, every_cell
from rlbench.report.run_index import gather
from tests.commands import run_command
from tests.conftest import RecordRun, RecordSeeds

Facts = Mapping[str, Any]
BREAKOUT = {"suite": "atari", "algo": "dqn", "task": "BreakoutNoFrameskip-v4"}
"""Documented 316 by a single run; a random policy has 1.7."""

PONG = BREAKOUT | {"task": "PongNoFrameskip-v4"}
CATCH = {"suite": "toy", "algo": "dqn", "task": "Catch"}
"""Its optimum is 1."""

ANT, HOPPER, SWIMMER, PENDULUM = (
    {"suite": "mujoco", "algo": algo, "task": f"{task}-v4"}
    for algo, task in (("ddpg", "Ant"), ("ppo", "Hopper"), ("ppo", "Swimmer"), ("ppo", "InvertedPendulum"))
)
"""Documented of the last: 1000 ± 0 at its best, 824.1 in the last evaluation within 1 M steps; the margin is 99.4."""


def cell(results: Path, suite: str, algo: str, task: str) -> Cell:
    return next(c for c in every_cell([suite], results) if (c.key.task, c.key.algorithm) == (task, algo))


def test_cells_without_a_record_are_not_run(tmp_path: Path) -> None:
    assert {(str(c.verdict), c.measured) for c in every_cell(["atari"], tmp_path)} == {("NOT RUN", None)}


def run(*means: float, **words: object) -> tuple[Sequence[float], Facts]:
    return means, words


GOOD = [run(310.0), run(320.0), run(316.0)]
CASES: Mapping[str, tuple[Mapping[str, str], Sequence[tuple[Sequence[float], Facts]], Facts]] = {
    "the measured score is the mean over seeds of each run's best evaluation": (
        BREAKOUT,
        [run(0.0, 5.0, 3.0), run(0.0, 7.0, 2.0)],
        {"score": 6.0, "n": 2, "estimator": "best-of-run", "env_steps": 200_000, "env_id": "test/env"}
        # t(0.975, 1), both 1 off
        | {"low": pytest.approx(6 - 12.706204736), "high": pytest.approx(6 + 12.706204736)},
    ),
    "the untrained policy counts as an evaluation": (BREAKOUT, [run(9.0, 5.0)], {"score": 9.0}),
    "one seed has no interval": (
        BREAKOUT, [run(5.0)], {"low": None, "high": None, "verdict": "INCONCLUSIVE (≈ 2 more seeds)"},
    ),
    "three seeds are consistent with a single reference run": (
        BREAKOUT, [run(0.0, 310.0), run(0.0, 320.0), run(0.0, 316.0)], {"verdict": "CONSISTENT"},
    ),
    "three seeds below one reference run": (
        BREAKOUT, [run(0.0, 10.0), run(0.0, 12.0), run(0.0, 14.0)], {"verdict": "BELOW"},
    ),
    "three seeds are above a single reference run": (
        BREAKOUT, [run(0.0, 900.0), run(0.0, 901.0), run(0.0, 902.0)], {"verdict": "ABOVE"},
    ),
    "short runs are partial, and their steps are noted": (
        BREAKOUT,
        [run(1.0, 2.0, 4.0, sets=["budget.steps=200000"]), run(1.0, 2.0, status="interrupted")],
        {"verdict": "PARTIAL", "notes": ["100,000 of 10,000,000 steps;"], "score": 2.0, "n": 2, "env_steps": 100_000},
    ),
    "a run that its protocol ended early keeps its last evaluation": (
        BREAKOUT,
        [run(1.0, 9.0, sets=["budget.steps=300000"]), run(1.0, 2.0, 3.0, 9.0, sets=["budget.steps=300000"])],
        {"verdict": "PARTIAL", "score": 9.0, "n": 2},
    ),
    "a run without an evaluation yet is partial and has no score": (
        BREAKOUT, [run(status=None)], {"verdict": "PARTIAL", "measured": None, "note": "0 of 10,000,000 steps"},
    ),
    "a short run beside complete ones is noted and does not count": (
        BREAKOUT, [run(5.0), run(99.0, status="interrupted")], {"score": 5.0, "n": 1, "note": "1 run incomplete"},
    ),
    "a run stopped at the reference's threshold is complete": (PONG, [run(-21.0, 20.5)], {"word": "INCONCLUSIVE"}),
    "a failed run is noted and counts as the random policy": (
        BREAKOUT,
        [*GOOD, run(1.0, status="failed")],
        {"n": 4, "note": "1 of 4 runs failed, counted at 1.7", "word": "CONSISTENT"}
        | {"score": pytest.approx((310 + 320 + 316 + 1.7) / 4)},
    ),
    "a failed run counts at most as the worst": (
        BREAKOUT, [run(0.5), run(3.0, status="failed")], {"scores": (0.5, 0.5)},
    ),
    "failed runs alone are below": (
        BREAKOUT, [run(5.0, status="failed")] * 3, {"word": "BELOW", "score": pytest.approx(1.7)},
    ),
    "another environment is shown and not compared": (
        BREAKOUT,
        [run(310.0 + seed, sets=["task.sticky=0.25"]) for seed in range(3)],
        {"word": "NOT COMPARABLE", "score": 311.0},
    ),
    "runs with other settings are noted and do not count": (
        BREAKOUT,
        [run(99.0, sets=["algo.lr=0.1"]), run(99.0, sets=["algo.lr=0.1"])]
        + [run(99.0, seed=0, sets=[f"algo.{text}"]) for text in ("dueling=true", "hidden=9", "gamma=0.8", "gamma=0.9")],
        {"verdict": "NOT RUN", "measured": None}
        | {"note": "2 runs with lr=0.1, 1 run with dueling=true, 1 run with gamma=0.8, 2 runs with other settings"},
    ),
    "a note of a reference appears in its cell": (PONG | {"algo": "rainbow"}, [], {"notes": ["s_{t+3}"]}),
    "the margin is a tenth of the way from the random policy": (
        BREAKOUT, [], {"margin": pytest.approx(0.1 * (316 - 1.7))},
    ),
    "a random policy below zero makes the way longer": (ANT, [], {"margin": pytest.approx(0.1 * (990.4 + 59.3))}),
    "the margin is the documented spread where that is larger": (HOPPER | {"algo": "ddpg"}, [], {"margin": 971.6}),
    "a margin that reaches the random policy reproduces nothing": (  # documented 66.7 ± 99.1, a random policy has 0.8
        SWIMMER,
        [run(0.8, 66.0 + seed) for seed in range(5)],
        {"verdict": "CONSISTENT", "margin": 99.1, "notes": ["the documented spread reaches the random policy"]},
    ),
    "reproduced, with tied seeds and an early peak": (
        PENDULUM,
        [run(5.0, 1000.0, 580.0 + 10 * seed) for seed in range(5)],
        {"word": "REPRODUCED"}
        | {"note": "all 5 seeds tie at the peak (zero variance): the difference alone decides; "
                   "peak at 30,720 steps, final 600.0 (reported final 824.1)"},
    ),
    "an early peak with failed and empty runs": (
        PENDULUM,
        [*[run(5.0, 1000.0, 600.0)] * 3, run(5.0, status="failed"), run()],
        {"notes": ["final 600.0", "1 run incomplete; 1 of 4 runs failed"]},
    ),
    "the peak is that of the mean over seeds: one that ends early at its best keeps it": (
        PENDULUM,
        [run(5.0, 900.0), run(5.0, 500.0, 600.0, 1000.0, 100.0)],
        {"notes": ["peak at 92,160 steps, final 500.0"]},
    ),
    "a peak within the margin of the end needs no note": (
        PENDULUM, [run(5.0, 1000.0, 950.0 + seed) for seed in range(5)],
        {"note": "all 5 seeds tie at the peak (zero variance): the difference alone decides"},
    ),
    "seeds that tie at an optimum may hide failures": (
        CATCH,
        [run(0.0, 1.0)] * 5,
        {"verdict": "REPRODUCED"}
        | {"note": "all 5 seeds tie (zero variance): the difference alone decides; "
                   "a failure rate of up to 45% cannot be excluded"},  # (1 - 0.45)**5 = 0.05
    ),
    "a toy task is tested against its optimum": (
        CATCH, [run(0.0, 0.2), run(0.0, 0.21), run(0.0, 0.19)], {"verdict": "BELOW"},
    ),
    "two seeds at the optimum": (CATCH, [run(0.0, 1.0)] * 2, {"verdict": "INCONCLUSIVE (≈ 1 more seed)"}),
}  # fmt: skip


@pytest.mark.parametrize(("where", "runs", "expected"), CASES.values(), ids=CASES)
def test_facts_of_a_cell(
    where: Mapping[str, str],
    runs: Sequence[tuple[Sequence[float], Facts]],
    expected: Facts,
    record_run: RecordRun,
    results: Path,
) -> None:
    for seed, (means, words) in enumerate(runs):
        record_run(means, **{**where, "seed": seed, **words})
    row = cell(results, **where)
    facts = {"verdict": str(row.verdict), "word": row.verdict.word, "note": row.note, "margin": row.margin}
    facts |= {"measured": row.measured} | ({} if row.measured is None else asdict(row.measured))
    facts["notes"] = [text for text in expected.get("notes", ()) if text in row.note]
    assert {name: facts[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("score", "apart", "seeds", "is_noted"),
    [(2200, 900, 3, True), (1700, 900, 3, True), (600, 900, 3, False), (2400, 2000, 3, False), (2200, 9, 2, False)],
)
def test_note_mentions_a_reference_that_is_too_uncertain_to_decide(
    score: int, apart: int, seeds: int, is_noted: bool, record_seeds: RecordSeeds, results: Path
) -> None:
    """PPO on Hopper: 2609.3 ± 700.8, so the margin lies at 1908.5 and t times the mean's error is 428."""
    record_seeds(*([0.0, float(score + apart * (seed - 1))] for seed in range(seeds)), **HOPPER)
    row = cell(results, **HOPPER)
    assert row.verdict.word == "INCONCLUSIVE"
    assert ("undecidable at any number of seeds" in row.note) is is_noted


def test_short_records_of_one_seed_count_once_with_the_lowest_evaluations(record_run: RecordRun, results: Path) -> None:
    for steps, means in ((200_000, [1.0, 2.0, 9.0]), (300_000, [1.0, 2.0, 4.0, 3.0]), (100_000, [1.0, 1.5])):
        record_run(means, sets=[f"budget.steps={steps}"])
    only = cell(results, "atari", "dqn", "BreakoutNoFrameskip-v4")
    assert only.measured is not None and only.verdict.word == "PARTIAL"
    assert (only.measured.n, only.measured.score, only.measured.low) == (1, 4.0, None)
    assert "not counted: 2 more records of the same seeds" in only.note
    evaluations = gather(results)[only.key].short[0].evaluations
    assert [evaluation.mean for evaluation in evaluations] == [1.0, 1.5, 4.0, 3.0]


def test_short_run_on_generated_data_is_partial(record_run: RecordRun, results: Path) -> None:
    record_run([1.0], suite="offline", algo="td3bc", task="Hopper-v4", sets=["task.dataset=rlb-own", "budget.steps=9"])
    (row,) = (c for c in every_cell(["offline"], results) if c.key.dataset == "rlb-own")
    assert (str(row.verdict), row.measured is not None) == ("PARTIAL", True)
    assert row.note == "0 of 1,000,000 steps"


def test_runs_that_do_not_count_are_noted(record_run: RecordRun, results: Path) -> None:
    for seed, file, sets in ((0, "a", []), (1, "a", ["algo.n_step=1"]), (2, "b", []), (3, "b", [])):
        metadata = {"name": "rlb-hopper-medium", "sha256": file * 64}
        record_run([1.0], suite="offline", algo="td3bc", task="rlb-hopper-medium", seed=seed, sets=sets, data=metadata)
    (row,) = (c for c in every_cell(["offline"], results) if c.measured is not None)
    assert row.measured.n == 2
    assert "1 run with n_step=1; seeds 2, 3 instead of 0 to 1; 1 run on another file of that name" in row.note


def test_game_without_a_reference_is_listed_last_and_not_compared(record_run: RecordRun, results: Path) -> None:
    record_run([5.0], task="AlienNoFrameskip-v4")
    row = every_cell(["atari"], results)[-1]
    assert (row.key.task, row.documented, str(row.verdict)) == ("AlienNoFrameskip-v4", None, "NOT COMPARABLE")


def test_runs_of_two_protocols_have_no_common_mean(record_run: RecordRun, results: Path) -> None:
    runs = [(1, 128, 0.9, "a"), (4, 128, 0.95, "a"), (2, 128, -0.9, "b"), (3, 128, 0.95, ""), (0, 192, -0.8, "a")]
    for seed, games, score, env in [*runs, (0, 128, -1.0, "b"), (0, 128, 1.0, "a"), (3, 128, 0.97, "a")]:
        if score == 1.0:  # the seed has a record in each version
            results.rename(results.parent / "elsewhere")
        sets, environment = [f"protocol.episodes={games}"], {"env": {"env": env} if env else None}
        record_run([score] * 13, suite="toy", task="Catch", seed=seed, sets=sets, environment=environment)
    (results.parent / "elsewhere").rename(results / "elsewhere")
    record_run((), suite="toy", task="Catch", seed=5, sets=["protocol.episodes=192"], status="failed")
    (row,) = (each for each in every_cell(["toy"], results) if each.measured is not None)
    assert (row.measured.score, row.measured.seeds, str(row.verdict)) == (
        pytest.approx(0.95),
        (0, 1, 3, 4),
        "NOT COMPARABLE",
    )
    others = "not counted: 1 more record of the same seeds; 2 runs in other versions of the environment (b); "
    others += "2 runs with protocol.episodes=192 (1 failed)"
    assert f"the score is of 4 runs with protocol.episodes=128; {others}" in row.note
    record_run([1.0] * 13, suite="toy", task="Catch", seed=0)
    (row,) = (each for each in every_cell(["toy"], results) if each.measured is not None)
    assert "the score is of" not in row.note


@pytest.mark.parametrize(
    ("means", "status", "forced", "note"),
    [
        ([-0.9] * 13, None, False, ""),  # killed after its last step
        ([0.9] * 6, "failed", False, "1 of 3 runs failed"),
        ([0.9] * 13, "failed", True, "1 of 3 runs failed"),  # and made again
        ([0.9] * 6, None, False, "192; not counted: 1 more record of the same seeds; 1 run incomplete"),
    ],
)
def test_a_bad_seed_of_another_protocol_counts(
    means: list[float], status: Status | None, forced: bool, note: str, record_run: RecordRun, results: Path
) -> None:
    record = partial(record_run, suite="toy", task="Catch", sets=["protocol.episodes=192"])
    for seed, score in enumerate((0.9, 0.95)):
        record([score] * 13, seed=seed)
    if note.endswith("incomplete"):
        results.rename(results.parent / "first")
        record([0.8] * 6, seed=1, status=None)  # no whole second record of the seed
        (results.parent / "first").rename(results / "first")
    record(means, seed=2, status=status)
    if forced:
        record(means, seed=2, force=True)
    (row,) = (each for each in every_cell(["toy"], results) if each.measured is not None)
    incomplete = "incomplete" in note
    assert (row.measured.n, row.measured.score > 0.9) == ((2, True) if incomplete else (3, False))
    assert note in row.note
    check_code = 5 if "failed" in note else 0
    assert run_command(f"check toy --results {results}")[0] == check_code


def test_reference_from_another_environment_is_not_compared() -> None:
    """The documented limit of 50 steps is a termination: a better score without it is no better algorithm."""
    row = cell(Path("results"), "goals", "ddpg+her", "FetchReach-v4")
    assert row.measured.score > -3
    assert str(row.verdict) == "NOT COMPARABLE"
    assert "limit of 50 steps as a termination" in row.note
