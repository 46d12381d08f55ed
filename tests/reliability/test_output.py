"""R14, R15: stdout has complete results alone, ``--json`` keeps its schema, and queries write nothing.

Terminals, narrow encodings and readers that leave are in ``tests/cli/test_app.py``, widths in
``tests/cli/test_narrow.py``.
"""

import copy
import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from rlbench.cli.app import main
from rlbench.cli.output import terminal_height, terminal_width
from tests.commands import RLBENCH, run_command, run_process
from tests.conftest import Capture, Patch
from tests.laws.layers import HEAVY
from tests.laws.source import ROOT
from tests.reliability.odd import places
from tests.schemas import SCHEMAS, complaints, schema_of

CORPUS = Path(__file__).parent / "corpus" / "schema-1"
DATA_FOLDERS = ("RLBENCH_DATASETS", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH")

PRINTED: dict[str, list[str]] = {
    "list": ["list", "runs"],
    "show": ["show", "mujoco", "ppo", "Hopper-v4"],
    "documented": ["show", "offline", "cql", "hopper-medium-v2", "--documented"],
    "status": ["status"],
    "table": ["table", "all"],
    "check": ["check", "toy"],
    "baseline": ["baseline", "show", "baseline.json"],
    "plan": ["plan", "all"],
    "compare": ["compare", "results", "results", "--suite", "toy"],
    "data-list": ["data", "list"],
    "data-show": ["data", "show", "rlb-corpus.hdf5"],
    "data-show-play": ["data", "show", "rlb-corpus.frames"],
    "data-verify": ["data", "verify", "rlb-corpus.frames", "none.hdf5"],
    "dry-run": ["run", "toy", "dqn", "--task", "Catch", "--seeds", "0-4", "--dry-run"],
    "verify": ["verify", "."],
    "doctor": ["doctor", "toy"],
    "run": ["run", "toy", "dqn", "--task", "Catch", "--seeds", "0-1", "--quiet"],  # both have ended
    "export": ["export", "tensorboard", "toy", "--output", "board"],
    "export-file": ["export", "csv", "--output", "curves.csv"],
    "eval-policy": [
        *("eval", "--policy", str(ROOT / "tests/datasets/sb3/ppo-cartpole.zip"), "--format", "sb3"),
        *("toy", "CartPole-v1", "--episodes", "2"),
    ],
    "import": ["import", "theirs.csv", "--as", "mujoco/sac", "--results", "theirs"],
}


@pytest.fixture(autouse=True)
def in_a_copy_of_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(CORPUS, tmp_path / "corpus")
    monkeypatch.chdir(tmp_path / "corpus")
    Path("theirs.csv").write_text("task,seed,step,return\nHopper-v4,0,5,1.5\n", encoding="utf-8")
    for variable in DATA_FOLDERS:
        monkeypatch.setenv(variable, str(tmp_path / "corpus"))


@pytest.mark.parametrize("name", PRINTED)
def test_every_document_keeps_its_published_schema(name: str) -> None:
    schema, document = schema_of(name), json.loads(run_command([*PRINTED[name], "--json"])[1])
    assert list(complaints(schema, document, schema)) == []
    assert isinstance(document["schema_version"], int)
    for path in [*places(document)][:40]:  # and the schema is a real one: what is taken out or put in is missed
        if isinstance(path[-1], str) and "metadata" not in path:
            less = copy.deepcopy(document)
            branch: object = less
            for key in path[:-1]:
                branch = branch[key]
            branch["stranger"] = branch.pop(path[-1])
            assert any(True for _ in complaints(schema, less, schema)), path


def test_every_published_schema_is_tested() -> None:
    assert set(PRINTED) <= set(SCHEMAS)
    assert {name for name in SCHEMAS if name not in PRINTED} <= {"eval", "replay", "parity", "data-generate"}


def test_schema_validator_reports_violations() -> None:
    fields = {"a": {"type": ["integer", "null"], "minimum": 0}, "c": {"const": 1}}
    schema = {"type": "object", "required": ["a"], "properties": fields, "additionalProperties": False}
    wrong: list[object] = [{}, {"a": "x"}, {"a": True}, {"a": -1}, {"a": 1, "b": 1}, {"a": 1, "c": 2}, []]
    assert all(list(complaints(schema, value, schema)) for value in wrong)
    assert not list(complaints(schema, {"a": 1}, schema)) and not list(complaints(schema, {"a": None}, schema))


def test_a_slow_reader_of_a_small_pipe_gets_every_byte() -> None:
    """More than a pipe holds, to a reader that looks away: nothing is lost."""
    words = [*RLBENCH, "table", "all", "--format", "json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        got = process.stdout.read(100)
        time.sleep(1)
        while part := process.stdout.read(9_000):
            got += part
    assert process.returncode == 0 and len(got) > 2**16
    assert json.loads(got) == json.loads(run_command(words[3:])[1])


@pytest.mark.parametrize("words", [["list", "suites"], ["--version"]], ids=" ".join)
def test_what_libraries_print_while_they_load_and_at_the_exit_goes_to_stderr(words: list[str]) -> None:
    """Also what they write to Python's first stdout and to file descriptor 1."""
    printing = "import atexit, os, sys; sys.argv[0] = 'rlbench'; from rlbench.cli import app\n"
    printing += "before = app._main\ndef loading(words):\n    print('early', file=sys.__stdout__, flush=True)\n"
    printing += (
        "    atexit.register(print, 'late'); atexit.register(os.write, 1, b'last\\n')\n    return before(words)\n"
    )
    printing += "app._main = loading\nraise SystemExit(app.main())"
    done = subprocess.run(
        [sys.executable, "-c", printing, *words], capture_output=True, check=True, timeout=60, text=True
    )
    assert done.stdout == run_command(words)[1]
    assert sorted(done.stderr.split()) == ["early", "last", "late"]


@pytest.mark.parametrize(
    "words", [["table", "atari"], ["show", "toy", "dqn", "Catch"], ["status", "--json"]], ids=" ".join
)
def test_output_is_equal_in_a_minimal_environment(words: list[str]) -> None:
    """No locale, no terminal, no width: the same characters, spelled in ASCII."""
    poor = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    poor |= {"TERM": "dumb", "COLUMNS": "20", "NO_COLOR": "1"}
    done = subprocess.run([*RLBENCH, *words], env=os.environ | poor, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode("ascii") == run_command(words)[1].encode("ascii", "rlbench").decode()


@pytest.mark.parametrize(("size", "columns", "width"), [(0, "", None), (63, "", 63), (63, "71", 71), (63, "0", None)])
def test_the_width_of_a_terminal_is_that_it_states(
    size: int, columns: str, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 0, size, 0, 0))
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.delenv("LINES", raising=False)
    with os.fdopen(ours), os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert terminal_width() == width and terminal_height() is None
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 7, size, 0, 0))
        assert terminal_height() == 7


QUERIES = [
    ["--help"], ["--version"], ["run", "--help"], ["list", "suites"], ["list", "tasks"], ["list", "runs"],
    ["show", "atari", "dqn", "PongNoFrameskip-v4"], ["show", "mujoco", "ppo", "Hopper-v4", "--documented"],
    ["table", "all"], ["table", "toy", "--json"], ["status"], ["plan", "toy"], ["check", "mujoco"], ["data", "list"],
    ["list", "algos"], ["show", "toy", "dqn", "Catch", "--json"], ["verify", str(ROOT / "results" / "toy")],
]  # fmt: skip

ALONE = """
import json, os, sys
sys.modules.update(dict.fromkeys({missing!r}))
seen, written = [], os.O_WRONLY | os.O_RDWR | os.O_CREAT
def watch(event, args):
    if event.startswith("socket."):
        seen.append(f"network: {{event}} {{args}}")
    elif event == "open" and type(args[0]) is not int and type(args[2]) is int and args[2] & written:
        seen.append(f"written: {{args[0]}}")
    elif event in ("os.mkdir", "os.remove", "os.rename", "subprocess.Popen"):
        seen.append(f"{{event}} {{args}}")
from rlbench.cli.app import main
sys.addaudithook(watch)
for words in {queries!r}:
    code = main(words)
    print("@", json.dumps([words, code, seen]), file=sys.stderr, flush=True)
    seen.clear()
"""


def test_queries_need_no_torch_emulator_network_or_home_and_write_nothing(monkeypatch: Patch) -> None:
    code = ALONE.format(missing=sorted(HEAVY), queries=QUERIES)
    poor = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR"), "/proc/nowhere")
    for name in DATA_FOLDERS:
        monkeypatch.delenv(name)
    done = run_process([sys.executable, "-c", code], PYTHONDONTWRITEBYTECODE="1", **poor)
    rows = [json.loads(line[2:]) for line in done.stderr.splitlines() if line.startswith("@ ")]
    assert [row[0] for row in rows] == QUERIES, done.stderr
    assert [row for row in rows if row[1] != 0 or row[2]] == []


@pytest.mark.parametrize("closed", ["", "2>&-"])
def test_what_libraries_print_goes_to_stderr(closed: str) -> None:
    """A write to the file descriptor of stdout, and one of a child process, while a command runs."""
    code = (
        "import os; from rlbench.cli import app, output\n"
        "app.print_error = lambda _: (os.write(1, b'library '), os.system('echo child'), output.print_text('result'))\n"
        "raise SystemExit(app.main(['nonsense']))"
    )
    words = ["bash", "-c", f'"$0" -P -c "$1" {closed}', sys.executable, code]
    done = run_process(words)
    assert (done.returncode, done.stdout) == (2, "result\n")
    assert done.stderr == ("" if closed else "library child\n")


def test_what_a_thread_prints_while_a_verb_runs_goes_to_stderr(tmp_path: Path, monkeypatch: Patch) -> None:
    def status_of_a_plugin(*words: object) -> list[object]:
        thread = threading.Thread(target=print, args=("plug-in",))
        thread.start()
        thread.join()
        return []

    monkeypatch.setattr("rlbench.cli.status._statuses", status_of_a_plugin)
    code, out, error = run_command(["status", "--json", "--results", str(tmp_path)])
    assert (code, json.loads(out)["runs"], error) == (0, [], "plug-in\n")


def test_verbs_in_threads_of_a_program_print_to_its_stdout(capsys: Capture, monkeypatch: Patch) -> None:
    barrier = threading.Barrier(5)  # all are within their verb at once
    monkeypatch.setattr("rlbench.cli.list._names", lambda *_: barrier.wait(30) >= 0 and [("toy", "CartPole-v1")])
    threads = [threading.Thread(target=main, args=(["list", "tasks", "--suite", "toy"],)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out, error = capsys.readouterr()
    assert (out.count("CartPole-v1\n"), error) == (5, "")


def test_results_go_to_stdout_and_everything_else_to_stderr() -> None:
    done = run_process([*RLBENCH, *["run", "toy", "dqn", "--task", "Catch", "--seeds", "0-1", "--results", "results"]])
    assert done.returncode == 5  # seed 1 failed, long ago
    first, *rest = done.stdout.splitlines()
    assert first.startswith("toy/dqn/Catch seed 1: failed") and rest[0] == "1 run done already"
    assert rest[1].startswith("toy/dqn/Catch: documented 1, measured ")
    assert len(done.stderr.splitlines()) == 2 and "already" in done.stderr
