"""The whole command line: exit codes, one-line errors, pipes, terminals, and imports."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from unittest.mock import Mock

import pytest
import typer

from rlbench import __version__
from rlbench.cli import app as command
from rlbench.cli.app import main
from rlbench.cli.output import write_file
from rlbench.errors import Interrupted, RefusedFile, RlbenchError, UsageError
from rlbench.report.tables import TEXTS
from rlbench.signals import Terminated, interruption_behind
from tests.commands import RLBENCH, run_process, stderr_of, stdout_of
from tests.conftest import Capture, Patch, RecordRun
from tests.laws.layers import HEAVY


@pytest.fixture(autouse=True)
def handlers_of_before() -> Iterator[None]:
    """An interrupted command ignores further signals."""
    before = {number: signal.getsignal(number) for number in command.TERMINATING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def child(line: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_process([*RLBENCH, *line.split()], **environ)


def raising(monkeypatch: Patch, error: BaseException) -> None:
    """Makes the verb ``show`` fail."""

    def fail() -> None:
        raise error

    broken = typer.Typer()
    broken.callback()(lambda: None)
    broken.command("show")(fail)
    monkeypatch.setattr(command, "app", broken)


def test_no_verb_shows_five_lines_of_typical_use_and_is_a_usage_error() -> None:
    lines = stdout_of("", 2).splitlines()
    assert len(lines) == 5 and all(line.startswith("rlbench ") for line in lines)


def test_options_of_run_are_grouped_in_panels(monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = stdout_of("run --help").splitlines()
    panels = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert panels == ["Arguments:", "What to run:", "How long:", "Where:", "Output:", "Rarely used:"]
    assert len(lines) <= 84


@pytest.mark.parametrize("verb", ["run", "table", "list", "show", "status", "doctor"])
def test_every_verb_has_help_whose_summary_is_not_cut(verb: str) -> None:
    summary = stdout_of(f"{verb} -h").split("\n\n")[1].strip()
    listed = stdout_of("--help")
    assert "..." not in next(line for line in listed.splitlines() if line.startswith(f"  {verb} "))
    assert summary.split("\n")[0] in listed


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("show atari dqn", "Missing argument 'TASK'"),
        ("show atari dqn x y", "unexpected extra argument"),
        ("show atari dqn PongNoFrameskip-v5", "write PongNoFrameskip-v4"),
        ("run atari dqn ALE/Pong-v5", "write PongNoFrameskip-v4 (the published protocol has no sticky actions"),
        ("run ppo Hopper-v4", "ppo is an algorithm, not a suite; write atari ppo or mujoco ppo"),
        (
            "run all *",
            "one suite at a time; write for suite in atari mujoco offline goals toy; do rlbench run $suite '*';",
        ),
        ("run mujoco dqn", "mujoco has no dqn, only atari and toy; mujoco has ddpg, "),
        ("run mujoco *x Hopper-v4", "unknown algorithm '*x'"),
        ("run offline td3bc Hopper-v4", "Hopper-v4 is an environment; name the data to learn from with --dataset"),
        ("run offline td3bc --dataset x.hdf5", "--dataset x.hdf5: no such file; check the path"),
        ("run toy dqn Catch --set lr=1e-4", "--set: unknown field 'lr'; did you mean 'algo.lr'?"),
        ("run mujoco ppo Hopper-v4 --set algo.learning_rate=1", "did you mean 'algo.lr'?"),
        ("run mujoco ppo Hopper-v4 --set algo.clip=0.1", "did you mean 'algo.method.clip'?"),
        ("run mujoco ppo Hopper-v4 --set algo.trace=0.9", "did you mean 'algo.gae_lambda'?"),
        ("run toy dqn Catch --steps 1.5", "--steps 1.5: no whole number of steps; write it as 100000, 1e5, 100k or 1M"),
        ("report toy --output page.txt", "a report is written as .html or .md"),
        ("show toy dqn Catch --set algo.lr=fast", "expected a number"),
        ("show toy dqn Catch --set seed=1", "use --seeds"),
        ("show toy dqn Catch --steps 0", "--steps 0: no whole number"),
        ("show toy dqn Catch --config nowhere.toml", "nowhere.toml: cannot be read"),
        ("table atari --format md --json", "contradict"),
        ("table atari --task Pong-v5", "unknown task 'Pong-v5'"),
        ("check toy --baseline page.html", "page.html: not a baseline; make one with: rlbench baseline save NEW.json"),
        ("table atari --output nowhere/a.md", "nowhere is not a folder"),
        ("table atari --output .", "is a folder"),
        ("status --watch --json", "contradict"),
    ],
)
def test_invalid_commands_print_one_line_on_stderr_and_exit_2(line: str, why: str, capsys: Capture) -> None:
    Path("page.html").write_text("<html></html>", encoding="utf-8")
    assert main(line.split()) == 2
    out, error = capsys.readouterr()
    (text,) = [text for text in error.splitlines() if text.startswith("rlbench: ")]
    assert out == "" and why in text and "Traceback" not in error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        *((UsageError("a"), 2), (RefusedFile("a"), 2), (RlbenchError("a"), 1)),
        *((Interrupted("a", signal=2), 130), (Interrupted("a", signal=15), 143)),
    ],
)
def test_each_error_has_its_code(error: RlbenchError, code: int, monkeypatch: Patch) -> None:
    raising(monkeypatch, error)
    assert stderr_of("show", code) == "rlbench: a\n"


def test_a_bug_is_one_line_that_asks_for_a_report_and_exit_1(monkeypatch: Patch) -> None:
    raising(monkeypatch, KeyError("x"))
    output = stderr_of("show", 1)
    assert len(output.splitlines()) == 1
    assert "internal error: KeyError: 'x'" in output
    assert "--debug" in output


@pytest.mark.parametrize("line", [["--debug", "show"], ["show", "--debug"]])
@pytest.mark.parametrize("error", [KeyError("x"), UsageError("x\x1b[2J")])
def test_debug_shows_the_traceback_at_any_position(line: list[str], error: Exception, monkeypatch: Patch) -> None:
    raising(monkeypatch, error)
    error_text = stderr_of(line, 2 if isinstance(error, UsageError) else 1)
    assert "Traceback (most recent call last)" in error_text and "\x1b" not in error_text


def test_a_keyboard_interrupt_is_130(monkeypatch: Patch) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert main(["show"]) == 130


def test_a_message_with_line_breaks_and_escape_codes_stays_one_harmless_line(monkeypatch: Patch) -> None:
    raising(monkeypatch, UsageError("a\nb\r\n\x1b[31mc\x07"))
    assert stderr_of("show") == "rlbench: a b ?[31mc?\n"


PROBE = """
import sys
from rlbench.cli.app import main
for line in sys.argv[2:]:
    code = main(line.split())
    found = [name for name in sys.argv[1].split(",") if name in sys.modules]
    if code or found:
        sys.exit(f"{line}: {code} {found}")
"""
SLOW_TO_START = {"numpy", "scipy", "pandas", "matplotlib", "h5py", "psutil"}
READING = (
    *("--help", "--version", "run --help", "table --help", "data --help", "list suites", "list algos", "list tasks"),
    *("list runs", "show atari dqn PongNoFrameskip-v4", "show atari dqn PongNoFrameskip-v4 --json"),
    *("table atari --json", "status", *(f"table all --format {style}" for style in TEXTS)),
)


def test_reading_verbs_import_nothing_heavy(record_run: RecordRun) -> None:
    record_run([1.0], seed=0)
    record_run([2.0], seed=1)
    done = run_process([sys.executable, "-c", PROBE, ",".join(HEAVY | SLOW_TO_START | {"rich"}), *READING])
    assert (done.returncode, done.stderr) == (0, "")


def test_help_does_not_even_import_the_specs() -> None:
    done = run_process([sys.executable, "-c", PROBE, "pydantic,rich,filelock,rlbench.config.run", "--help"])
    assert (done.returncode, done.stderr) == (0, "")


def test_output_to_a_device_does_not_replace_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    done = child(f"table toy --format csv --output {pipe}")
    assert done.returncode == 0, done.stderr
    assert "CartPole-v1" in reader.communicate(timeout=30)[0]
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("path", "redirection"), [("/dev/stdout", ">table"), ("link", ">table"), ("/dev/fd/3", "3>>table")]
)
def test_output_to_an_open_file_is_written_to_it(path: str, redirection: str, tmp_path: Path) -> None:
    """Descriptor 1 leads to stderr, whose log was replaced."""
    (tmp_path / "log").write_text("line of before\n")
    (tmp_path / "table").touch()
    (tmp_path / "same").hardlink_to(tmp_path / "table")
    (tmp_path / "link").symlink_to("//dev/stdout")
    line = f"{' '.join(RLBENCH)} table toy --algo dqn --format csv --output {path} {redirection} 2>>log"
    subprocess.run(["bash", "-c", line], cwd=tmp_path, timeout=120, check=True)
    assert "CartPole-v1" in (tmp_path / "same").read_text()
    assert (tmp_path / "log").read_text().startswith("line of before\n")


@pytest.mark.parametrize("target", ["loop", "precious", "missing", "/dev/zero"])
def test_output_to_a_link_is_refused(target: str, tmp_path: Path) -> None:
    """A folder of somebody else may hold it, and git keeps links."""
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "loop").symlink_to(tmp_path / target)
    with pytest.raises(UsageError, match="loop: is a link; name the file itself"):
        write_file(tmp_path / "loop", "")
    assert (tmp_path / "precious").read_text() == "precious" and not (tmp_path / "missing").exists()


def test_output_to_an_open_file_of_another_process_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "table").open("w") as file, subprocess.Popen(["sleep", "60"], stdout=file) as process:
        try:
            with pytest.raises(UsageError, match="fd/1: is a link; name the file itself"):
                write_file(Path(f"/proc/{process.pid}/fd/1"), "")
        finally:
            process.kill()


def test_output_to_no_open_file_is_refused() -> None:
    with pytest.raises(UsageError, match="choose another path with --output"):
        write_file(Path("/dev/fd/99999999999"), "")


@pytest.mark.parametrize("line", ["table all --json", "table toy", "list tasks", "status"])
def test_closed_pipe_gives_no_traceback(line: str) -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen([*RLBENCH, *line.split()], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(reading)
    os.close(writing)
    output = process.communicate(timeout=60)[1]
    assert process.returncode == 141
    assert [text for text in output.splitlines() if "no such folder" not in text] == []


def test_a_narrow_encoding_spells_signs() -> None:
    done = child("show toy dqn Catch", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert "memory ~ 0.61 GB" in done.stdout and "discount per agent step (>= 0, <= 1)" in done.stdout
    assert "? of Adam" in done.stdout and done.stderr == ""  # ε has no spelling


def test_the_module_and_the_console_script_are_one_program() -> None:
    assert child("--version").stdout == f"rlbench {__version__}\n"
    assert child("nonsense").returncode == 2


@pytest.mark.parametrize(
    ("number", "handler", "code"),
    [
        ("SIGTERM", "SIG_DFL", 143),
        ("SIGINT", "default_int_handler", 130),  # a shell's job in the background ignores it
        ("SIGHUP", "SIG_DFL", 129),
        ("SIGHUP", "SIG_IGN", 0),  # as nohup does
    ],
)
def test_a_signal_during_a_callback_of_python_still_ends_the_command(number: str, handler: str, code: int) -> None:
    callback = f"weakref.finalize(set(), os.kill, os.getpid(), signal.{number})"  # at once: nothing keeps the set
    head = f"import os, signal, time, weakref; from rlbench.cli import app; end = lambda _: ({callback}, time.sleep(3))"
    setting = f"signal.signal(signal.{number}, signal.{handler})"
    program = f"{head}; {setting}; app.print_text = end; raise SystemExit(app.main(['--version']))"
    done = run_process([sys.executable, "-P", "-c", program])
    assert done.returncode == code and done.stderr in {"", "rlbench: stopped\n"}


def test_two_signals_at_once_end_the_command_with_one_line() -> None:
    """A closed session sends SIGHUP and SIGTERM."""
    both = "import os, signal; from rlbench.cli import app; pair = (signal.SIGHUP, signal.SIGTERM); "
    send = "signal.pthread_sigmask(0, pair), [os.kill(os.getpid(), number) for number in pair]"
    program = f"{both}app.print_text = lambda _: ({send}, signal.pthread_sigmask(1, pair)); "
    done = run_process([sys.executable, "-P", "-c", f"{program}raise SystemExit(app.main(['--version']))"])
    assert done.returncode in {129, 143} and done.stderr == "rlbench: stopped\n"


def test_an_error_while_a_run_is_built_is_an_internal_error(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    error = RuntimeError("CUDA error: initialization error")
    monkeypatch.setattr("rlbench.run.build", Mock(side_effect=error))
    assert main(["run", "toy", "dqn", "Catch", "--smoke", "--quiet", "--results", str(tmp_path)]) == 1
    assert "internal error: RuntimeError: CUDA error" in capsys.readouterr().err
    error.__cause__ = error
    assert interruption_behind(error) is None


@pytest.mark.parametrize(
    ("interruption", "code"), [(Terminated(143), 143), (KeyboardInterrupt(), 130), (Interrupted("x", signal=2), 130)]
)
def test_a_signal_that_breaks_compiled_code_ends_the_command(
    interruption: BaseException, code: int, monkeypatch: Patch, capsys: Capture
) -> None:
    def broken(_: str) -> NoReturn:
        inner = ImportError("initialization failed")
        inner.__cause__ = interruption
        raise ImportError("initialization failed") from inner  # as pybind11 does

    def system_error(_: str) -> NoReturn:
        raise SystemError("returned a result with an exception set") from interruption  # as Cython does

    def schema_error(_: str) -> NoReturn:
        raise RuntimeError(f"building `literal` serializer:\n  {type(interruption).__name__}: ")  # as pydantic does

    for print_text in (broken, system_error, *(() if isinstance(interruption, Interrupted) else (schema_error,))):
        monkeypatch.setattr("rlbench.cli.app.print_text", print_text)
        assert main(["--version"]) == code
        assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--output=~/c.csv", "~/c.csv"])
def test_a_path_in_the_home_folder_is_found_where_no_shell_expands_it(
    word: str, record_run: RecordRun, tmp_path: Path, monkeypatch: Patch
) -> None:
    record_run([0.5], suite="toy", task="Catch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "results").rename(tmp_path / "home")
    monkeypatch.setenv("RLBENCH_RESULTS", "~")
    stdout_of(["export", "csv", "toy", *(["--output"] if word.startswith("~") else []), word])
    assert "Catch" in (tmp_path / "home" / "c.csv").read_text() and not (tmp_path / "~").exists()
