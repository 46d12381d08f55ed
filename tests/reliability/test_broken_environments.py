"""R7: an environment that raises, dies, hangs or breaks the contract ends its run with a reason."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rlbench.cli.app import main
from rlbench.envs import gymnasium as gymnasium_envs
from rlbench.errors import BrokenEnvironment
from rlbench.records.store import Record, read_record
from tests.commands import stderr_of
from tests.conftest import Capture, Patch
from tests.reliability.broken import breaking, raising, training, words
from tests.reliability.run_one import only_run

ENV_INDEX, STEP = 1, 60


def broken(way: str, results: Path, monkeypatch: Patch, *more: str) -> int:
    """Exit code of a run whose training environment breaks in one env of its vector."""
    with monkeypatch.context() as patch:
        patch.setattr(gymnasium_envs, "registered_task", breaking(way, ENV_INDEX, STEP, training))
        return main(words(results, *more))


def record(results: Path) -> Record:
    return read_record(only_run(results))


@pytest.mark.parametrize(
    ("way", "what"),
    [
        ("raise", "ValueError: the joint is loose"),
        ("exit", "SystemExit: 3"),
        ("generator exit", "GeneratorExit: "),
        ("long", r"observation of shape \[8\], promised \[4\]"),
        ("short", r"observation of shape \[1\], promised \[4\]"),
        ("integers", "observation of type int64, promised float32"),
        ("nan", "observation is not finite"),
        ("infinite", "observation is not finite"),
        ("reward", "reward is not finite"),
    ],
)
def test_environment_error_fails_the_run_with_env_index_seed_step_and_traceback(
    way: str, what: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    assert broken(way, tmp_path, monkeypatch, "--json") == 5
    record_now = record(tmp_path)
    assert record_now.outcome.status == "failed"
    where = rf"BrokenEnvironment: CartPole-v1: env {ENV_INDEX}, step \d+: {what} \(this env's seed is \d+\)"
    assert re.fullmatch(where, record_now.outcome.reason)
    failure = (record_now.folder / "failure.txt").read_text()
    assert "Traceback" in failure
    assert ("in raising" in failure) == (way in {"raise", "exit", "generator exit"}), "the original traceback"
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert (row["status"], row["reason"]) == ("failed", record_now.outcome.reason)


def test_failed_run_stays_failed_until_force_puts_it_aside(tmp_path: Path, monkeypatch: Patch) -> None:
    assert broken("raise", tmp_path, monkeypatch) == 5
    assert main(words(tmp_path)) == 5
    assert main(words(tmp_path, "--force")) == 0
    (aside,) = tmp_path.rglob("attempt-1/failure.txt")
    assert not (aside.parents[1] / "failure.txt").exists()


def test_hanging_environment_fails_the_run_after_env_timeout(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    assert broken("sleep", tmp_path, monkeypatch, "--env-timeout", "2") == 5
    record_now = record(tmp_path)
    assert record_now.outcome.status == "failed"
    assert "BrokenEnvironment: the environments have not answered for 2 s; they hang in tests.reliability.broken:" in (
        record_now.outcome.reason
    )
    assert "time.sleep(3600)" in (record_now.folder / "failure.txt").read_text()
    assert "failed" in capsys.readouterr().err


def code_in_a_thread(line: list[str]) -> int:
    """Exit code of a command in a thread, which signals do not reach."""
    codes = list[int]()
    thread = threading.Thread(target=lambda: codes.append(main(line)))
    thread.start()
    thread.join()
    return codes[0]


RECORDING = ("data", "generate", "CartPole-v1", "--epsilon", "0.3", "--steps", "200", "--name", "rlb-cart", "--policy")


@pytest.mark.parametrize("verb", [("eval",), ("verify", "--replay"), RECORDING], ids=lambda verb: verb[0])
def test_hanging_environment_ends_other_commands_that_play(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path / "datasets"))
    assert code_in_a_thread(words(tmp_path / "results")) == 0
    folder = only_run(tmp_path / "results")
    assert code_in_a_thread([*verb, str(folder)]) == 0
    monkeypatch.setattr(gymnasium_envs, "registered_task", breaking("sleep", 0, 3))
    force = ["--force"] if verb is RECORDING else []
    if verb == ("eval",):
        monkeypatch.setenv("RLBENCH_ENV_TIMEOUT", "1")
        reason = stderr_of([*verb, str(folder)], 5)
    else:
        reason = stderr_of([*verb, str(folder), "--env-timeout", "1", *force], 5)
    name = "rlb-cart" if verb is RECORDING else folder
    assert f"{name}: the environments have not answered for 1 s; they hang in" in reason
    if verb is RECORDING:
        assert "broken off; use what is there with rlbench data subset, or make it again by the same command" in reason
        assert "--import cc: is for a task gym:ID" in stderr_of([*verb, str(folder), "--import", "cc", *force])


@pytest.mark.parametrize("jobs", [(), ("--jobs", "1")], ids=" ".join)
@pytest.mark.parametrize("method", ["__init__", "close"])
def test_environment_that_hangs_while_it_is_made_or_closed_ends_the_command(
    method: str, jobs: tuple[str, ...], tmp_path: Path
) -> None:
    program = "import sys, time; from gymnasium.envs.classic_control import CartPoleEnv as Env\n"
    program += f"Env.{method} = lambda *_, **__: time.sleep(3600)\n"
    program += "from rlbench.cli.app import main; sys.exit(main(sys.argv[1:]))"
    if jobs:  # the child imports it, too
        (tmp_path / "sitecustomize.py").write_text(program.rpartition("\n")[0])
        program = "import sys; from rlbench.cli.app import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *words(tmp_path / "results", "--env-timeout", "2", *jobs)]
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=environ)
    assert done.returncode == 5, done.stderr
    assert "halted: before the run: the environments have not answered for 2 s; they hang in " in done.stderr
    assert not list(tmp_path.rglob("spec.json"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["__init__", "reset"])
def test_the_timeout_of_environments_counts_for_each_of_a_vector(method: str, tmp_path: Path) -> None:
    program = f"""
import sys, time
from gymnasium.envs.classic_control import CartPoleEnv as Env
plain, calls = Env.{method}, []
def slow(*args, **options):
    calls.append(0)
    time.sleep(0.8 if len(calls) < 10 else 0)
    return plain(*args, **options)
Env.{method} = slow
from rlbench.cli.app import main
sys.exit(main(sys.argv[1:]))
"""
    line = words(tmp_path, "--env-timeout", "2", "--set", "task.envs=5")
    done = subprocess.run([sys.executable, "-c", program, *line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_signal_ends_a_vector_of_slow_environments(tmp_path: Path) -> None:
    program = """
import os, signal, sys, threading, time
from gymnasium.envs.classic_control import CartPoleEnv as Env
from rlbench.cli import app, watchdog
watchdog.GRACE = 1.0
def slow(*args, **options):
    calls.append(0)
    if len(calls) == 4:  # after the first evaluation
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    print("reset", flush=True, file=sys.stderr)
    time.sleep(0.8)
    return plain(*args, **options)
plain, Env.reset, calls = Env.reset, slow, []
sys.exit(app.main(sys.argv[1:]))
"""
    line = words(tmp_path, "--set", "task.envs=20", "--set", "algo.learning_starts=200")
    done = subprocess.run([sys.executable, "-c", program, *line], capture_output=True, text=True, check=False)
    assert done.returncode == 143 and 4 <= done.stderr.count("reset") < 15, done.stderr


def run(way: str, results: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.reliability.broken", way, str(ENV_INDEX), str(STEP), *words(results, *more)]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


@pytest.mark.slow
def test_hang_in_compiled_code_ends_the_process_and_is_recorded(tmp_path: Path) -> None:
    done = run("deadlock", tmp_path, "--env-timeout", "2")
    assert done.returncode == 5, done.stderr
    assert "the environments have not answered for 2 s" in done.stderr
    record_now = record(tmp_path)
    assert (record_now.outcome.status, record_now.outcome.epochs) == ("failed", 1)
    assert "deadlock" in (record_now.folder / "failure.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "code", "words_of_it"),
    [
        ("broken.deadlock", 5, "have not answered for 2 s; they hang in"),
        ("os.abort", -signal.SIGABRT, "error: Aborted"),
    ],
)
def test_a_forced_run_that_ends_while_it_is_built_leaves_the_record(
    tmp_path: Path, way: str, code: int, words_of_it: str
) -> None:
    assert main(words(tmp_path)) == 0
    before = record(tmp_path)
    program = f"""
import os, sys
from gymnasium.envs.classic_control import CartPoleEnv as Env
from tests.reliability import broken
def ends(*args, **options):
    calls.append(0)
    return {way}() if len(calls) == 2 else plain(*args, **options)
plain, Env.__init__, calls = Env.__init__, ends, []
sys.exit(broken.main(sys.argv[1:]))
"""
    line = words(tmp_path, "--env-timeout", "2", "--force")
    done = subprocess.run([sys.executable, "-c", program, *line], capture_output=True, text=True, check=False)
    assert done.returncode == code and words_of_it in done.stderr
    assert record(tmp_path) == before and not list(tmp_path.rglob("attempt-*"))


@pytest.mark.slow
def test_process_killed_by_an_environment_is_reported_by_the_next_attempt(tmp_path: Path) -> None:
    assert run("abort", tmp_path).returncode == -signal.SIGABRT
    crash = only_run(tmp_path) / "crash.txt"
    assert "Fatal Python error: Aborted" in crash.read_text()
    assert "broken.py" in crash.read_text(), "the original stack"
    assert record(tmp_path).outcome is None, "neither done nor failed: interrupted"
    assert f"an attempt crashed: {crash} says where" in stderr_of(words(tmp_path), 0)


def test_killed_process_is_reported_by_the_next_one(tmp_path: Path, capsys: Capture) -> None:
    assert main(words(tmp_path)) == 0
    assert not list(tmp_path.rglob("crash.txt")), "a run that ended leaves nothing behind"
    (only_run(tmp_path) / "outcome.json").unlink()
    (only_run(tmp_path) / "crash.txt").touch()
    main(words(tmp_path))
    assert "the last attempt died without a message" in capsys.readouterr().err
    (only_run(tmp_path) / "crash.txt").touch()  # as of a process that was killed after the outcome
    assert main(words(tmp_path)) == 0
    assert not list(tmp_path.rglob("crash.txt")), "removed by the command that finds the run done"


def test_an_environment_that_breaks_while_the_run_is_built_halts_it(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """No record counts a failure, so the word is not failed."""
    monkeypatch.setattr("rlbench.run.build", lambda *_: raising(BrokenEnvironment("the joint is loose")))
    assert main(words(tmp_path, "--force")) == 5
    assert "halted: the joint is loose" in (error := capsys.readouterr().err) and "without it the same command" in error


def test_environment_without_memory_halts_the_run(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    assert broken("memory", tmp_path, monkeypatch) == 5
    assert record(tmp_path).outcome is None
    assert "halted" in capsys.readouterr().err
    assert main(words(tmp_path)) == 0
