"""Wheel and sdist contain the whole package and nothing else, and the wheel works outside the checkout."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from rlbench import __version__
from tests.laws.source import ROOT

WHEEL = f"rlbench-{__version__}-py3-none-any.whl"
SDIST = f"rlbench-{__version__}"
KINDS = {".py", ".csv", ".json", ".html", ".md", ".txt", ".mplstyle", ".safetensors", ".typed"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    for name in ("rlbench", "tests", "scripts", ".ci"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, source)
    return build(source, tmp_path_factory.mktemp("dist"))


def build(source: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    subprocess.run(
        command, cwd=source, check=True, capture_output=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1000000000"}
    )
    return out


def package() -> set[str]:
    files = (path for path in (ROOT / "rlbench").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files}


def test_the_wheel_has_every_file_of_the_package_and_only_these(built: Path) -> None:
    with zipfile.ZipFile(built / WHEEL) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = wheel.read(f"rlbench-{__version__}.dist-info/METADATA").decode()
        points = wheel.read(f"rlbench-{__version__}.dist-info/entry_points.txt").decode()
    assert names == package()
    assert "rlbench/py.typed" in names
    assert {Path(name).suffix for name in names} <= KINDS, "a new kind of file: should it be in the wheel?"
    assert f"Version: {__version__}" in metadata and "License-Expression: MIT" in metadata
    assert "rlbench = rlbench.cli.app:main" in points


def test_the_sdist_makes_the_same_wheel(built: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xf", str(built / f"{SDIST}.tar.gz"), "-C", str(tmp_path)], check=True)
    again = build(tmp_path / SDIST, tmp_path / "dist")
    assert (again / WHEEL).read_bytes() == (built / WHEEL).read_bytes()


def installed(wheel: Path, folder: Path) -> Path:
    """The programs of a fresh environment with the wheel, and the dependencies of this one: nothing is fetched."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--quiet", str(wheel)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")  # its own .pth files are not read
    return folder / "bin"


@pytest.mark.slow
def test_an_installed_wheel_works_away_from_the_checkout_and_prints_its_verdicts(built: Path, tmp_path: Path) -> None:
    programs, elsewhere = installed(built / WHEEL, tmp_path / "venv"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("RLBENCH_", "PYTHONPATH"))}

    def printed(*words: str) -> str:
        done = subprocess.run(words, cwd=elsewhere, env=environ, capture_output=True, check=False, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    program = str(programs / "rlbench")
    where = printed(str(programs / "python"), "-P", "-c", "import rlbench; print(rlbench.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path), "the checkout was imported, so nothing would be shown"
    assert printed(program, "--version").strip() == f"rlbench {__version__}"
    table = printed(program, "table", "mujoco")
    assert table == printed(sys.executable, "-m", "rlbench", "table", "mujoco") and "REPRODUCED" in table
    printed(program, "run", "toy", "reinforce", "--task", "CartPole-v1", "--smoke")
    assert "rlb-hopper-medium" in printed(program, "data", "list")
    assert "<table" in printed(program, "table", "toy", "--format", "html")


def test_the_container_is_made_of_files_that_exist_and_the_locked_versions() -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for word in line.split()]
    assert {"constraints.txt", "pyproject.toml", "README.md", "LICENSE", "rlbench"} == set(copied)
    for name in copied:
        assert (ROOT / name).exists() and f"!{name}" in ignored
    assert text.count("--constraint ") == 2, "both installations take the locked versions"
    version = re.search(r"^ARG PYTHON=(\S+)$", text, re.MULTILINE)
    assert version and version[1] in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("", ""),
        ("echo more >>README.md", "has changes"),
        ("git tag v0.1.0", "is released"),
        ("sed -i 's/^## \\[0.1.0\\].*/## [0.0.9] - 2026-01-01/' CHANGELOG.md; git commit -qam x", "no '## [0.1.0]"),
    ],
)
def test_a_release_begins_only_with_a_clean_tree_a_new_version_and_its_changes(
    tmp_path: Path, change: str, word: str
) -> None:
    begin_release(tmp_path)
    subprocess.run(["bash", "-c", change], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(["scripts/release", "--check"], cwd=tmp_path, capture_output=True, check=False, text=True)
    assert done.returncode == (2 if word else 0), done.stderr
    assert word in done.stderr and len(done.stderr.splitlines()) == (1 if word else 0)


def test_a_release_tags_the_commit_that_ci_has_tested(tmp_path: Path) -> None:
    commit = "git -C $CHECKOUT commit -q --allow-empty -m later"
    begin_release(tmp_path, {".ci/run": commit, "scripts/package": ""})
    environment = os.environ | {"CHECKOUT": str(tmp_path)}
    subprocess.run(["scripts/release"], cwd=tmp_path, capture_output=True, check=True, env=environment)
    subjects = [
        subprocess.check_output(["git", "log", "-1", "--format=%s", name], cwd=tmp_path, text=True).strip()
        for name in ("v0.1.0", "HEAD")
    ]
    assert subjects == ["begin", "later"]


@pytest.mark.parametrize(("ci", "package"), [(0, 0), (1, 0), (0, 1)])
def test_a_release_is_tagged_only_if_ci_and_the_package_pass(tmp_path: Path, ci: int, package: int) -> None:
    build = 'cd "$(dirname "$0")/.."; mkdir "$1"; touch "$1/rlbench.whl"'  # as the script does, from its own checkout
    stubs = {".ci/run": f"exit {ci}", "scripts/package": f"{build}; exit {package}"}
    begin_release(tmp_path, stubs)
    done = subprocess.run(["scripts/release"], cwd=tmp_path, capture_output=True, check=False, text=True)
    tags = subprocess.check_output(["git", "tag", "--list"], cwd=tmp_path, text=True).split()
    passed = not ci and not package
    assert (done.returncode, tags) == ((0, ["v0.1.0"]) if passed else (1, [])), done.stderr
    assert (tmp_path / "dist/rlbench.whl").exists() == (not ci)


def begin_release(folder: Path, stubs: Mapping[str, str] = MappingProxyType({})) -> None:
    """Make a repository whose tree is clean and whose changelog has the version; ``stubs`` are scripts by name."""
    for name, text in stubs.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    (folder / "rlbench").mkdir()
    (folder / "scripts").mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts/release", folder / "scripts")
    (folder / "rlbench/__init__.py").write_text('__version__ = "0.1.0"\n')
    (folder / "CHANGELOG.md").write_text("## [0.1.0] - 2026-11-22\n")
    (folder / "README.md").write_text("rlbench\n")
    prepare = "git init -q .; git config user.email a@b; git config user.name a; git add -A; git commit -qm begin"
    subprocess.run(["bash", "-c", prepare], cwd=folder, check=True, capture_output=True)
