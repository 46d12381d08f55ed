"""Data sets whose writing is killed half-way, and requests for a name that another data set has."""

import platform
import shutil
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

from rlbench import disk
from rlbench.cli import recordings
from rlbench.cli.app import main
from tests.cli import test_recordings
from tests.commands import killed_at, stderr_of
from tests.conftest import Patch
from tests.datasets.rl_unplugged_writer import episode, shard
from tests.reliability.test_disk import HOPPER

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


def test_a_linked_folder_of_recorded_games_is_refused_and_other_files_stay(
    run: Path, home: Path, tmp_path: Path
) -> None:
    games = test_recordings.line(run, "--quiet")
    (victim := tmp_path / "victim").mkdir()
    for place in (victim, home / "rlb-half.frames"):
        place.mkdir(parents=True, exist_ok=True)
        for name in ("settings.json", "big.part"):
            (place / name).write_text("precious")
    (home / "rlb-catch.frames").symlink_to(victim)
    for more in ((), ("--force",)):
        assert f"{home / 'rlb-catch.frames'}: is a link, and no data set is written through one" in stderr_of(
            [*games, *more]
        )
    (home / "rlb-catch.frames").unlink()
    subset = ["data", "subset", "rlb-catch", "--name", "rlb-half", "--steps", "100"]
    assert main(games) == 0 == main(subset) == main([*subset, "--force"])
    for place in (victim, home / "rlb-half.frames"):
        assert {name: (place / name).read_text() for name in ("settings.json", "big.part")} == dict.fromkeys(
            ("settings.json", "big.part"), "precious"
        )
    assert len(list(victim.iterdir())) == 2


def test_processes_of_another_boot_or_container_are_of_another_host(monkeypatch: Patch) -> None:
    here = disk._host()
    for name in ("pathlib.Path.read_text", "os.readlink"):
        with monkeypatch.context() as patch:
            patch.setattr(name, lambda *_: "another")
            assert disk._host() != here
    assert disk._host() == here == disk.HOST != f"{crc32(platform.node().encode()):08x}"


LINE = ["data", "generate", *HOPPER, "--steps", "20", "--seed"]


def test_another_process_of_the_same_name_never_replaces_a_data_set(home: Path, monkeypatch: Patch) -> None:
    progress = recordings.print_progress

    def meanwhile(*arguments: Any, quiet: bool) -> None:
        monkeypatch.setattr(recordings, "print_progress", progress)
        assert main([*LINE, "1"]) == 0
        progress(*arguments, quiet=quiet)

    for seed, code in (("2", 2), ("1", 0)):
        monkeypatch.setattr(recordings, "print_progress", meanwhile)
        (home / "rlb-some.hdf5").unlink(missing_ok=True)
        assert ("another process has written another data set" in stderr_of([*LINE, seed], code)) == (code > 0)


def test_another_shard_or_layout_of_the_same_name_is_refused(tmp_path: Path, home: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*LINE, "1"]) == 0
    importing = ["data", "import", "rlu", str(shard(Path("rlu", "s"), episode(1, 4))), "--name"]
    assert "rlb-some.hdf5: is there already" in stderr_of([*importing, "rlb-some"])
    assert main([*importing, "rlb-s"]) == 0, "a folder named rlu"
    assert "rlb-s.frames: is there already" in stderr_of([*LINE, "1", "--name", "rlb-s", "--force"])
    for steps in (2, 9):
        Path("rlu", "s").write_bytes(shard(Path("rlu", "s"), episode(2, steps)).read_bytes()[: 50 * steps])
        assert "another file of this name" in stderr_of([*importing, "rlb-s"])
    assert main(["data", "verify", "rlb-s"]) == 0
    (home / "rlb-empty.frames").mkdir()  # of a request that was refused or killed
    assert main([*LINE, "1", "--name", "rlb-empty"]) == main(["data", "show", "rlb-empty"]) == 0
