"""Sweeps of real processes that are killed, share runs, and leave no process behind."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import psutil
import pytest

from rlbench.cli.app import main
from rlbench.cli.dataset_option import Data
from rlbench.cli.options import pauses
from rlbench.cli.resolve import resolve
from rlbench.cli.sweep import SweepOptions, command_line, repeated_settings
from rlbench.errors import RefusedFile
from rlbench.records import attempts
from rlbench.records.epochs import scores
from rlbench.records.store import folder_of, read_record
from rlbench.sweep import local
from rlbench.sweep.plan import Job, Machine
from tests.commands import TINY, run_command, stderr_of, tiny_folder, tiny_run


def started(results: Path, seeds: str, *more: str, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
    words, pipes = tiny_run(results, "--seeds", seeds, *more), {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, text=True, env={**os.environ, **(environ or {})}, **pipes)


def events(results: Path, seed: int) -> list[str]:
    """``begun``, and how each ended, in order."""
    return [str(line.get("how", line["event"])) for line in attempts.read_attempts(tiny_folder(results, seed))]


def until_printed(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    pytest.fail(f"{text!r} was never printed")


def gone(processes: list[psutil.Process], seconds: float = 30) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return not alive


def complete(results: Path, seed: int) -> tuple[object, ...]:
    """The content that interruptions must not change; reading it checks that no epoch is there twice."""
    record = read_record(tiny_folder(results, seed))
    assert record.outcome is not None and record.outcome.status == "done"
    assert [epoch.number for epoch in record.epochs] == [0, 1, 2, 3]
    return (*map(scores, record.epochs), record.outcome.weights)


@pytest.mark.slow
def test_killed_sweep_leaves_no_process_and_the_same_command_finishes_it(tmp_path: Path) -> None:
    process = started(tmp_path, "0,1", "--jobs", "2")
    until_printed(process, "epoch 1")
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    assert len(children) == 2 and gone(children)
    again = started(tmp_path, "0,1", "--jobs", "2", "--json")
    out, err = again.communicate(timeout=170)
    assert again.returncode == 0, err
    rows = json.loads(out)["runs"]
    assert [(row["seed"], row["status"]) for row in rows] == [(0, "done"), (1, "done")]
    assert len({repr(complete(tmp_path, seed)) for seed in range(2)}) == 2
    assert "resumes at" in err
    for row in rows:
        assert events(tmp_path, row["seed"]).count("done") <= 1
        assert row["attempts"] == events(tmp_path, row["seed"]).count("begun")
    assert 3 <= sum(row["attempts"] for row in rows) <= 4
    assert main([*tiny_run(tmp_path, "--seeds", "0,1")[3:], "--jobs", "2"]) == 0
    assert sum(events(tmp_path, seed).count("begun") for seed in range(2)) <= 4, "what is done was run again"


def test_runs_pause_at_until_and_resume_without_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*tiny_run(tmp_path, "--seeds", "0,1")[3:], "--json", "--until", "1", "--jobs", "2"]) == 0
    rows = json.loads(capfd.readouterr().out)["runs"]
    paused = ("interrupted", "--until 1 steps", 200)
    assert [(row["status"], row["reason"], row["env_steps"]) for row in rows] == [paused, paused]
    for more, steps in (("--until=1", 200), ("--until=50%", 400), ("--quiet", 600)):
        assert main([*tiny_run(tmp_path, "--seeds", "0")[3:], more]) == 0
        assert read_record(tiny_folder(tmp_path, 0)).epochs[-1].steps == steps
    assert complete(tmp_path, 0)


@pytest.mark.parametrize(
    ("until", "message"),
    [
        ("soon", "--until soon: not a number of steps; write 100000, 10% or informative"),
        ("0", "--until 0: not a number of steps"),
        ("101%", "--until 101%: not a number of steps"),
        ("informative", "--until informative: toy/dqn/Catch has no documented curve"),
    ],
)
def test_a_pause_that_cannot_be_is_refused(until: str, message: str, tmp_path: Path) -> None:
    assert message in stderr_of([*tiny_run(tmp_path, "--seeds", "0")[3:], "--until", until])
    assert not list(tmp_path.iterdir())


def test_until_informative_pauses_at_the_informative_checkpoint() -> None:
    catch = resolve("toy", "dqn", "Catch", seed=0, sets=TINY).spec
    cheetah = resolve("mujoco", "sac", "HalfCheetah-v4", seed=0, sets=()).spec
    assert pauses("informative", [cheetah]) == [50_000]
    assert [pauses(text, [catch]) for text in ("100_000", "1e5", "2.5%")] == [[100_000], [100_000], [15]]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_twelve_runs_killed_five_times_finish_once_each(tmp_path: Path) -> None:
    chance, kills = np.random.default_rng(11), 0
    while True:
        process = started(tmp_path / "swept", "0-11", "--jobs", "2", "--json")
        if kills < 5:
            until_printed(process, "epoch 0")
            time.sleep(float(chance.uniform(0, 6)))
        while kills < 5 and process.poll() is None:
            kills += 1
            children = psutil.Process(process.pid).children(recursive=True)
            whom = int(chance.integers(3))
            if whom == 0 and children:  # one of its own: it is started again
                children[int(chance.integers(len(children)))].kill()
                time.sleep(float(chance.uniform(0, 6)))
                continue
            begun = time.monotonic()
            process.send_signal(signal.SIGKILL if whom == 1 else signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
            assert gone(children) and time.monotonic() - begun < 40
            if whom == 2:
                assert process.returncode == 128 + signal.SIGTERM
                assert {row["status"] for row in json.loads(out)["runs"]} <= {"done", "interrupted"}
            break
        else:
            out, err = process.communicate(timeout=1200)
            assert process.returncode == 0, err
            assert [row["status"] for row in json.loads(out)["runs"]] == ["done"] * 12
            break
    assert kills == 5
    whole = [complete(tmp_path / "swept", seed) for seed in range(12)]
    assert subprocess.run(tiny_run(tmp_path / "alone", "--seeds", "0,7", "--quiet"), check=False).returncode == 0
    assert [complete(tmp_path / "alone", seed) for seed in (0, 7)] == [whole[0], whole[7]]
    for seed in range(12):
        event_list = events(tmp_path / "swept", seed)
        assert "done" not in event_list[:-1], f"seed {seed} was run again after it was done: {event_list}"
        assert event_list.count("begun") >= 1


@pytest.mark.slow
def test_closed_stderr_does_not_end_a_run(tmp_path: Path) -> None:
    line = f"{' '.join(tiny_run(tmp_path))} 2>&1 >{tmp_path / 'out'} | head -1"
    subprocess.run(["bash", "-c", line], capture_output=True, timeout=120, check=True)
    until = time.monotonic() + 60
    while not (tiny_folder(tmp_path) / "outcome.json").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert json.loads((tiny_folder(tmp_path) / "outcome.json").read_text())["status"] == "done"


@pytest.mark.slow
def test_sweep_continues_beside_a_damaged_record(tmp_path: Path) -> None:
    assert main(tiny_run(tmp_path, "--seeds", "1")[3:]) == 0
    (tiny_folder(tmp_path, 1) / "outcome.json").write_text("{")
    code, out, error = run_command(tiny_run(tmp_path, "--seeds", "0-2", "--json")[3:])
    assert code == 2
    assert [row["status"] for row in json.loads(out)["runs"]] == ["done", "refused", "done"]
    assert f"{tiny_folder(tmp_path, 1) / 'outcome.json'}: damaged" in error


PLANTED = """
import signal, sys, os
words = sys.orig_argv
seed = words[words.index("--seeds") + 1] if "--pipe" in words else ""
if seed == "2":
    os.kill(os.getpid(), signal.SIGSEGV)
if seed == "1":
    import rlbench.run
    from rlbench.errors import Diverged
    def broken(*_):
        raise Diverged("epoch 0, 0 steps: planted is not a finite number")
    rlbench.run._refuse_diverged = broken
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_failed_seed_is_named_with_its_log_and_others_continue(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    process = started(tmp_path / "r", "0-2", "--jobs", "2", environ={"PYTHONPATH": path})
    out, err = process.communicate(timeout=500)
    assert process.returncode == 5, err
    complete(tmp_path / "r", 0)
    logs = [tiny_folder(tmp_path / "r", seed) / "log.txt" for seed in range(3)]
    for seed, status, reason, begun in (
        (1, "failed", "planted is not a finite number", 1),
        (2, "crashed", "ended by SIGSEGV", 0),
    ):
        (line,) = [line for line in out.splitlines() if f"seed {seed}" in line]
        assert f"seed {seed}: {status} (" in line and reason in line and str(logs[seed]) in line
        assert logs[seed].exists()
        assert events(tmp_path / "r", seed).count("begun") == begun
    assert "planted" in logs[1].read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_second_sweep_on_the_same_folder_shares_the_runs(tmp_path: Path) -> None:
    pair = [started(tmp_path, "0,1", "--jobs", "1", "--json") for _ in range(2)]
    for process in pair:
        out, err = process.communicate(timeout=500)
        assert process.returncode == 0, err
        assert [row["status"] for row in json.loads(out)["runs"]] == ["done"] * 2
    for seed in range(2):
        complete(tmp_path, seed)
        assert events(tmp_path, seed) == ["begun", "done"]


def test_worker_gets_settings_of_file_and_environment(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[algo]\nlr = 3e-4\nhidden = 32\n[algo.torso]\nkind = "mlp"\nwidths = [32, 16]\n')
    environ, sets = {"RLBENCH_ALGO__LR": "2e-3", "RLBENCH_STEPS": "700", "RLBENCH_DEVICE": "cpu"}, ("algo.hidden=64",)
    expected = resolve("toy", "dqn", "Catch", seed=3, sets=sets, config=config, environ=environ).spec
    again = repeated_settings(config, environ, sets)
    assert resolve("toy", "dqn", "Catch", seed=3, sets=again).spec == expected
    rest = dict.fromkeys(("steps", "eval_workers", "until", "address"))
    rest |= {"package": "my_envs", "env_timeout": 600.0, "update_engine": "compiled", "executor": "local", "jobs": "2"}
    rest |= {"smoke": False, "quiet": True, "dataset": Data("x.hdf5", "ab")}
    options = SweepOptions(results=tmp_path, device="auto", sets=again, force=True, **rest)
    job = Job(spec=expected, folder=tmp_path, threads=1, memory=1)
    line = command_line(options, job, "cuda:1")
    (tmp_path / "toy").symlink_to(tmp_path)  # since the sweep began
    with pytest.raises(RefusedFile, match="toy: is a link"):
        command_line(options, Job(spec=expected, folder=folder_of(expected, tmp_path)), None)
    assert line[:7] == ["run", "toy", "dqn", "--task", "Catch", "--seeds", "3"]
    assert [line[line.index(option) + 1] for option in ("--import", "--dataset", "--sha256")] == [
        "my_envs",
        "x.hdf5",
        "ab",
    ]
    assert line[line.index("--device") + 1] == "cuda:1" and "--jobs" not in line


def test_only_a_start_by_force_passes_the_option_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Mock()
    monkeypatch.setattr(local, "Worker", worker)
    job = Job(spec=resolve("toy", "dqn", "Catch", seed=0, sets=TINY).spec, folder=tmp_path, threads=1, memory=1)
    for force in (True, False):
        local.Local(Machine(cores=1, memory=2), 1, lambda _job, _device: ["run"]).start(job, force=force)
    assert [call.args[0] for call in worker.call_args_list] == [["run", "--force"], ["run"]]


@pytest.mark.parametrize("wrong", [("--jobs", "0"), ("--jobs", "many"), ("--executor", "spark"), ("--shard", "3/2")])
def test_invalid_sweep_options_are_refused_before_any_file_is_written(tmp_path: Path, wrong: tuple[str, str]) -> None:
    assert main(tiny_run(tmp_path / "none", "--seeds", "0", *wrong)[3:]) == 2
    assert not (tmp_path / "none").exists()
