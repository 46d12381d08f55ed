"""``run --until-decided``: seeds in looks, tested at the boundary of the last look, despite interruptions."""

import json
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlbench import suites
from rlbench.cli.app import main
from rlbench.cli.resolve import resolve
from rlbench.cli.run_output import decision_sentence, verdict_lines
from rlbench.cli.until_decided import cells_of
from rlbench.config.run import Spec
from rlbench.errors import UsageError
from rlbench.records.looks import DESIGN, DESIGNS, NAME, SHARED_ERROR_DESIGNS, Looks, read_looks, record_looks
from rlbench.records.store import folder_of, read_record
from rlbench.report.cells import Cell, every_cell
from rlbench.report.pooled import pooled_rows
from rlbench.report.reference_table import DATA, CellKey
from rlbench.report.run_index import gather
from rlbench.report.verdict import welch_test
from rlbench.sweep.events import Ending
from rlbench.sweep.plan import Job
from tests.commands import RLBENCH, json_of, run_command, run_process, stderr_of, stdout_of
from tests.forging import reseal
from tests.reliability.test_forged_records import with_losses
from tests.schemas import complaints
from tests.slow import slow_but

Record = Callable[..., Path]
SCHEMA = json.loads((DATA / "schema" / "run.json").read_text())
KEY = ("mujoco", "ppo", "InvertedPendulum-v4")
"""Documented: 1,000 ± 0 over ten seeds, so that the error is ours alone."""

DECIDE = ["run", *KEY, "--until-decided"]


def cell(results: Path) -> Cell:
    return next(cell for cell in every_cell(["mujoco"], results) if cell.key[:3] == KEY)


def ended(record_run: Record, scores: Sequence[float], start: int = 0) -> Path:
    """Finished runs of the cell at the given scores; the folder of its seeds."""
    suite, algo, task = KEY
    for seed, score in enumerate(scores, start=start):
        folder = record_run([5.0, score], suite=suite, algo=algo, task=task, seed=seed)
    return folder.parent


def looked(folder: Path, count: int) -> Path:
    record_looks(folder, Looks(DESIGN, count))
    return folder


def decide() -> tuple[int, dict[str, Any]]:
    code, out, error = run_command([*DECIDE, "--json", "--quiet", "--device", "cpu"])
    assert out, error
    return code, json.loads(out)


SCORES = [990.0, 970.0, 1000.0, 985.0, 955.0]
"""p = 0.007 at three seeds and 0.0003 at five, so the second look decides."""


def test_until_decided_stops_at_a_verdict_and_repeating_it_trains_nothing(record_run: Record) -> None:
    folder = looked(ended(record_run, SCORES), 0)
    for _ in range(2):
        code, content = decide()
        assert code == 0
        assert content["decisions"] == [
            dict(zip(("suite", "algorithm", "task"), KEY, strict=True))
            | {"dataset": None, "verdict": "REPRODUCED", "look": 2, "looks": 5, "seeds": 5}
        ]
        assert not list(complaints(SCHEMA, content, SCHEMA))
    assert json.loads((folder / NAME).read_text())["looks"] == [list(look) for look in DESIGN]


def test_verdict_uses_the_last_look_instead_of_the_fixed_test(record_run: Record, tmp_path: Path) -> None:
    folder = ended(record_run, SCORES)
    before = cell(tmp_path / "results")
    none, first, second = (cell(looked(folder, count).parents[3]) for count in range(3))
    assert [str(row.verdict) for row in (before, none, first, second)] == [
        "REPRODUCED",
        "INCONCLUSIVE (next look at 3 seeds)",
        "INCONCLUSIVE (next look at 5 seeds)",
        "REPRODUCED",
    ]
    later = "look 1 of 5 at 3 seeds, level 0.00014; 2 later seeds can only lower the verdict"
    assert f"not tested before {later}" in none.note
    assert none.shortfall_percent is None and len(none.scores) == 3
    assert f"tested by {later}" in first.note
    assert "tested by look 2 of 5 at 5 seeds, level 0.00054" in second.note
    assert (len(first.scores), len(second.scores)) == (3, 5)
    document = first.documented
    fixed = welch_test(first.scores, document.score, document.std, 10, first.margin)
    assert fixed.word == "REPRODUCED" and fixed.below is not None
    assert first.test.below == min(1.0, fixed.below * sum(look.level for look in DESIGN) / DESIGN[0].level)
    assert first.shortfall_percent > before.shortfall_percent


def test_an_earlier_copy_of_the_looks_does_not_count(record_run: Record, tmp_path: Path) -> None:
    results = tmp_path / "results"
    folder = looked(ended(record_run, SCORES), 0)
    shutil.copytree(folder, results / "aaa" / folder.relative_to(results))
    assert str(cell(looked(folder, 2).parents[3]).verdict) == "REPRODUCED"


def test_later_seeds_lower_the_verdict_at_equal_steps_and_the_pooled_one(record_run: Record, tmp_path: Path) -> None:
    for task, score in (("HalfCheetah-v4", 12_200.0), ("Hopper-v4", 3_600.0), ("Walker2d-v4", 5_100.0)):
        for seed in range(10):
            level = score + 9 * seed if seed < 3 else 0.3 * score + seed
            folder = record_run([level] * 201, suite="mujoco", algo="sac", task=task, seed=seed)
        looked(folder.parent, 1)
    cells = [cell for cell in every_cell(["mujoco"], tmp_path / "results") if cell.measured is not None]
    assert [cell.at.word for cell in cells if cell.at is not None] == ["OPEN"] * 3
    assert [row.word for row in pooled_rows(cells)] == ["BELOW"] * 2
    findings = json.loads(run_command(["check", "mujoco", "--at", "--results", "results", "--json"])[1])["findings"]
    later = "7 later seeds can only lower the verdict"
    assert [finding["reason"].count(later) for finding in findings if finding["word"] == "OPEN"] == [1] * 3


def test_tables_show_the_looks_in_json_and_csv(record_run: Record) -> None:
    looked(ended(record_run, SCORES), 1)
    table = ["table", "mujoco", "--algo", "ppo", "--task", KEY[2]]
    (row,) = json_of([*table, "--json"])["cells"]
    assert row["looks"] == {"taken": 1, "seeds": [3, 5, 8, 12, 20], "levels": [look.level for look in DESIGN]}
    header, line = stdout_of([*table, "--format", "csv"]).splitlines()
    assert dict(zip(header.split(","), line.split(","), strict=False))["looks_taken"] == "1"
    assert "(one-sided, 95 %, or one minus the level of a look)" in " ".join(stdout_of(table).split())


EQUAL = [1000.0, 999.9, 1000.1]
"""Reproduced at the first look."""


@pytest.mark.parametrize("seed", [2, DESIGN[-1].seeds])
def test_a_copied_seed_within_the_design_is_refused_before_training(seed: int, record_run: Record) -> None:
    folder = ended(record_run, EQUAL[:2])
    shutil.copytree(with_losses(folder / "seed=1"), folder / f"seed={seed}")
    reseal(folder / f"seed={seed}" / "spec.json", lambda spec: spec["spec"].update(seed=seed))
    (copy,) = gather(Path("results"))[CellKey(*KEY, "")].same_numbers
    assert copy.seed == seed
    specs = [suites.spec(*KEY, seed=number) for number in range(DESIGN[-1].seeds)]
    refusal = pytest.raises(UsageError, match="1 run has the numbers of another seed, so no look counts it; move")
    with refusal if seed < DESIGN[-1].seeds else nullcontext():
        cells_of(specs, Path("results"), DESIGN)


def test_a_forged_look_holds_no_bad_seed_back(record_run: Record, tmp_path: Path) -> None:
    assert str(cell(looked(ended(record_run, EQUAL), 1).parents[3]).verdict) == "REPRODUCED"
    ended(record_run, [995.0, 996.0], start=3)
    assert str(cell(tmp_path / "results").verdict) == "REPRODUCED"
    ended(record_run, [300.0] * 5, start=5)
    assert str(cell(tmp_path / "results").verdict) == "INCONCLUSIVE (next look at 5 seeds)"


@pytest.mark.parametrize("count", [2, len(DESIGN)])
def test_look_at_lost_seeds_is_a_fault_and_not_used(
    count: int, record_run: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = looked(ended(record_run, [1000 + seed / 100 for seed in range(DESIGN[count - 1].seeds)]), count)
    assert main(["verify", str(tmp_path / "results")]) == 0
    lost = (folder / "seed=1").rename(tmp_path / "lost")
    row = cell(tmp_path / "results")
    assert row.verdict.word == "INCONCLUSIVE" and row.looks is None
    assert "looks.json counts a look at seeds that have not ended: 1" in row.note
    assert "but seed 1 has not ended; restore the seed" in stdout_of(f"verify {tmp_path / 'results'}", 2)

    def sweep(specs: Sequence[Spec], options: object) -> tuple[list[Ending], None]:
        lost.rename(folder / "seed=1")
        jobs = [Job(spec=spec, folder=folder_of(spec, tmp_path / "results")) for spec in specs]
        none = partial(Ending, status="done", reason="", outcome=None, started=False, log=None, attempts=None)
        return [none(job=job) for job in jobs], None

    monkeypatch.setattr("rlbench.cli.until_decided.sweep", sweep)
    code, content = decide()
    assert code == 0 and [row["verdict"] for row in content["decisions"]] == ["REPRODUCED"]
    assert read_looks(folder) == Looks(DESIGN, count)


def test_a_cell_that_stays_undecided_ends_at_the_last_look(record_run: Record, tmp_path: Path) -> None:
    looked(ended(record_run, [880.0, 920.0] * 10), len(DESIGN))  # at the margin
    assert str(cell(tmp_path / "results").verdict) == "INCONCLUSIVE"


def test_below_at_a_look_is_corrected_over_all_looks(record_run: Record, tmp_path: Path) -> None:
    folder = ended(record_run, [850.0, 870.0, 860.0])  # p = 0.01 at the margin of 900
    assert cell(tmp_path / "results").verdict.word == "BELOW"
    looked(folder, 1)
    assert cell(tmp_path / "results").verdict.word == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mujoco", "ppo", "Hopper-v4", "--seeds", "0-4"), "--seeds 0-4: --until-decided chooses seeds and steps"),
        (("mujoco", "ppo", "Hopper-v4", "--seeds", "0"), "--seeds 0: --until-decided chooses seeds and steps"),
        (("mujoco", "ppo", "Hopper-v4", "--steps", "100"), "--steps 100: --until-decided chooses seeds and steps"),
        (("mujoco", "ppo", "Hopper-v4", "--until", "10%"), "--until 10%: --until-decided chooses seeds and steps"),
        (("mujoco", "ppo", "Hopper-v4", "--most-seeds", "10"), "--most-seeds 10: write 5, 8, 12, 20 or 32"),
        (("mujoco", "ppo", "Hopper-v4", "--smoke"), "--smoke: --until-decided chooses seeds and steps"),
        (("mujoco", "ppo", "Hopper-v4", "--set", "algo.lr=1"), "mujoco/ppo/Hopper-v4 has other settings than its"),
        (
            ("RLBENCH_SEEDS=0-4", "mujoco", "ppo", "Hopper-v4"),
            "RLBENCH_SEEDS=0-4: --until-decided chooses the seeds; unset it",
        ),
        (("RLBENCH_STEPS=100", "mujoco", "ppo", "Hopper-v4"), "than its reference; leave out RLBENCH_STEPS, --set"),
        (("RLBENCH_ALGO__LR=1", "mujoco", "ppo", "Hopper-v4"), "than its reference; leave out RLBENCH_ALGO__LR, --set"),
        (("atari", "dqn", "Pong*", "--dry-run"), "has a single run as its reference; name its --seeds"),
        (("mujoco", "ddpg", "Humanoid-v4"), "can never be REPRODUCED, since its margin reaches the random policy"),
        (("mujoco", "ppo", "Swimmer-v4"), "can never be REPRODUCED, since its margin reaches the random policy"),
        (("goals", "ddpg+her", "FetchReach*"), "has no reference score to decide about"),
        (
            ("RLBENCH_REFERENCE=Spinning Up (VPG PyTorch)", "mujoco", "reinforce", "Hopper-v4"),
            "takes 1,000,000 steps, its reference 3,000,000, so they are not compared",
        ),
    ],
)
def test_invalid_sequential_design_is_refused_before_training(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = dict(word.split("=") for word in words if word.startswith("RLBENCH_"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert message in stderr_of(["run", *words[len(variables) :], "--until-decided"])
    assert not list(tmp_path.iterdir())


def test_a_seed_with_a_second_record_begins_no_looks(record_run: Record) -> None:
    ended(record_run, [1.0]).rename(Path("results") / "other")
    ended(record_run, [2.0])
    assert "seed 0 has a second record with other numbers" in stderr_of([*DECIDE, "--dry-run"])


@pytest.mark.parametrize("own", [[], [5.0, 6.0]], ids=["new here", "interrupted here"])
def test_a_seed_that_has_ended_in_another_folder_begins_no_looks(record_run: Record, own: list[float]) -> None:
    folder = ended(record_run, [1.0])
    stdout_of([*DECIDE, "--dry-run"])
    folder.rename(Path("results") / "other")
    if own:
        record_run(own, suite=KEY[0], algo=KEY[1], task=KEY[2], status="interrupted")
    error = stderr_of([*DECIDE, "--dry-run"])
    here = f"{folder.relative_to(Path.cwd())}/seed=0"
    assert f"seed 0 has ended in results/other/seed=0 and would be trained again in {here}" in error


@pytest.mark.parametrize("kind", ["killed at the end", "failed before", "failed with fewer steps"])
def test_a_seed_of_this_folder_is_resumed_whatever_counts_for_it(record_run: Record, kind: str) -> None:
    words = {"suite": KEY[0], "algo": KEY[1], "task": KEY[2]}
    if kind == "killed at the end":
        budget = suites.spec(*KEY).budget
        record_run([1.0] * (budget.steps // budget.epoch + 1), status=None, **words)
    elif kind == "failed before":
        record_run([1.0, 2.0], status="failed", **words)
        record_run([1.0], status=None, force=True, **words)
    else:
        record_run([1.0, 2.0], status="failed", sets=["budget.steps=300000"], **words)
    assert main([*DECIDE, "--dry-run"]) == 0


def test_an_unfinished_seed_beyond_the_design_begins_no_looks(record_run: Record) -> None:
    record_run([0.0, 0.0], suite=KEY[0], algo=KEY[1], task=KEY[2], seed=7, status="interrupted")
    error = stderr_of([*DECIDE, "--most-seeds", "5", "--dry-run"])
    assert "seed 7 has no run of the whole budget" in error and "only 5 seeds are trained; move its" in error
    stderr_of([*DECIDE, "--most-seeds", "8", "--dry-run"], 0)


def test_an_unfinished_seed_beside_a_decided_cell_is_no_matter(record_run: Record) -> None:
    looked(ended(record_run, [1.0, 2.0, 3.0]), 1)
    record_run([0.0, 0.0], suite=KEY[0], algo=KEY[1], task=KEY[2], seed=30, status="interrupted")
    assert decide()[1]["decisions"][0]["verdict"] == "BELOW"


@pytest.mark.parametrize("seeds", [2, 3])
def test_seeds_with_a_fixed_test_begin_no_looks(seeds: int, record_run: Record) -> None:
    folder = ended(record_run, SCORES[:seeds])
    error = stderr_of([*DECIDE, "--dry-run"], 2 if seeds == 3 else 0)
    record_run([0.0, 0.0], suite=KEY[0], algo=KEY[1], task=KEY[2], seed=30, status="interrupted")  # a later complaint
    assert seeds == 2 or stderr_of([*DECIDE, "--dry-run"]) == error
    shutil.rmtree(folder / "seed=30")
    assert ("has 3 ended seeds, whose fixed test has spent the 5 %" in error) == (seeds == 3)
    looked(folder, 0)  # the design came first
    stdout_of([*DECIDE, "--dry-run"])


def test_a_reference_that_the_last_look_has_little_power_against_is_named() -> None:
    expected = "20 seeds reproduce it with a probability of 35%, since the reference has 5 seeds with a std of"
    assert expected in stderr_of("run mujoco redq Ant-v4 --until-decided --dry-run", 0)


def test_a_reference_with_too_large_an_error_is_undecidable_at_a_look_too(record_run: Record, tmp_path: Path) -> None:
    for seed, score in enumerate((2100.0, 2108.0, 2116.0)):  # documented: 2,609 ± 701 over ten seeds
        folder = record_run([5.0, score], suite="mujoco", algo="ppo", task="Hopper-v4", seed=seed).parent
    looked(folder, 1)
    row = next(row for row in every_cell(["mujoco"], tmp_path / "results") if row.key[1:3] == ("ppo", "Hopper-v4"))
    assert str(row.verdict) == "INCONCLUSIVE (next look at 5 seeds)"
    assert "undecidable at any number of seeds" in row.note
    (line,) = verdict_lines([resolve("mujoco", "ppo", "Hopper-v4").spec], tmp_path / "results")
    assert "next: `rlbench run mujoco ppo Hopper-v4 --until-decided --results" in line


KILLED_AT = (
    *(("replace.torn:2", 1), ("lock.made:1", 0), ("replace.written:1", 0), ("replace.placed:1", 1)),
    *(("lock.removed:2", 1), ("replace.placed:2", 2), ("lock.removed:3", 2)),
)
"""Moments around the records of the first and the second look, and the number of looks on disk."""


@pytest.mark.parametrize(("point", "count"), slow_but(KILLED_AT, 0))
def test_command_killed_at_a_look_resumes_there(point: str, count: int, record_run: Record) -> None:
    folder = looked(ended(record_run, SCORES), 0)
    killed = run_process([*RLBENCH, *DECIDE, "--quiet"], RLBENCH_FAULT=point)
    assert killed.returncode == 137, killed.stderr
    looks = read_looks(folder)
    assert looks is not None and looks.count == count
    code, content = decide()
    (decision,) = content["decisions"]
    assert (code, decision["verdict"], decision["look"], read_looks(folder)) == (0, "REPRODUCED", 2, Looks(DESIGN, 2))
    assert sorted(path.name for path in folder.iterdir()) == [NAME, *(f"seed={seed}" for seed in range(5))]


def test_an_interrupted_look_is_not_taken_but_its_design_stands(
    record_run: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ended(record_run, SCORES[:2])  # no test yet
    monkeypatch.setattr("rlbench.cli.until_decided.sweep", lambda specs, options: ([], signal.SIGINT))
    code, content = decide()
    assert code == 130
    assert [(row["verdict"], row["look"]) for row in content["decisions"]] == [("INCONCLUSIVE", 0)]
    assert read_looks(folder) == Looks(DESIGN, 0)


@pytest.mark.parametrize(("failed", "designs"), [((), SHARED_ERROR_DESIGNS), ((0,), DESIGNS)])
def test_first_three_seeds_choose_the_levels_of_a_reference_with_an_error(
    failed: Sequence[int], designs: Mapping[int, Sequence[object]], record_run: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = "mujoco", "ppo", "Hopper-v4"
    for seed, score in enumerate((2600.0, 2500.0, 2700.0, 2650.0)):  # documented: 2,609 ± 701 over ten seeds
        status = "failed" if seed in failed else "done"
        folder = record_run([5.0, score], suite=cell[0], algo=cell[1], task=cell[2], seed=seed, status=status).parent
    looked(folder, 0)
    monkeypatch.setattr(
        "rlbench.cli.until_decided.sweep", lambda specs, _: ([], None if len(specs) == 3 else signal.SIGINT)
    )
    assert run_command(["run", *cell, "--until-decided", "--quiet", "--device", "cpu"])[0] == 130
    looks = read_looks(folder)
    assert looks is not None and (looks.design, looks.count) == (designs[20], 1)


@pytest.mark.parametrize(
    ("verdict", "look", "ending"), [("REPRODUCED", 2, ""), ("INCONCLUSIVE", 5, ""), ("INCONCLUSIVE", 0, "; the same")]
)
def test_an_undecided_cell_says_that_the_same_command_goes_on(verdict: str, look: int, ending: str) -> None:
    cell = {"suite": "toy", "algorithm": "dqn", "task": "Catch", "dataset": None, "looks": 5, "seeds": 5}
    text = decision_sentence({**cell, "verdict": verdict, "look": look})
    assert text == f"toy/dqn/Catch: {verdict} at look {look} of 5, 5 seeds" + (ending and f"{ending} command goes on")


@pytest.mark.slow
def test_a_seed_killed_in_training_resumes_within_its_look(record_run: Record, tmp_path: Path) -> None:
    cell = "toy", "reinforce", "Catch"
    words = ["run", *cell, "--quiet", "--json", "--device", "cpu"]
    assert main([*words, "--seeds", "2", "--results", str(tmp_path / "whole")]) == 0
    for seed, score in ((0, 0.99), (1, 0.98), (3, 0.97), (4, 1.0)):
        folder = record_run([-0.5, score], suite=cell[0], algo=cell[1], task=cell[2], seed=seed).parent
    record_looks(folder, Looks(DESIGNS[5], 0))
    words += ["--until-decided", "--most-seeds", "5"]
    killed = run_process([*RLBENCH, *words], RLBENCH_FAULT="append.torn:3")  # amid the third evaluation of seed 2
    assert killed.returncode == 137, killed.stderr
    assert read_looks(folder) == Looks(DESIGNS[5], 0)
    (decision,) = json_of(words)["decisions"]
    assert decision["looks"] == 2 and decision["look"] >= 1
    whole, resumed = (
        [epoch.evaluated and epoch.evaluated.returns for epoch in read_record(path / "seed=2").epochs]
        for path in (next((tmp_path / "whole").glob("*/*/*/*")), folder)
    )
    assert whole == resumed
    assert "the looks of toy/reinforce/Catch end at 5 seeds" in stderr_of([*words, "--most-seeds", "20"])
