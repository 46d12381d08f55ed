"""The output of each reading command."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from rlbench import suites
from rlbench.cli import doctor
from rlbench.cli.app import main
from rlbench.cli.status import duration
from rlbench.report.reference_table import DATA
from tests.commands import stderr_of
from tests.forging import locked

pytestmark = pytest.mark.usefixtures("empty_folder")

Capture = pytest.CaptureFixture[str]
Record = Callable[..., Path]


def printed(capsys: Capture, *line: str, code: int = 0) -> str:
    assert main(line) == code
    return capsys.readouterr().out


def test_table_atari_lists_every_documented_cell(capsys: Capture) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "table", "atari", "--format", "csv"))))
    assert len(rows) == 56
    assert {row["verdict"] for row in rows} == {"NOT RUN"}
    assert len({(row["algorithm"], row["task"]) for row in rows}) == 56


@pytest.mark.parametrize("suite", ["offline", "mujoco", "goals", "toy", "all"])
def test_every_suite_has_a_table(suite: str, capsys: Capture) -> None:
    assert json.loads(printed(capsys, "table", suite, "--json"))["cells"]


def test_table_shows_only_the_selected_cells(record_run: Record, capsys: Capture) -> None:
    record_run([1.0, 5.0])
    cells = json.loads(printed(capsys, "table", "atari", "--algo", "d*", "--task", "breakout*", "--json"))["cells"]
    assert [(c["algorithm"], c["task"], c["measured"]["score"], c["measured"]["env_id"]) for c in cells] == [
        ("dqn", "BreakoutNoFrameskip-v4", 5.0, "test/env")
    ]


def test_results_folder_can_be_chosen(record_run: Record, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    record_run([5.0])
    Path("results").rename("mine")
    assert "5.00" not in printed(capsys, "table", "atari")
    assert "5.00" in printed(capsys, "table", "atari", "--results", "mine")
    monkeypatch.setenv("RLBENCH_RESULTS", "mine")
    assert "5.00" in printed(capsys, "table", "atari")


def test_missing_results_folder_is_a_remark() -> None:
    assert "no such folder" in stderr_of(["table", "toy"], 0)


@pytest.mark.parametrize(
    ("name", "start"), [("a.md", "| Alg"), ("a.csv", "suite,"), ("a.json", "{"), ("a.html", "<!doctype"), ("a", "Alg")]
)
def test_output_format_follows_the_file_name(name: str, start: str, capsys: Capture) -> None:
    assert printed(capsys, "table", "toy", "--output", name) == ""
    assert Path(name).read_text(encoding="utf-8").startswith(start)
    assert [path.name for path in Path().iterdir()] == [name]


def test_format_option_overrides_the_file_name(capsys: Capture) -> None:
    printed(capsys, "table", "toy", "--format", "csv", "--output", "a.md")
    assert Path("a.md").read_text(encoding="utf-8").startswith("suite,")


@pytest.mark.parametrize("verb", [("table", "atari"), ("table", "toy")])
def test_a_damaged_record_is_one_line_that_names_it(verb: tuple[str, ...], record_run: Record, capsys: Capture) -> None:
    (record_run([1.0]) / "epochs.jsonl").write_text("{}\n", encoding="utf-8")
    assert main(verb) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "epochs.jsonl:1" in output.err
    assert len(output.err.splitlines()) == 1


def test_list_prints_names_that_can_be_piped(capsys: Capture) -> None:
    assert printed(capsys, "list", "suites").split() == suites.names()
    assert printed(capsys, "list", "algos", "--suite", "toy").split() == suites.algorithms("toy")
    assert printed(capsys, "list", "tasks", "--suite", "atari").split() == suites.tasks("atari")
    assert "toy\tCatch\n" in printed(capsys, "list", "tasks")


def test_list_runs_prints_folders(record_run: Record, capsys: Capture) -> None:
    folder = record_run([1.0])
    name, mark = printed(capsys, "list", "runs").rstrip("\n").split("\t")
    assert (Path(name).resolve(), mark) == (folder.resolve(), "no weights")
    (folder / "checkpoint" / "best").mkdir(parents=True)
    assert printed(capsys, "list", "runs") == f"{name}\n"
    assert printed(capsys, "list", "runs", "--suite", "toy") == ""
    assert json.loads(printed(capsys, "list", "runs", "--json"))["runs"][0]["suite"] == "atari"


def test_show_prints_every_field_with_its_source_and_the_memory(capsys: Capture) -> None:
    lines = printed(capsys, "show", "atari", "dqn", "pongnoframeskip-v4", "--set", "algo.lr=5e-4").splitlines()
    fields = dict(line.partition("#")[0].strip().split(" = ") for line in lines if " = " in line)
    sources = {line.split(" = ")[0]: line.partition("# ")[2].split("  ")[0] for line in lines if " = " in line}
    assert (fields["algo.lr"], sources["algo.lr"]) == ("0.0005", "--set")
    assert (fields["task.id"], sources["task.id"]) == ("PongNoFrameskip-v4", "argument")
    assert (fields["algo.torso"], fields["protocol.stop"], fields["algo.max_grad_norm"]) == ("nature", "20.0", "none")
    assert lines[-2].startswith("memory ≈ 1.43 GB (replay 0.71 GB, ")


def test_show_names_the_id_that_a_run_would_have(capsys: Capture) -> None:
    spec = suites.spec("toy", "dqn", "Catch")
    assert f"id {spec.id}\n" in printed(capsys, "show", "toy", "dqn", "Catch", "--seed", "7")


def test_show_as_json_has_the_same_fields(capsys: Capture) -> None:
    content = json.loads(printed(capsys, "show", "toy", "dqn", "Catch", "--smoke", "--json"))
    rows = [(row["path"], row["value"], row["source"]) for row in content["fields"]]
    assert ("smoke", True, "--smoke") in rows
    assert content["memory"]["total"] == sum(v for k, v in content["memory"].items() if k != "total")


def test_show_reads_the_environment(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLBENCH_ALGO__LR", "0.25")
    assert "algo.lr = 0.25" in printed(capsys, "show", "toy", "dqn", "Catch")
    monkeypatch.setenv("RLBENCH_ALGO__LRR", "0.25")
    assert "RLBENCH_ALGO__LRR" in stderr_of(["show", "toy", "dqn", "Catch"])


def test_status_without_runs(capsys: Capture) -> None:
    assert printed(capsys, "status") == "no runs\n"


def test_status_counts_running_and_finished_runs(record_run: Record, capsys: Capture) -> None:
    record_run([1.0, 2.0], seed=0)
    record_run([1.0, 2.0], seed=1, status=None)
    store = locked(suites.spec("atari", "dqn", "BreakoutNoFrameskip-v4", seed=1), Path("results"))
    text = printed(capsys, "status")
    runs = json.loads(printed(capsys, "status", "--json"))["runs"]
    store.release()
    assert text.splitlines()[-1] == "1 done, 1 running"
    assert "100,000 / 10,000,000" in text
    assert len(text.splitlines()) == 4, "the run that is done is counted, not listed"
    assert "1 done" in printed(capsys, "status", "--state", "done", "--suite", "atari").splitlines()[-1]
    assert len(printed(capsys, "status", "--state", "done").splitlines()) == 4
    assert printed(capsys, "status", "--suite", "toy") == "no runs\n"
    assert main(["status", "--state", "ended"]) == 2 and "unknown state" in capsys.readouterr().err
    assert [(run["state"], run["seed"]) for run in runs] == [("done", 0), ("running", 1)]


def test_run_of_another_process_is_skipped_with_its_state(record_run: Record, capsys: Capture) -> None:
    record_run([-0.6, 0.5], suite="toy", task="Catch", status=None)
    spec = suites.spec("toy", "dqn", "Catch")
    store = locked(spec, Path("results"))
    (row,) = json.loads(printed(capsys, "run", "toy", "dqn", "--task", "Catch", "--json"))["runs"]
    store.release()
    assert (row["status"], row["best"]) == ("running", 0.5)
    assert row["env_steps"] == spec.budget.epoch
    assert len(store.epochs) == 2, "nothing was added"


def test_a_damaged_run_of_another_process_is_called_damaged(record_run: Record, capsys: Capture) -> None:
    folder = record_run([-0.6, 0.5], suite="toy", task="Catch", status=None)
    store = locked(suites.spec("toy", "dqn", "Catch"), Path("results"))
    (folder / "epochs.jsonl").write_text("{\n{\n", encoding="utf-8")
    assert main(["run", "toy", "dqn", "--task", "Catch", "--json"]) == 0
    store.release()
    out, error = capsys.readouterr()
    assert "is running it, but" in error and "epochs.jsonl" in json.loads(out)["runs"][0]["reason"]


def test_status_with_a_damaged_record_lists_the_others_and_exits_2(record_run: Record, capsys: Capture) -> None:
    (record_run([1.0], seed=0) / "spec.json").write_text("{", encoding="utf-8")
    record_run([1.0], seed=1)
    assert main(["status"]) == 2
    output = capsys.readouterr()
    assert "1 damaged, 1 done" in output.out
    assert "spec.json" in output.err


def test_status_watches_until_it_is_interrupted(record_run: Record, tmp_path: Path) -> None:
    record_run([1.0], status="interrupted")
    program = (  # a suite that runs in the background ignores the signal, and so would its children
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from rlbench.cli.app import main; sys.exit(main(['status', '--watch']))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(6)]  # two looks of four lines
        process.send_signal(2)
        process.stdout.read()  # to its end: a pipe that is closed before would be another way to stop
    assert lines[0] == lines[4]
    assert process.returncode == 0  # Ctrl-C is how it is meant to end


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0.0, "0 s"),
        (89.0, "89 s"),
        (420.0, "7 min"),
        (3599.0, "1 h 0 min"),
        (12_000.0, "3 h 20 min"),
        (187_200.0, "2 d 4 h"),
    ],
)
def test_durations_are_formatted(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_doctor_has_a_line_for_everything_and_succeeds_here(capsys: Capture) -> None:
    lines = printed(capsys, "doctor").splitlines()
    names = {line.split(":")[0].split("  ")[-1].strip() for line in lines}
    assert {"python", "torch", "device", "gymnasium", "ale roms", "mujoco", "c++ compiler", "disk", "memory"} <= names
    assert all(line.split()[0] in {"ok", "optional"} for line in lines)


def test_doctor_of_a_suite_checks_only_its_requirements(capsys: Capture) -> None:
    findings = json.loads(printed(capsys, "doctor", "toy", "--json"))["findings"]
    assert not {"ale roms", "mujoco"} & {finding["what"] for finding in findings}


def test_doctor_names_the_remedy_of_what_is_missing_and_exits_2(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = doctor._imported

    def without(name: str) -> ModuleType | str:
        return "ModuleNotFoundError: No module named 'ale_py'" if name == "ale_py.roms" else usual(name)

    monkeypatch.setattr(doctor, "_imported", without)
    lines = printed(capsys, "doctor", "atari", code=2).splitlines()
    (missing,) = [line for line in lines if line.startswith("missing")]
    assert "pip install 'ale-py>=0.12'" in missing
    assert main(["doctor", "toy"]) == 0


def test_the_schema_of_run_fits_what_run_prints(capsys: Capture) -> None:
    schema = json.loads((DATA / "schema" / "run.json").read_text(encoding="utf-8"))
    line = ("run", "toy", "dqn", "--task", "Catch", "--smoke", "--steps", "200", "--quiet", "--json")
    content = json.loads(printed(capsys, *line))
    assert set(content) == set(schema["required"])
    assert content["schema_version"] == schema["properties"]["schema_version"]["const"]
    row, run_schema = content["runs"][0], schema["$defs"]["run"]
    assert set(row) == set(run_schema["required"]) == set(run_schema["properties"])
    assert row["status"] in run_schema["properties"]["status"]["enum"]
    assert row["documented"] is None
    assert json.loads(printed(capsys, "table", "toy", "--json"))["cells"][0]["verdict"] == "NOT RUN"
