"""R18: a signal at any time saves the state and ends the process and its children."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from rlbench.cli.app import main
from rlbench.datasets import recording_writer, shard_conversion
from rlbench.records.store import read_record
from rlbench.signals import cause
from tests.commands import HEARING
from tests.reliability.broken import words
from tests.reliability.run_one import only_run
from tests.serving import Server, serving

HURRY = 30.0  # seconds from a signal to the end


@contextmanager
def started(*arguments: str, program: str = HEARING, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive its test."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(happened: Callable[[], bool]) -> None:
    """Until something has happened, or a minute."""
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def heard(process: subprocess.Popen[str], text: str) -> None:
    assert any(text in line for line in process.stderr), f"never printed: {text}"


def remaining(process: subprocess.Popen[str], *signals: int) -> tuple[int, str, str]:
    """Exit code and the remaining output after these signals, within the promised time."""
    for number in signals:
        process.send_signal(number)
        time.sleep(0.1)
    out, err = process.communicate(timeout=HURRY)
    return process.returncode, out, err


def long(results: Path, *more: str) -> list[str]:
    return [word.replace("budget.steps=400", "budget.steps=40000") for word in words(results, *more)]


SIGNALS = [signal.SIGTERM, *(pytest.param(n, marks=pytest.mark.soak) for n in (signal.SIGINT, signal.SIGHUP))]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_training_saves_the_run_at_that_very_step(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(*long(tmp_path, "--json")) as process:
        heard(process, "epoch 2")
        code, out, err = remaining(process, number)
    assert code == 128 + number
    assert "the same command resumes" in err
    (row,) = json.loads(out)["runs"]
    assert (row["status"], row["reason"]) == ("interrupted", cause(number))
    record = read_record(Path(row["folder"]))
    assert record.outcome.steps >= 200
    assert (record.folder / "checkpoint" / "resume").is_dir()
    assert not (record.folder / "crash.txt").exists()
    assert main(long(tmp_path, "--until", str(record.outcome.steps + 1))) == 0
    assert f"resumes at {record.outcome.steps:,}/" in capsys.readouterr().err


@pytest.mark.slow
def test_signal_of_another_program_does_not_fail_a_run(tmp_path: Path) -> None:
    """SIGUSR2 is what wakes a hanging call; schedulers send it too."""
    with started(*long(tmp_path, "--json")) as process:
        heard(process, "epoch 2")
        process.send_signal(signal.SIGUSR2)
        heard(process, "epoch 4")
        code, out, _ = remaining(process, signal.SIGTERM)
    assert code == 143
    assert json.loads(out)["runs"][0]["status"] == "interrupted"


@pytest.mark.soak
def test_ignored_sighup_does_not_stop_a_run(tmp_path: Path) -> None:
    """As ``nohup`` does."""
    nohup = HEARING.replace(
        "import signal, sys; ", "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    )
    with started(*long(tmp_path), program=nohup) as process:
        heard(process, "epoch 1")
        process.send_signal(signal.SIGHUP)
        heard(process, "epoch 4")


def test_a_second_ctrl_c_while_the_process_ends_prints_no_traceback() -> None:
    program = """
        import os, signal, sys, threading
        from rlbench.cli.app import main
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread.start = lambda thread: os.kill(os.getpid(), signal.SIGINT)
        sys.exit(main())
        """
    words = [sys.executable, "-P", "-c", dedent(program), "list", "suites"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


SLOW = """
import signal, sys, time
import {module} as module
signal.signal(signal.SIGINT, signal.default_int_handler)
real = module.{name}
def slow(*arguments):
    result = {done_first} and real(*arguments)
    print("{word}", file=sys.stderr, flush=True)
    time.sleep({seconds})
    return result if {done_first} else real(*arguments)
module.{name} = slow
from rlbench.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


def slow(word: str, module: str, name: str, seconds: float, *, done_first: bool = False) -> str:
    """The command line with a function that says ``word`` and sleeps, before or after its work."""
    return SLOW.format(word=word, module=module, name=name, seconds=seconds, done_first=done_first)


EVALUATING = slow("evaluating", "rlbench.collectors.episode_stats", "EpisodeQuota.add", 0.05)
SAVING, HANGING_SAVE = (slow("saving", "rlbench.checkpoint", "_write", wait, done_first=True) for wait in (1, 600))
SETTING_UP = slow("setting up", "rlbench.run", "build", 600)
GENERATING = slow("writing", "rlbench.disk", "replace", 600, done_first=True)


@pytest.mark.soak
@pytest.mark.parametrize(("program", "message"), [(EVALUATING, "evaluating"), (SAVING, "saving")])
def test_run_signalled_in_evaluation_or_saving_resumes_exactly(program: str, message: str, tmp_path: Path) -> None:
    with started(*words(tmp_path / "stopped"), program=program) as process:
        heard(process, "epoch 0")
        heard(process, message)
        code, _, err = remaining(process, signal.SIGTERM)
    assert code == 143, err
    assert "the same command resumes" in err
    ends = []
    for results in (tmp_path / "stopped", tmp_path / "whole"):
        with started(*words(results)) as process:
            process.communicate(timeout=120)
        ends.append(read_record(only_run(results)).outcome)
    stopped, whole = ends
    assert (stopped.status, stopped.weights, stopped.best) == ("done", whole.weights, whole.best)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_signal_before_a_run_begins_ends_it_at_once(number: signal.Signals, tmp_path: Path) -> None:
    with started(*words(tmp_path), program=SETTING_UP) as process:
        heard(process, "setting up")
        code, out, err = remaining(process, number)
    assert code == 128 + number
    assert "interrupted (stopped before the run began) at 0 steps" in out
    assert "stopped before the run began" in err
    assert {path.name for path in only_run(tmp_path).iterdir()} <= {"spec.json", ".lock"}


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait_for_the_state_to_be_saved(tmp_path: Path) -> None:
    with started(*words(tmp_path), program=HANGING_SAVE) as process:
        heard(process, "saving")
        code, _, err = remaining(process, signal.SIGINT, signal.SIGINT)
    assert code == 130, err
    assert "Traceback" not in err


@pytest.mark.soak
@pytest.mark.parametrize("way", ["sleep", "deadlock"])
def test_signal_stops_a_run_with_a_hanging_environment(way: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.reliability.broken", way, "0", "60", *words(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        heard(process, "epoch 0")
        time.sleep(3)
        code, _, err = remaining(process, signal.SIGTERM)
    assert code == 143
    assert "the same command resumes" in err
    assert read_record(only_run(tmp_path)).outcome is None


@pytest.mark.soak
def test_signal_during_generation_leaves_no_partial_file(tmp_path: Path) -> None:
    words = ["Hopper-v4", "--policy", "hopper-openai_imitation-trpo_iter200", "--steps", "60", "--name", "rlb-some"]
    with started("data", "generate", *words, program=GENERATING, RLBENCH_DATASETS=str(tmp_path)) as process:
        heard(process, "writing")
        assert list(tmp_path.glob("*.part"))
        code, _, err = remaining(process, signal.SIGTERM)
    assert code == 143, err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_a_download_keeps_the_part_for_resuming(number: signal.Signals, tmp_path: Path) -> None:
    places = {"D4RL_DATASET_DIR": str(tmp_path), "HOME": str(tmp_path)}
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", b"x" * 2**18
    with serving(Server(endless=endless, stall=0.1).answer) as port:
        places["RLBENCH_D4RL_MIRROR"] = f"http://127.0.0.1:{port}"
        with started("data", "download", "hopper-medium-v2", **places) as process:
            wait_for(lambda: any(path.stat().st_size for path in tmp_path.rglob("*.part")))
            code, _, err = remaining(process, number)
    assert code == 128 + number, err
    (part,) = tmp_path.rglob("*.part")
    assert part.stat().st_size > 0


def test_signal_at_the_exit_prints_no_traceback() -> None:
    exiting = "import atexit, os; atexit.register(os.kill, os.getpid(), 15); from rlbench.cli.app import main; main()"
    with started("list", "suites", program=exiting) as process:
        code, _, err = remaining(process)
    assert (code, err) == (-signal.SIGTERM, "")


@pytest.mark.parametrize(
    ("endless", "name"),
    [
        ("threading.Thread(target=time.sleep, args=[600], name='loader').start()", "loader"),
        ("atexit.register(time.sleep, 600)", "an exit handler"),
    ],
)
def test_endless_thread_or_exit_handler_of_a_plugin_does_not_keep_the_process(endless: str, name: str) -> None:
    program = "import atexit, sys, threading, time; from rlbench.cli import app; app.EXIT_SECONDS = 1.0; "
    with started("list", "nonsense", program=f"{program}{endless}; sys.exit(app.main())") as process:
        code, out, err = remaining(process)
    refusal, note = err.splitlines()
    assert (code, out, "nonsense" in refusal) == (2, "", True)
    assert note == f"rlbench: {name} of a plug-in or library has not ended within 1 s; the process ends without it"


def test_stuck_exit_after_a_signal_is_short_and_leaves_no_child() -> None:
    program = "import subprocess; from rlbench.cli import app; app.SIGNAL_EXIT_SECONDS = 0.5; "
    program += "print(subprocess.Popen(['sleep', '600']).pid, flush=True); app._end_stuck_exit(143)"
    with started(program=program) as process:
        code, out, err = remaining(process)
    assert (code, "within 0 s" in err) == (143, True)
    wait_for(lambda: not psutil.pid_exists(int(out)))


SHARDS = """
import sys
from pathlib import Path
from textwrap import dedent
from rlbench.datasets import shard_conversion
from tests.reliability.test_signals import idle
folder = Path(sys.argv[1])
if __name__ == "__main__":
    files = [folder / name for name in ("one", "two")]
    list(shard_conversion.convert_shards(files, folder / "rlb-some.frames", idle, workers=2, origin="nowhere"))
"""


def idle(path: Path, writer: recording_writer.RecordingWriter) -> dict[str, int]:
    """A conversion that never ends, and says who it is."""
    path.with_suffix(".pid").write_text(str(os.getpid()))
    time.sleep(600)
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_no_child_process_outlives_its_parent(number: signal.Signals, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"x")
    script = tmp_path / "script.py"
    script.write_text(SHARDS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=environment) as process:
        wait_for(lambda: len([p for p in tmp_path.glob("*.pid") if p.read_text()]) == 2)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        process.send_signal(number)
        process.wait(HURRY)
    _, alive = psutil.wait_procs(children, timeout=HURRY)
    for child in alive:
        child.kill()
    assert not alive


def test_only_known_modules_start_long_lived_processes() -> None:
    """Whoever starts others must see to it that they end: see ``tests/sweep``, and ``test_eval_workers``.

    A video's encoder and the process of a model read a pipe, and end with it.
    """
    package = Path(shard_conversion.__file__).parents[1]
    modules = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in ("multiprocessing", "ProcessPool", "Popen", "os.fork"))
    }
    assert modules == {
        "evaluation/pool.py",
        "evaluation/model_process.py",
        "cli/video_writer.py",
        "datasets/shard_conversion.py",
        "sweep/local.py",
    }
