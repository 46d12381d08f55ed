"""Data sets whose writing is killed half-way."""

import platform
import shutil
from itertools import count
from pathlib import Path
from zlib import crc32

from rlbench import disk
from rlbench.cli.app import main
from tests.cli import test_recordings
from tests.commands import killed_at, stderr_of
from tests.conftest import Patch

run, home = test_recordings.run, test_recordings.home
"""Fixtures: a run that keeps a policy, and the folder of own data sets."""


def test_recorded_games_and_their_subset_need_no_force_wherever_they_are_killed(
    run: Path, home: Path, monkeypatch: Patch
) -> None:
    games = test_recordings.line(run, "--quiet")
    for name, words in (("rlb-catch", games), ("rlb-half", ["data", "subset", "rlb-catch", "--steps", "100"])):
        line = words if words is games else [*words, "--name", name]
        folder = home / f"{name}.frames"
        assert main(line) == 0
        whole = {path.name: path.read_bytes() for path in folder.iterdir() if "sha256" not in path.name}
        for number in count():
            shutil.rmtree(folder)
            if not killed_at(monkeypatch, number, lambda line=line: main(line)):
                break
            assert main(line) == 0, f"after {number} passes"
            assert {p.name: p.read_bytes() for p in folder.iterdir() if "sha256" not in p.name} == whole
        assert number > 6


def test_unfinished_games_and_subsets_of_another_request_stay(run: Path, home: Path, monkeypatch: Patch) -> None:
    games = test_recordings.line(run, "--quiet")
    folder = home / "rlb-catch.frames"
    passes = count()
    while not list(folder.glob("*.segment")):
        assert killed_at(monkeypatch, next(passes), lambda: main(games))
    assert "is there, unfinished; make it again with --force" in stderr_of([*games, "--seed", "1"])
    assert main(games) == 0
    half = ["data", "subset", "rlb-catch", "--name", "rlb-half", "--steps"]
    assert main([*half, "100"]) == 0 == main([*half, "100"])
    assert "is there already" in stderr_of([*half, "99"])
    assert main([*games, "--force", "--seed", "1"]) == 0
    assert "is there already" in stderr_of([*half, "100"])


def test_processes_of_another_boot_or_container_are_of_another_host(monkeypatch: Patch) -> None:
    here = disk._host()
    for name in ("pathlib.Path.read_text", "os.readlink"):
        with monkeypatch.context() as patch:
            patch.setattr(name, lambda *_: "another")
            assert disk._host() != here
    assert disk._host() == here == disk.HOST != f"{crc32(platform.node().encode()):08x}"
