"""The lines after training: the verdict of each cell, and the next command."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.cli import run_output
from rlbench.cli.run_output import ending_row, summary, verdict_lines
from rlbench.report.remaining_work import Throughput
from rlbench.sweep.events import Ending, Status
from rlbench.sweep.plan import Job
from tests.cli.test_progress_display import interrupted_at
from tests.commands import run_command, stderr_of, stdout_of
from tests.conftest import Patch, RecordRun, RecordSeeds

CATCH = {"suite": "toy", "task": "Catch"}


def lines(results: str = "results", *, suite: str = "toy", algorithm: str = "dqn", task: str = "Catch") -> list[str]:
    return verdict_lines([suites.spec(suite, algorithm, task)], Path(results))


def test_next_step_of_an_undecided_cell_names_the_seeds_to_add(record_run: RecordRun) -> None:
    record_run([0.0, 0.75], seed=4, **CATCH)
    (line,) = lines()
    assert line == (
        "toy/dqn/Catch: documented 1, measured 0.75 over 1 seed: INCONCLUSIVE (≈ 2 more seeds); "
        "next: `rlbench run toy dqn Catch --seeds 5-6 --results results`"
    )
    record_run([0.0, 0.75], seed=5, **CATCH)
    assert lines()[0].endswith("next: `rlbench run toy dqn Catch --seeds 6 --results results`")


def test_next_step_of_a_decided_cell_is_its_table(record_seeds: RecordSeeds) -> None:
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH)
    Path("results").rename("runs")
    (line,) = lines("runs")
    assert line.endswith("3 seeds: REPRODUCED; next: `rlbench table toy --algo dqn --task Catch`")


@pytest.mark.parametrize(
    ("run", "text"),
    [
        ({"status": "interrupted"}, ": PARTIAL"),
        ({"sets": ["algo.critic_lr=0.5"]}, "NOT RUN (1 run with critic_lr=0.5)"),
    ],
)
def test_next_step_of_a_partial_cell_gives_the_reason(run: dict[str, object], text: str, record_run: RecordRun) -> None:
    record_run([3_000.0] * 2, suite="mujoco", algo="sac", task="HalfCheetah-v4", **run)
    assert text in lines(suite="mujoco", algorithm="sac", task="HalfCheetah-v4")[0]


def test_damaged_record_only_suppresses_the_verdict_lines(record_run: RecordRun) -> None:
    (record_run([1.0], **CATCH) / "spec.json").write_text("{", encoding="utf-8")
    assert lines() == []


def test_summary_names_the_trained_runs_and_counts_the_finished_ones(record_seeds: RecordSeeds) -> None:
    record_seeds(*[[0.0, 1.0]] * 2, **CATCH)
    count, verdict = stdout_of("run toy dqn Catch --seeds 0-1 --results results").splitlines()
    assert count == "2 runs done already" and verdict.startswith("toy/dqn/Catch: documented 1, measured 1.00 over 2")
    alone, _ = stdout_of("run toy dqn Catch --results results").splitlines()
    assert alone.startswith("toy/dqn/Catch seed 0: done at ")


def test_a_dry_run_refuses_the_record_that_a_run_refuses(record_run: RecordRun) -> None:
    (record_run([1.0], **CATCH, status="interrupted") / "spec.json").unlink()
    words = "run toy dqn Catch --results results"
    assert "spec.json: missing" in stderr_of(f"{words} --dry-run") and "spec.json: missing" in stderr_of(words)


def test_dry_run_prints_one_line_per_cell_and_a_total(record_seeds: RecordSeeds) -> None:
    record_seeds(*[[0.0, 1.0]] * 2, **CATCH)
    words = ["run", "toy", "dqn", "Catch", "--seeds", "0-4", "--dry-run", "--results", "results"]
    done, new, memory, total = stdout_of(words).splitlines()
    assert done.startswith("toy/dqn/Catch seeds 0-1: done, ")
    assert (new, memory) == ("toy/dqn/Catch seeds 2-4: new, 24,000 steps", "memory of a run: at most 0.61 GB")
    assert total.startswith("2 of 5 runs have ended or paused; training dqn on Catch, 3 runs: 72,000 steps")
    assert stdout_of([*words, "--shard", "6/6"]) == "no run in this shard\n"
    assert stdout_of([*words, "--force"]).startswith("toy/dqn/Catch seeds 0-4: new, 24,000 steps\n")
    assert "Catch seeds 2-4: new, 8,000 steps" in stdout_of([*words, "--until", "25%"])
    assert "--until -5: not a number of steps" in stderr_of([*words, "--until", "-5"])


def test_dry_run_counts_what_is_left_to_train(record_run: RecordRun) -> None:
    record_run([0.0, 0.5], **CATCH, seed=0, status="failed")
    record_run([0.0, 0.5, 0.5], **CATCH, seed=1, status="interrupted")  # at 8,000 steps
    words = ["run", "toy", "dqn", "Catch", "--seeds", "0-2", "--dry-run", "--results", "results"]
    failed, begun, new, _, total = stdout_of([*words, "--until", "10000"]).splitlines()
    assert failed.startswith("toy/dqn/Catch seed 0: failed, 4,000 of 12,000 steps")
    assert begun.startswith("toy/dqn/Catch seed 1: interrupted, 8,000 of 12,000 steps")
    assert new.startswith("toy/dqn/Catch seed 2: new, 12,000 steps")
    assert total.startswith("1 of 3 runs have ended or paused; training dqn on Catch, 2 runs: 16,000 steps")
    _, paused, *_, total = stdout_of([*words, "--until", "4000"]).splitlines()
    assert paused.startswith("toy/dqn/Catch seed 1: interrupted, 8,000 of 8,000 steps")
    assert total.startswith("2 of 3 runs have ended or paused; training dqn on Catch, seed 2: 4,000 steps")


def test_an_epoch_that_ends_past_its_multiple_pauses_a_run(tmp_path: Path) -> None:
    """Eight environments end an epoch of 500 steps at 504."""
    words = ["run", "toy", "dqn", "Catch", "--steps", "1000", "--set", "budget.epoch=500", "--until", "502"]
    line = [*words, "--results", str(tmp_path), "--device", "cpu"]
    pause = "paused at 504 steps by --until; the same command without it goes on"
    assert pause in run_command(line)[2]
    (folder,) = tmp_path.rglob("seed=0")
    (folder / "crash.txt").touch()  # of a process that was killed after the outcome
    out, error = run_command(line)[1:]
    assert pause in error and "training dqn" not in error and "died" not in error
    assert not {"crash.txt", ".lock"} & {path.name for path in folder.iterdir()}
    assert "interrupted (--until 502 steps) at 504 steps" in out
    state, *_ = stdout_of([*line, "--dry-run"]).splitlines()
    assert state == "toy/dqn/Catch seed 0: interrupted, 504 of 504 steps"


def test_the_announced_time_reads_the_records_of_each_algorithm(record_run: RecordRun, monkeypatch: Patch) -> None:
    monkeypatch.setattr(run_output, "checkout_records", lambda: None)
    monkeypatch.setattr(
        run_output, "throughput", lambda key, near, *_, **__: Throughput(1.0, "cell", True) if key in near else None
    )
    missing = [(suites.spec("toy", algorithm, "Catch"), 1_000) for algorithm in ("dqn", "ppo")]
    record_run([0.0, 0.5], **CATCH, algo="dqn")
    assert "about" not in run_output.announcement(missing, Path("results"))
    record_run([0.0, 0.5], **CATCH, algo="ppo")
    assert "2 algorithms on Catch, 2 runs: at most 2,000 steps, about" in run_output.announcement(
        missing, Path("results")
    )


def test_a_damaged_record_leaves_the_announcement_of_the_other_runs(
    record_run: RecordRun, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record_run([0.0, 0.5], **CATCH, seed=0, status="interrupted")
    (folder / "epochs.jsonl").write_text("{}\n{}\n")
    specs = [suites.spec("toy", "dqn", "Catch", seed=seed) for seed in (0, 1)]
    jobs = [Job(spec=spec, folder=folder.with_name(f"seed={spec.seed}"), threads=1, memory=1) for spec in specs]
    run_output.announce(jobs, Path("results"), quiet=False, force=False)
    budget = specs[0].budget.steps
    assert f"training dqn on Catch, 2 runs: {2 * budget:,} steps" in capsys.readouterr().err


def test_summary_after_a_signal_names_the_trained_runs() -> None:
    specs = [suites.spec("toy", "dqn", "Catch", seed=seed) for seed in range(5)]
    states: list[tuple[Status, bool]] = [
        ("done", False), ("done", False), ("done", True), ("interrupted", True), ("interrupted", False)
    ]  # fmt: skip
    jobs = [Job(spec=spec, folder=Path(f"runs/{spec.seed}"), threads=1, memory=1) for spec in specs]
    rest = {"reason": "Ctrl-C", "outcome": None, "log": None, "attempts": None}
    endings = [
        Ending(job=job, status=status, started=started, **rest)
        for job, (status, started) in zip(jobs, states, strict=True)
    ]
    paused = replace(jobs[4], spec=specs[4].model_copy(update={"seed": 5}), until=2_000)
    rest["outcome"] = interrupted_at(4_000)
    endings.append(Ending(job=paused, status="interrupted", started=False, is_paused=True, **rest))
    lines = summary(endings, [ending_row(ending) for ending in endings])
    assert [line.partition(" at ")[0] for line in lines] == [
        "toy/dqn/Catch seed 2: done",
        "toy/dqn/Catch seed 3: interrupted (Ctrl-C)",
        "2 runs done already",
        "1 run not reached; the same command goes on",
        "1 run paused already by --until",
    ]
