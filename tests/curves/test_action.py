"""The GitHub Action: its step runs as on GitHub, and inputs reach the script only by the environment."""

import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "action.yml").read_text(encoding="utf-8")
INSTALL = TEXT.split("      run: ")[1].partition("\n")[0]
SCRIPT = dedent(TEXT.split("      run: |\n")[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("score", "strict", "cells", "code"), [(3_550.0, "True", "mujoco/sac", 0), (100.0, "false", "mujoco/S-AC ", 3)]
)
def test_the_step_writes_the_table_and_fails_below_the_reference(
    score: float, strict: str, cells: str, code: int, tmp_path: Path
) -> None:
    rows = [f"Hopper-v4,{seed},{step},{score + seed}" for seed in range(10) for step in (500_000, 1_000_000)]
    (tmp_path / "my runs.csv").write_text("\n".join(["task,seed,step,return", *rows]))
    (tmp_path / "rlbench").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m rlbench "$@"\n')
    (tmp_path / "rlbench").chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "FILES": "\nmy runs.csv\n",
        "CELLS": cells,
        "TASK": "",
        "FORMAT": "auto",
        "STRICT": strict,
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", SCRIPT]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "| sac (imported) | Hopper-v4 |" in (tmp_path / "summary.md").read_text()


@pytest.mark.slow
def test_the_install_step_brings_the_command_into_an_empty_folder_offline(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "pip.py").write_text("raise SystemExit('a file of the checked-out folder has run')")
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin/python").chmod(0o755)
    offline = {
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_TARGET": str(tmp_path / "site"),
    }
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    unsafe = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}  # another test's
    environment = unsafe | offline | {"PATH": path, "ACTION_PATH": str(ROOT)}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", INSTALL]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    where = [sys.executable, "-P", "-c", "import rlbench; print(rlbench.__file__)"]
    installed = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    assert subprocess.check_output(where, cwd=tmp_path, env=installed, text=True).startswith(str(tmp_path / "site"))
    assert (tmp_path / "site/bin/rlbench").is_file()


def test_inputs_reach_the_script_by_the_environment_alone() -> None:
    assert "${{" not in SCRIPT
    assert {line.strip().split(":")[0] for line in TEXT.splitlines() if "${{ inputs." in line} == {
        "FILES", "CELLS", "TASK", "FORMAT", "STRICT",
    }  # fmt: skip
    assert set(re.findall(r"inputs\.(\w+)", TEXT)) == set(
        re.findall(r"^  (\w+):$", TEXT.split("runs:")[0], re.MULTILINE)
    )


def test_strict_is_true_or_false(tmp_path: Path) -> None:
    shell, unknown = ["bash", "-eo", "pipefail", "-c", SCRIPT], {"FILES": "", "CELLS": "", "TASK": "", "FORMAT": ""}
    environment = os.environ | unknown | {"STRICT": "yes"}
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "strict: 'yes'; write true or false\n")


def echo_words(folder: Path) -> None:
    """Make scripts/rlbench print its words."""
    (folder / "scripts").mkdir()
    (folder / "scripts/rlbench").write_text('#!/bin/sh\necho "$*"\n')
    (folder / "scripts/rlbench").chmod(0o755)


@pytest.mark.parametrize(("bounds", "code"), [((1, 20, 20), 0), ((0, 19, 20), 2), ((7, 7, 1), 2), ((1, 5, 3), 2)])
def test_a_slurm_array_has_a_job_for_each_share(bounds: tuple[int, int, int], code: int, tmp_path: Path) -> None:
    echo_words(tmp_path)
    names = ("SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_COUNT")
    array = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_SUBMIT_DIR": str(tmp_path)}
    array |= dict(zip(names, map(str, bounds), strict=True))
    line = ["bash", str(ROOT / "scripts/cluster/slurm.sh"), "toy", "dqn"]
    done = subprocess.run(line, env=os.environ | array, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert ("--shard 1/20" in done.stdout) == (code == 0)
    assert ("write --array=1-N" in done.stderr) == (code == 2)


def test_slurm_passes_options_on_and_needs_a_suite_and_an_algorithm(tmp_path: Path) -> None:
    echo_words(tmp_path)
    line = ["bash", str(ROOT / "scripts/cluster/slurm.sh"), "toy", "dqn", "0-4", "--steps", "100"]
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, check=False)
    ends = run(line), run(line[:3])
    assert ends[0].stdout == "run toy dqn --seeds 0-4 --shard 1/1 --jobs auto --steps 100\n"
    assert ends[1].returncode == 2 and ends[1].stderr.startswith("usage: ")


@pytest.mark.parametrize("budget", ["2h", "abc", "-1", "0", "", "1 2"])
def test_nightly_refuses_a_budget_that_is_no_number_of_hours(budget: str) -> None:
    done = subprocess.run([ROOT / "scripts/nightly", "--budget", budget], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"--budget {budget}: write whole hours, such as 8\n")


@pytest.mark.parametrize(
    ("runs", "check", "code", "checked"),
    [
        ((0, 0), 0, 0, True),
        ((0, 124), 0, 0, True),
        ((1, 0), 0, 1, True),
        ((0, 5), 0, 5, True),
        ((1, 0), 3, 3, True),
        ((143, 0), 0, 143, False),
    ],
)
def test_nightly_fails_if_a_run_ends_in_an_error(
    runs: tuple[int, int], check: int, code: int, checked: bool, tmp_path: Path
) -> None:
    exits = f"case $2 in dqn) exit {runs[0]} ;; *) exit {runs[1]} ;; esac"
    script = nightly_beside(tmp_path, f"run) {exits} ;; check) echo checked; exit {check} ;;")
    done = subprocess.run([script, "toy"], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert (done.stdout == "checked\n") == checked
    errors = [name for name, end in zip(("dqn", "a2c"), runs, strict=True) if end in {1, 5}]
    assert [line.split()[1] for line in done.stderr.splitlines()] == errors


def test_a_stopped_nightly_stops_its_run(tmp_path: Path) -> None:
    """``timeout`` puts the run into a process group of its own, which Ctrl-C does not reach.

    A signal in the millisecond in which ``timeout`` starts the run ends ``timeout`` alone, so the run begins late.
    """
    run = "trap 'echo saved; exit 143' TERM; sleep 0.5; echo begun; for i in $(seq 600); do sleep 0.1; done"
    script = nightly_beside(tmp_path, f"run) {run} ;; check) echo checked ;;")
    with subprocess.Popen([script, "toy"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "saved\n"
    assert process.returncode == 130


def test_setup_removes_no_environment_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/setup", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/pyvenv.cfg").write_text("another's")
    done = subprocess.run([tmp_path / "scripts/setup"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"rlbench: {tmp_path}/.venv is of another program; move it away\n")
    assert (tmp_path / ".venv/pyvenv.cfg").read_text() == "another's"


def test_setup_replaces_a_linked_environment_by_its_own_and_keeps_the_target(tmp_path: Path) -> None:
    for name in ("scripts", "target"):
        (tmp_path / name).mkdir()
    for name in ("scripts/setup", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "target/setup.log").write_text("of a set-up that was stopped")
    (tmp_path / ".venv").symlink_to("target")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ]\n')  # suits, and makes no environment
    python.chmod(0o755)
    done = subprocess.run(
        [tmp_path / "scripts/setup"], env=os.environ | {"PYTHON": str(python)}, capture_output=True, check=False
    )
    assert done.returncode == 2 and not (tmp_path / ".venv").is_symlink()
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["setup.log"]


@pytest.mark.parametrize("ended", [0, 143])
def test_a_nightly_of_smoke_tests_keeps_nothing(ended: int, tmp_path: Path) -> None:
    script = nightly_beside(tmp_path, f'run) touch "$8"/record; ls "$8"; exit {ended} ;; check) ;;')
    place = tmp_path / "temporary"
    place.mkdir()
    environment = os.environ | {"TMPDIR": str(place)}
    done = subprocess.run([script, "--smoke", "toy"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (ended, ["record"] * (1 if ended else 2))
    assert [*place.iterdir()] == []


def test_nightly_measures_each_change_anew(tmp_path: Path) -> None:
    script = nightly_beside(tmp_path, 'run) echo "$8" ;; check) ;;')
    code, folders = tmp_path / "rlbench/dqn.py", []
    begin = "git init -q .; git config user.email a@b; git config user.name a; git add -A; git commit -qm begin"
    for change in ("", begin, "echo 1 >rlbench/dqn.py", "echo 2 >rlbench/dqn.py", "git add -A; git commit -qm change"):
        subprocess.run(["bash", "-c", change], cwd=tmp_path, check=True)
        lines = subprocess.check_output([script, "toy"], text=True).splitlines()
        assert len(lines) == 2 and len({*lines}) == 1
        folders.append(lines[0])
    assert code.read_text() == "2\n" and len({*folders}) == 5


def test_nightly_stops_if_its_code_changes_meanwhile(tmp_path: Path) -> None:
    script = nightly_beside(tmp_path, "run) echo begun; echo 1 >rlbench/dqn.py ;; check) echo checked ;;")
    done = subprocess.run([script, "toy"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "begun\n")
    assert "the code has changed meanwhile" in done.stderr


def test_the_nightly_workflow_removes_old_nights_of_other_commits_alone(tmp_path: Path) -> None:
    text = (ROOT / ".github/workflows/nightly.yml").read_text(encoding="utf-8")
    step = dedent(text.partition("no leftovers of other nights\n        run: |\n")[2].partition("\n      - ")[0])
    current, old, recent = "a" * 40, "b" * 40, "c" * 40
    for name in (current, old, recent, "table"):
        (tmp_path / "nightly-results" / name).mkdir(parents=True)
        if name != recent:
            os.utime(tmp_path / "nightly-results" / name, (0, 0))
    environment = os.environ | {"GITHUB_SHA": current}
    subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, env=environment, check=True)
    assert {path.name for path in (tmp_path / "nightly-results").iterdir()} == {current, recent, "table"}


def nightly_beside(folder: Path, cases: str) -> Path:
    """Copy scripts/nightly beside a setup that does nothing and an rlbench that has ``cases`` and plans two cells."""
    plan = "plan) echo toy dqn Catch 0; echo toy a2c Catch 0-4 ;;"
    for name in ("scripts", "rlbench"):
        (folder / name).mkdir()
    (folder / "constraints.txt").touch()
    for name, text in {"setup": "", "rlbench": f"command=$1; shift; case $command in {plan} {cases} esac"}.items():
        (folder / "scripts" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "scripts" / name).chmod(0o755)
    return Path(shutil.copy(ROOT / "scripts/nightly", folder / "scripts"))
