"""A seventh attack: forced runs, downloads, looks and data sets that are killed, forged or changed half-way."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from zlib import crc32

import pytest

from rlbench import disk, faults, suites
from rlbench.cli.app import main
from rlbench.envs import envpool_async
from rlbench.envs.envpool_async import EnvPoolMujoco
from rlbench.records.looks import DESIGN, Looks, record_looks
from rlbench.report.cells import every_cell
from rlbench.report.run_index import standing
from tests.cli import test_recordings
from tests.commands import stderr_of
from tests.conftest import RecordRun
from tests.forging import claim
from tests.reliability.test_sixth_attack import score_and_seeds

run, home = test_recordings.run, test_recordings.home
"""Fixtures: a run that keeps a policy, and the folder of own data sets."""

TOY = {"suite": "toy", "algo": "ppo", "task": "Catch"}


class Killed(BaseException):
    """The process ends here."""


def killed_at(monkeypatch: pytest.MonkeyPatch, pass_number: int, work: Callable[[], object]) -> bool:
    """End ``work`` at its n-th pass by a fault point; return whether it came so far."""
    passes = count()

    def point(_: str) -> None:
        if next(passes) == pass_number:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(faults, "point", point)
        try:
            work()
        except Killed:
            return True
    return False


def test_a_failed_seed_stays_in_n_wherever_a_forced_run_is_killed(
    record_run: RecordRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    for number in count():
        record_run([0.0, 0.0], **TOY, status="failed", force=True)
        if not killed_at(monkeypatch, number, lambda: record_run([], **TOY, status=None, force=True)):
            break
        assert score_and_seeds(results, "toy", "ppo", "Catch")[1] == 1, f"after {number} passes"
        record_run([], **TOY, status=None)
        assert score_and_seeds(results, "toy", "ppo", "Catch")[1] == 1, f"resumed after {number} passes"
    assert number > 6


def test_a_refused_forced_run_keeps_its_failed_attempt_in_n(record_run: RecordRun, tmp_path: Path) -> None:
    record_run([0.0, 0.0], **TOY, status="failed")
    environment = {"env": {"env": "test/env"}}
    store = claim(suites.spec("toy", "ppo", "Catch"), tmp_path / "results", environment, force=True)
    store.withdraw()
    store.release()
    assert score_and_seeds(tmp_path / "results", "toy", "ppo", "Catch")[1] == 1


INVERTED = {"suite": "mujoco", "algo": "ppo", "task": "InvertedPendulum-v4"}


@pytest.mark.parametrize("look_count", [0, 1])
@pytest.mark.parametrize("scores", [[300.0, 301.0, 302.0, 301.0, 300.0], [880.0, *[860.0, 870.0, 860.0] * 2, 865.0]])
def test_a_forged_count_of_looks_hides_no_verdict(
    scores: list[float], look_count: int, record_run: RecordRun, tmp_path: Path
) -> None:
    for seed, score in enumerate(scores):
        folder = record_run([5.0, score], **INVERTED, seed=seed)
    record_looks(folder.parent, Looks(DESIGN, look_count))
    (row,) = [cell for cell in every_cell(["mujoco"], tmp_path / "results") if cell.measured]
    assert row.verdict.word == "BELOW"


def test_an_expected_end_needs_neither_the_epochs_nor_a_right_clock(record_run: RecordRun, tmp_path: Path) -> None:
    folder = record_run([0.0] * 4, **TOY, status=None)
    epochs = folder / "epochs.jsonl"
    store = claim(suites.spec("toy", "ppo", "Catch"), tmp_path / "results")
    now = standing(folder).eta_seconds
    os.utime(epochs, (4e9, 4e9))  # the clock was set back since
    later = standing(folder).eta_seconds
    store.release()
    assert now is not None and later is not None and now <= later < now + 60


def test_mujoco_in_envpool_writes_no_log_and_prints_nothing(
    empty_folder: None, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("MUJOCO_LOG.TXT").symlink_to("precious")
    envs = EnvPoolMujoco(task="Hopper-v4", seeds=[0], threads=1)
    envs.close()
    ctypes.CDLL(str(envpool_async.library())).mju_warning(b"The simulation is unstable")
    assert not Path("precious").exists() and capfd.readouterr().out == ""


def test_recorded_games_and_their_subset_need_no_force_wherever_they_are_killed(
    run: Path, home: Path, monkeypatch: pytest.MonkeyPatch
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


def test_unfinished_games_and_subsets_of_another_request_stay(
    run: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_processes_of_another_boot_or_container_are_of_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    here = disk._host()
    for name in ("pathlib.Path.read_text", "os.readlink"):
        with monkeypatch.context() as patch:
            patch.setattr(name, lambda *_: "another")
            assert disk._host() != here
    assert disk._host() == here == disk.HOST != f"{crc32(platform.node().encode()):08x}"
