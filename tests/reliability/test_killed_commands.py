"""Commands that were killed leave nothing half written, and the next one removes what they left."""

import os
from pathlib import Path

import pytest

from rlbench import disk, faults
from tests.cli.test_generate import HOPPER, REAL
from tests.commands import RLBENCH, run_command, run_process, stderr_of, stdout_of
from tests.conftest import Patch, RecordRun
from tests.reliability.scenarios import SET, wrote
from tests.reliability.test_disk import no_file_beyond
from tests.reliability.test_forged_records import full_run

CURVES = "task,seed,step,return\nHopper-v4,0,1000,1.5\n"
NOBODY = 4194305  # no process has this id
OTHER = f"00c0ffee.{NOBODY}"
"""A process of another host, which may be running."""


def test_next_command_removes_the_temporary_files_of_killed_ones(record_run: RecordRun, tmp_path: Path) -> None:
    full_run(record_run, 1.0, 0)
    cell = tmp_path / "imported" / "mujoco" / "sac" / "Hopper-v4" / "imported" / "seed=0"
    cell.mkdir(parents=True)
    (tmp_path / "curves.csv").write_text(CURVES)
    baseline, curve = tmp_path / "[b].json", cell / "curve.json"
    leftovers = [path.with_name(f"{path.name}.{disk.HOST}.{NOBODY}.tmp") for path in (baseline, curve)]
    alive = [baseline.with_name(f"{baseline.name}.{name}.tmp") for name in (f"{disk.HOST}.1", OTHER, f"{NOBODY}")]
    old = [baseline.with_name(f"{baseline.name}.{name}.tmp") for name in (f"{OTHER}9", f"{NOBODY}9")]
    for path in (*leftovers, *alive, *old):
        path.write_text("half")
    for path in old:
        os.utime(path, (0, 0))
    assert run_command(f"baseline save {baseline} --results {tmp_path / 'results'}")[0] == 0
    stdout_of(f"import {tmp_path / 'curves.csv'} --as mujoco/sac --results {tmp_path / 'imported'}")
    assert baseline.is_file() and curve.is_file()
    assert [path for path in (*leftovers, *old, *alive) if path.exists()] == alive


def test_data_set_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / f"{SET}.hdf5.sha256.{disk.HOST}.{NOBODY}.tmp").write_text("half")
    wrote([str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {f"{SET}.hdf5", f"{SET}.hdf5.sha256.json"}


def test_data_set_is_written_without_a_lock_file(tmp_path: Path, monkeypatch: Patch) -> None:
    names = list[str]()
    monkeypatch.setattr("rlbench.faults.point", lambda _: names.extend(path.name for path in tmp_path.iterdir()))
    wrote([str(tmp_path)])
    assert names and not [name for name in names if "lock" in name]


def test_download_that_was_killed_after_its_last_byte_is_cleaned_up(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path))
    wrote([str(tmp_path)])
    target = (tmp_path / f"{SET}.hdf5").rename(tmp_path / "hopper_medium-v2.hdf5")
    for suffix in (".part.json", ".part.lock"):
        target.with_name(target.name + suffix).write_text("{}")
    assert stdout_of("data download hopper-medium-v2").strip() == str(target)
    assert not list(tmp_path.glob("hopper*.part*"))


def test_data_set_that_the_disk_has_no_space_for_leaves_no_file(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path))
    line = ["data", "generate", "Pendulum-v1", "--policy", str(REAL), "--steps", "20", "--name", "rlb-own"]
    with no_file_beyond(1_000):
        code, _, error = run_command(line)
    assert code == 5 and "raise `ulimit -f`" in error
    assert not list(tmp_path.iterdir())
    assert run_command(line)[0] == 0


@pytest.mark.parametrize(
    ("verb", "point"),
    [
        *(("generate", point) for point in ("dataset.placed", "replace.written:2", "replace.placed:2")),
        *(("import", point) for point in ("copy.placed", "replace.written", "replace.placed")),
    ],
)
def test_data_set_of_a_process_killed_at_its_end_is_whole(
    verb: str, point: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    wrote([str(tmp_path)])
    (tmp_path / f"{SET}.hdf5").rename(tmp_path / "rlb-own.hdf5")
    sets = tmp_path / "sets"
    generate = ["Hopper-v4", "--policy", HOPPER, "--steps", "60", "--name", "rlb-own", "--num-envs", "2"]
    line = ["data", verb, *(generate if verb == "generate" else [str(tmp_path / "rlb-own.hdf5")])]
    killed = run_process([*RLBENCH, *line], RLBENCH_DATASETS=str(sets), **{faults.VARIABLE: point})
    assert killed.returncode == faults.EXIT_CODE, killed.stderr
    before = (sets / "rlb-own.hdf5").read_bytes()
    monkeypatch.setenv("RLBENCH_DATASETS", str(sets))
    assert stdout_of(line).startswith(f"{sets / 'rlb-own.hdf5'}")
    assert (sets / "rlb-own.hdf5").read_bytes() == before
    assert sorted(path.name for path in sets.iterdir()) == ["rlb-own.hdf5", "rlb-own.hdf5.sha256.json"]


@pytest.mark.parametrize(
    "line", [("data", "show", "{}"), ("data", "import", "{}"), ("run", "offline", "td3bc", "Hopper-v4", "--dataset={}")]
)
def test_a_dangling_link_is_named_and_not_suggested(line: tuple[str, ...], tmp_path: Path) -> None:
    link = tmp_path / "set.hdf5"
    link.symlink_to(tmp_path / "gone.hdf5")
    code, _, error = run_command([word.format(link) for word in line])
    assert code == 2 and f"{link} is a link to a missing file" in error and "did you mean" not in error


def test_dangling_links_are_no_suggestions(tmp_path: Path) -> None:
    (tmp_path / "set-1.hdf5").symlink_to(tmp_path / "gone")
    (tmp_path / "set-2.hdf5").write_text("")
    error = run_command(f"data show {tmp_path / 'set-3.hdf5'}")[2]
    assert "set-2.hdf5'?" in error and "set-1" not in error


@pytest.mark.parametrize(("verb", "message"), [("show", "is no data set"), ("import", "is no regular file")])
def test_pipe_given_as_a_data_set_is_not_called_missing(verb: str, message: str, tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "rlb-set.hdf5")
    assert f"{path}: {message}" in stderr_of(f"data {verb} {path}")
