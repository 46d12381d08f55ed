"""The output of each reading command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.cli.status import duration
from tests.commands import HEARING, json_of, line_of_refusal, run_command, stderr_of, stdout_of
from tests.conftest import Patch, RecordRun
from tests.forging import locked, reseal
from tests.reliability.test_many_processes import no_flock


def test_table_shows_only_the_selected_cells(record_run: RecordRun) -> None:
    record_run([1.0, 5.0])
    cells = json_of("table atari --algo d* --task breakout* --json")["cells"]
    assert [(c["algorithm"], c["task"], c["measured"]["score"], c["measured"]["env_id"]) for c in cells] == [
        ("dqn", "BreakoutNoFrameskip-v4", 5.0, "test/env")
    ]


def test_results_folder_can_be_chosen(record_run: RecordRun, monkeypatch: pytest.MonkeyPatch) -> None:
    record_run([5.0])
    Path("results").rename("mine")
    assert "5.00" not in stdout_of("table atari")
    assert "5.00" in stdout_of("table atari --results mine")
    monkeypatch.setenv("RLBENCH_RESULTS", "mine")
    assert "5.00" in stdout_of("table atari")


def test_missing_results_folder_is_a_remark() -> None:
    assert "no such folder" in stderr_of("table toy", 0)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("export csv toy --output a.csv --results empty", "no curve to write to a.csv"),
        ("export csv toy --output a.csv --results resluts", "resluts: no such folder; did you mean 'results'?"),
        ("export npz toy --output a.npz --results empty", "no matrix to write to a.npz"),
        ("export tensorboard --output board --results resluts", "resluts: no such folder"),
        ("report toy --output a.html --results resluts", "resluts: no such folder"),
    ],
)
def test_nothing_is_written_without_a_record(words: str, reason: str, record_run: RecordRun) -> None:
    record_run([0.5], suite="toy", task="Catch")
    Path("empty").mkdir()
    Path("a.csv").write_text("good")
    assert reason in stderr_of(words)
    assert Path("a.csv").read_text() == "good" and sorted(map(str, Path().iterdir())) == ["a.csv", "empty", "results"]


@pytest.mark.parametrize(
    ("name", "start"), [("a.md", "| Alg"), ("a.csv", "suite,"), ("a.json", "{"), ("a.html", "<!doctype"), ("a", "Alg")]
)
def test_output_format_follows_the_file_name(name: str, start: str) -> None:
    assert stdout_of(f"table toy --output {name}") == ""
    assert Path(name).read_text(encoding="utf-8").startswith(start)
    assert [path.name for path in Path().iterdir()] == [name]


def test_format_option_overrides_the_file_name() -> None:
    stdout_of("table toy --format csv --output a.md")
    assert Path("a.md").read_text(encoding="utf-8").startswith("suite,")


@pytest.mark.parametrize("suite", ["atari", "toy"])
def test_a_damaged_record_is_one_line_that_names_it(suite: str, record_run: RecordRun) -> None:
    (record_run([1.0]) / "epochs.jsonl").write_text("{}\n", encoding="utf-8")
    assert "epochs.jsonl:1" in line_of_refusal(f"table {suite}")


def test_list_prints_names_that_can_be_piped() -> None:
    assert stdout_of("list suites").split() == suites.names()
    assert stdout_of("list algos --suite toy").split() == suites.algorithms("toy")
    assert stdout_of("list tasks --suite atari").split() == suites.tasks("atari")
    assert "toy\tCatch\n" in stdout_of("list tasks")


def test_list_runs_prints_folders(record_run: RecordRun) -> None:
    folder = record_run([1.0])
    name, mark = stdout_of("list runs").rstrip("\n").split("\t")
    assert (Path(name).resolve(), mark) == (folder.resolve(), "no weights")
    (folder / "checkpoint" / "best").mkdir(parents=True)
    assert stdout_of("list runs") == f"{name}\n"
    assert stdout_of("list runs --suite toy") == ""
    assert json_of("list runs --json")["runs"][0]["suite"] == "atari"


@pytest.mark.parametrize("place", ["results/seed=3", "results/seed=3/atari", "results/seed=3/atari/{}", "link", "."])
def test_a_suite_is_chosen_wherever_the_results_begin(
    place: str, record_run: RecordRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = record_run([1.0])
    Path("machine").mkdir()
    Path("results/atari").rename("machine/atari")
    Path("machine").rename("results/seed=3")  # as a job array names them
    own = Path("results", "seed=3", folder.relative_to(Path("results").resolve()))
    Path("link").symlink_to(own)
    if place == ".":
        monkeypatch.chdir(own)
    where = place.format(own.relative_to("results/seed=3/atari"))
    assert stdout_of(f"list runs --suite atari --results {where}")
    output = folder.parents[4] / "board"
    assert f"{output}: 1 run" in stdout_of(f"export tensorboard atari --results {where} --output {output}")
    assert json_of(f"status --results {where} --json")["runs"]


def test_show_prints_every_field_with_its_source_and_the_memory() -> None:
    lines = stdout_of("show atari dqn pongnoframeskip-v4 --set algo.lr=5e-4").splitlines()
    fields = dict(line.partition("#")[0].strip().split(" = ") for line in lines if " = " in line)
    sources = {line.split(" = ")[0]: line.partition("# ")[2].split("  ")[0] for line in lines if " = " in line}
    assert (fields["algo.lr"], sources["algo.lr"]) == ("0.0005", "--set")
    assert (fields["task.id"], sources["task.id"]) == ("PongNoFrameskip-v4", "argument")
    assert (fields["algo.torso"], fields["protocol.stop"], fields["algo.max_grad_norm"]) == ("nature", "20.0", "none")
    assert lines[-2].startswith("memory ≈ 1.43 GB (replay 0.71 GB, ")


def test_show_names_the_id_that_a_run_would_have() -> None:
    spec = suites.spec("toy", "dqn", "Catch")
    assert f"id {spec.id}\n" in stdout_of("show toy dqn Catch --seed 7")


def test_show_as_json_has_the_same_fields() -> None:
    content = json_of("show toy dqn Catch --smoke --json")
    rows = [(row["path"], row["value"], row["source"]) for row in content["fields"]]
    assert ("smoke", True, "--smoke") in rows
    assert content["memory"]["total"] == sum(v for k, v in content["memory"].items() if k != "total")


def test_show_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLBENCH_ALGO__LR", "0.25")
    assert "algo.lr = 0.25" in stdout_of("show toy dqn Catch")
    monkeypatch.setenv("RLBENCH_ALGO__LRR", "0.25")
    assert "RLBENCH_ALGO__LRR" in stderr_of("show toy dqn Catch")


def test_status_without_runs() -> None:
    assert stdout_of("status") == "no runs\n"


def test_status_counts_running_and_finished_runs(record_run: RecordRun) -> None:
    record_run([1.0, 2.0], seed=0)
    record_run([1.0, 2.0], seed=1, status=None)
    store = locked(suites.spec("atari", "dqn", "BreakoutNoFrameskip-v4", seed=1), Path("results"))
    text = stdout_of("status")
    runs = json_of("status --json")["runs"]
    store.release()
    assert text.splitlines()[-1] == "1 done, 1 running"
    assert "100,000 / 10,000,000" in text
    assert len(text.splitlines()) == 4, "the run that is done is counted, not listed"
    assert "1 done" in stdout_of("status --state done --suite atari").splitlines()[-1]
    assert len(stdout_of("status --state done").splitlines()) == 4
    assert stdout_of("status --suite toy") == "no runs\n"
    assert "unknown state" in stderr_of("status --state ended")
    assert [(run["state"], run["seed"]) for run in runs] == [("done", 0), ("running", 1)]
    Path("results/machine").mkdir()
    Path("results/atari").rename("results/machine/atari")
    assert [run["seed"] for run in json_of("status --suite atari --json")["runs"]] == [0, 1]


def test_the_reason_of_a_failed_record_is_one_line(record_run: RecordRun) -> None:
    folder = record_run([1.0], suite="toy", task="Catch", status="failed")
    reseal(folder / "outcome.json", lambda content: content.update(reason="a\nb"))
    assert "failed (a b)" in run_command(["run", "toy", "dqn", "Catch"])[1].splitlines()[0]


def test_run_of_another_process_is_skipped_with_its_state(record_run: RecordRun) -> None:
    record_run([-0.6, 0.5], suite="toy", task="Catch", status=None)
    spec = suites.spec("toy", "dqn", "Catch")
    store = locked(spec, Path("results"))
    (row,) = json_of("run toy dqn --task Catch --json")["runs"]
    store.release()
    assert (row["status"], row["best"]) == ("running", 0.5)
    assert row["env_steps"] == spec.budget.epoch
    assert len(store.epochs) == 2, "nothing was added"


@pytest.mark.filterwarnings("ignore:flock not supported")
def test_lock_of_another_machine_is_named_on_a_disk_without_locks(record_run: RecordRun, monkeypatch: Patch) -> None:
    folder = record_run([-0.6, 0.5], suite="toy", task="Catch", status=None)
    monkeypatch.setattr("fcntl.flock", no_flock)
    (folder / ".lock").write_text("1\nelsewhere\n", encoding="utf-8")
    (row,) = json_of("run toy dqn --task Catch --json")["runs"]
    assert row["status"] == "running" and "(if none is, delete " in row["reason"]


def test_a_damaged_run_of_another_process_is_called_damaged(record_run: RecordRun) -> None:
    folder = record_run([-0.6, 0.5], suite="toy", task="Catch", status=None)
    store = locked(suites.spec("toy", "dqn", "Catch"), Path("results"))
    (folder / "epochs.jsonl").write_text("{\n{\n", encoding="utf-8")
    code, out, error = run_command("run toy dqn --task Catch --json")
    store.release()
    assert code == 0 and "is running it, but" in error and "epochs.jsonl" in json.loads(out)["runs"][0]["reason"]


def test_status_with_a_damaged_record_lists_the_others_and_exits_2(record_run: RecordRun) -> None:
    (record_run([1.0], seed=0) / "spec.json").write_text("{", encoding="utf-8")
    record_run([1.0], seed=1)
    code, out, error = run_command("status")
    assert code == 2 and "1 damaged, 1 done" in out and "spec.json" in error


def test_status_watches_until_it_is_interrupted(record_run: RecordRun, tmp_path: Path) -> None:
    record_run([1.0], status="interrupted")
    watch = [sys.executable, "-c", HEARING, "status", "--watch"]
    process = subprocess.Popen(watch, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    with process:
        lines = [process.stdout.readline() for _ in range(6)]  # two looks of four lines
        process.send_signal(2)
        process.stdout.read()  # to its end: a pipe that is closed before would be another way to stop
    assert lines[0] == lines[4]
    assert process.returncode == 0  # Ctrl-C is how it is meant to end


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((None, ""), (0.0, "0 s"), (89.0, "89 s"), (420.0, "7 min"), (3599.0, "1 h 0 min")),
        *((12_000.0, "3 h 20 min"), (187_200.0, "2 d 4 h")),
    ],
)
def test_durations_are_formatted(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
