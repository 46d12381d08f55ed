"""The environment in a record: memory, vector instructions, and the commit of the package's own checkout."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import rlbench
from rlbench.cli.doctor import Finding, _package
from rlbench.errors import UsageError
from rlbench.records import machine
from rlbench.run import ROUNDING_FACTORS
from rlbench.versions import version
from tests.conftest import Patch


@pytest.mark.parametrize(
    ("limit", "usage", "files", "expected"),
    [
        ("max", 15, 0, 64),  # nobody limits anything
        (16, 15, 0, 1),
        (16, 15, 10, 11),  # most of what is used are files that may go
        (16, 15, 20, 16),  # never more than the limit
        (100, 10, 0, 64),  # nor than the machine has
        (16, 20, 0, 0),
    ],
)
@pytest.mark.parametrize("place", ["/", "/user.slice/job_7/step_0"])
@pytest.mark.parametrize(
    ("line", "root", "names"),
    [
        ("0::", "/sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")),
        (
            "4:memory:",
            "/sys/fs/cgroup/memory",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
def test_memory_is_free_below_the_limits_of_control_groups(
    line: str,
    root: str,
    names: tuple[str, str, str],
    place: str,
    limit: int | str,
    usage: int,
    files: int,
    expected: int,
    monkeypatch: Patch,
) -> None:
    group = root + str(Path(place).parent)  # the job's, above the process's own
    values = {
        "/proc/self/cgroup": f"9:name=systemd:/\n{line}{place}\n",
        f"{group}/memory.stat": f"{names[2]} {files}\n",
    }
    values |= {f"{group}/{names[0]}": f"{limit}\n", f"{group}/{names[1]}": f"{usage}\n"}
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: SimpleNamespace(total=64, available=64))
    monkeypatch.setattr(machine, "_kernel_text", lambda path: values.get(path, ""))
    assert machine.available_memory() == expected


@pytest.mark.parametrize(
    ("word", "public"),
    [
        ("--seeds", "--seeds"),
        ("runs/a..b", "runs/a..b"),
        ("--results=runs", "--results=runs"),
        ("--results=sub/../runs", "--results=runs"),
        ("sub/../../alice/secret/../runs", "PATH"),
        ("--references=a/../../alice", "--references=PATH"),
        ("./../alice", "PATH"),
        ("..", "PATH"),
        ("x/../a,b=../../secret/y", "a,b=PATH"),
        ("/home/alice=secret/x", "PATH"),
        ("@../alice", "PATH"),
        ("--note=wait...", "--note=wait..."),
        ("'../alice'", "PATH"),
        ("/home/alice/runs", "PATH"),
        ("~/runs", "PATH"),
        ("~alice/x.toml", "PATH"),
        ("file:///home/alice", "file:PATH"),
        ("runtime.dataset=/home/alice/a=b.hdf5", "runtime.dataset=PATH"),
        ("./../alice/x.toml", "PATH"),
        ("--results=.//.././r", "--results=PATH"),
        ("--results=../../alice/secret", "--results=PATH"),
        ("mujoco/hopper/medium-v0", "mujoco/hopper/medium-v0"),
        ("algo.lr=1e-3", "algo.lr=1e-3"),
    ],
)
def test_a_recorded_command_names_no_folder_outside_the_current_one(word: str, public: str) -> None:
    assert machine._public(word) == public


def test_a_recorded_command_has_paths_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert machine._public(f"--results={tmp_path}/runs") == "--results=runs"
    assert machine._public(f"{tmp_path}/../alice") == "PATH"
    assert machine._public(f"{tmp_path}/results/new") == "results/new"
    assert machine._public(f"--results={tmp_path}") == "--results=."


def test_vector_instructions_are_those_of_the_kernels_list(monkeypatch: pytest.MonkeyPatch) -> None:
    for cpuinfo, expected in {"flags\t: fpu fma avx2 sse\n": "avx2 fma", "Features : fp sve\n": "sve", "": ""}.items():
        monkeypatch.setattr(machine, "_kernel_text", {"/proc/cpuinfo": cpuinfo}.get)
        assert machine.vector_instructions() == expected
    assert {"cpu", "vector_instructions"} <= {*ROUNDING_FACTORS} & {*machine.environment()}


VARIABLES = (
    "MKL_CBWR",
    "MKL_NUM_STRIPES",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "NVIDIA_TF32_OVERRIDE",
)


def git(place: Path, *words: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    done = subprocess.run(["git", "-C", place, *words], env=own | identity, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A repository whose package is the one that asks."""
    place = tmp_path / "caf\udce9"  # on disk one byte that is no UTF-8
    (place / "rlbench").mkdir(parents=True)
    (place / "rlbench" / "__init__.py").write_text("")
    git(tmp_path, "init", "-q", str(place))
    git(place, "add", ".")
    git(place, "commit", "-q", "-m", "one")
    monkeypatch.setattr(rlbench, "__file__", str(place / "rlbench" / "__init__.py"))
    return place


def test_a_checkout_gives_its_commit_and_says_where_its_code_differs(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "--short=12", "HEAD")
    assert machine.commit() == head
    (checkout / "rlbench" / "__init__.py").write_text("changed = True")
    assert machine.commit() == f"{head}+dirty"


def test_records_of_one_process_have_one_commit_and_one_version(checkout: Path, monkeypatch: Patch) -> None:
    """Later checkouts and installations are not what it has imported."""
    machine.own_commit.cache_clear()
    head = machine.environment()["commit"]
    git(checkout, "commit", "-q", "--allow-empty", "-m", "two")
    assert machine.commit() != head == machine.environment()["commit"]
    packages = machine.environment()["packages"]
    monkeypatch.setattr("importlib.metadata.version", lambda _: "9.9.9")
    assert machine.environment()["packages"] == packages
    machine.own_commit.cache_clear()


def test_an_untracked_module_is_dirty_whatever_the_users_git_leaves_out(checkout: Path) -> None:
    git(checkout, "config", "status.showUntrackedFiles", "no")
    (checkout / "rlbench" / "new.py").write_text("")
    assert str(machine.commit()).endswith("+dirty")


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_a_module_that_git_does_not_compare_is_dirty(checkout: Path, flag: str) -> None:
    git(checkout, "update-index", flag, "rlbench/__init__.py")
    assert str(machine.commit()).endswith("+dirty")


def test_an_ignored_module_is_dirty_and_other_ignored_files_are_not(checkout: Path) -> None:
    (checkout / ".git" / "info" / "exclude").write_text("mine*\n__pycache__\n")
    for name in ("__pycache__/__init__.cpython-311.pyc", "mine.txt"):
        (checkout / "rlbench" / name).parent.mkdir(exist_ok=True)
        (checkout / "rlbench" / name).write_text("")
    assert machine.commit() == git(checkout, "rev-parse", "--short=12", "HEAD")
    (checkout / "rlbench" / "mine").mkdir()
    for name in ("own.py", "own.so"):
        (checkout / "rlbench" / "mine" / name).write_text("")
        assert str(machine.commit()).endswith("+dirty")
        (checkout / "rlbench" / "mine" / name).unlink()


@pytest.mark.parametrize("inside", [".venv/lib/python3.11/site-packages", "vendored"])
def test_a_package_inside_another_repository_has_no_commit(checkout: Path, monkeypatch: Patch, inside: str) -> None:
    package = checkout / inside / "rlbench"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(rlbench, "__file__", str(package / "__init__.py"))
    assert machine.commit() is None
    git(checkout, "add", "-f", ".")
    git(checkout, "commit", "-q", "-m", "two")
    assert machine.commit() is None, "tracked there, but no checkout of rlbench's own"


def test_a_package_that_lies_untracked_at_the_top_of_a_repository_has_no_commit(checkout: Path) -> None:
    git(checkout, "rm", "-q", "-r", "--cached", "rlbench")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "gone")
    assert machine.commit() is None


def test_no_command_of_the_repository_is_run(checkout: Path, tmp_path: Path) -> None:
    canary, hook = tmp_path / "canary", tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {canary}\n")
    hook.chmod(0o755)
    git(checkout, "config", "core.fsmonitor", str(hook))
    assert machine.commit() is not None
    assert not canary.exists()


def test_variables_of_a_calling_git_do_not_name_another_repository(
    checkout: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    head = git(checkout, "rev-parse", "--short=12", "HEAD")
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert machine.commit() == head


def test_tunables_of_the_c_library_that_choose_no_instructions_are_not_recorded(monkeypatch: Patch) -> None:
    assert "GLIBC_TUNABLES" in ROUNDING_FACTORS
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    assert "GLIBC_TUNABLES" not in machine.threads()
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0:glibc.cpu.hwcaps=-FMA,-AVX2")
    assert machine.threads()["GLIBC_TUNABLES"] == "glibc.cpu.hwcaps=-FMA,-AVX2"


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_that_choose_another_instruction_set_are_recorded(name: str, monkeypatch: Patch) -> None:
    monkeypatch.setenv(name, "AVX")
    assert machine.threads()[name] == "AVX" and name in ROUNDING_FACTORS


def test_memory_is_known_where_proc_has_processes_alone(monkeypatch: Patch) -> None:
    """As under systemd's ProcSubset=pid."""
    total = machine.psutil.virtual_memory().total
    monkeypatch.setattr(machine.psutil, "virtual_memory", Mock(side_effect=FileNotFoundError("/proc/meminfo")))
    assert machine.environment()["memory"] == total
    assert 0 < machine.available_memory() <= total


def test_metadata_of_two_versions_in_one_folder_are_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    for folder, number in (("a", "2.0"), ("b", "1.0"), ("b", "3.0")):
        metadata = tmp_path / folder / f"evtwice-{number}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: evtwice\nVersion: {number}\n")
    monkeypatch.syspath_prepend(tmp_path / "b")
    with pytest.raises(UsageError, match=r"b: has metadata of evtwice 1\.0 and 3\.0; uninstall evtwice"):
        version("evtwice")
    (tmp_path / "b" / "evtwice.py").touch()
    assert "1.0 and 3.0" in _package("evtwice", "evtwice").detail
    (tmp_path / "b" / "evbuilt.py").write_text("__version__ = '7'")
    assert _package("evbuilt", "evbuilt") == Finding("ok", "evbuilt", "7"), "it has no metadata"
    monkeypatch.syspath_prepend(tmp_path / "a")
    (tmp_path / "a" / "evtwice-0.1.dist-info").mkdir()
    assert version("evtwice") == "2.0", "the folder that Python searches first decides"
    (tmp_path / "c" / "evtwice-4.0.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "c")
    version.cache_clear()
    assert version("evtwice") is None, "and no other, also if its metadata are lost"
