"""R5: a full, failing or unwritable disk stops a run cleanly, and the same command resumes."""

import errno
import json
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlbench import disk, suites
from rlbench.cli.app import main
from rlbench.config.footprint import footprint
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime
from rlbench.errors import ResourceExhausted
from rlbench.records.epochs import read_epochs
from rlbench.records.machine import environment, threads
from rlbench.records.store import folder_of, read_record
from rlbench.records.types import Epoch
from rlbench.run import run
from rlbench.signals import Stop
from tests.commands import run_process, stderr_of
from tests.conftest import Capture, Patch
from tests.forging import locked
from tests.reliability.broken import SMALL, words
from tests.reliability.run_one import ending, only_run

HOPPER = ["Hopper-v4", "--policy", "hopper-openai_imitation-trpo_iter200", "--name", "rlb-some"]


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Every write beyond so many bytes of a file fails, as on a full disk; Python ignores SIGXFSZ."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    results = tmp_path_factory.mktemp("golden")
    assert main(words(results, "--quiet")) == 0
    return ending(only_run(results))


@pytest.mark.parametrize(
    ("limit", "there"),
    [
        pytest.param(1_000, set(), marks=pytest.mark.soak),  # not even what the run is
        (3_000, {"spec.json"}),  # not one epoch, or no policy beside it
        (20_000, {"spec.json", "epochs.jsonl"}),  # policies of 5 kB, but no state to go on from
    ],
)
def test_full_disk_halts_a_run_at_any_write_and_the_resume_is_exact(
    limit: int, there: set[str], golden: tuple[object, ...], tmp_path: Path, capsys: Capture
) -> None:
    with no_file_beyond(limit):
        assert main(words(tmp_path, "--json")) == 5
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert row["status"] == "halted"
    assert "run the same command again: it resumes" in row["reason"]
    epochs = read_epochs(Path(row["folder"]), complete=False)
    assert row["env_steps"] == (epochs[-1].env_steps if epochs else 0)
    files_left = {path.name for path in Path(row["folder"]).iterdir() if path.is_file() and path.stat().st_size}
    assert files_left >= there and "outcome.json" not in files_left
    assert not [path for path in tmp_path.rglob("*") if ".tmp" in path.name], "nothing half written stays"
    assert main(words(tmp_path, "--quiet")) == 0
    assert ending(only_run(tmp_path)) == golden


@pytest.mark.parametrize(
    "at", [1, pytest.param(4, marks=pytest.mark.soak), 7, pytest.param(11, marks=pytest.mark.soak)]
)
def test_disk_error_halts_a_run_and_the_same_command_resumes(
    at: int, golden: tuple[object, ...], tmp_path: Path, monkeypatch: Patch
) -> None:
    synced, count = os.fsync, [0]

    def failing(handle: int) -> None:
        count[0] += 1
        if count[0] == at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        synced(handle)

    monkeypatch.setattr(os, "fsync", failing)
    printed = stderr_of(words(tmp_path), 5)
    assert "Input/output error" in printed and "space" not in printed
    assert main(words(tmp_path, "--quiet")) == 0
    assert ending(only_run(tmp_path)) == golden


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[Path]:
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk; RLIMIT_FSIZE stands for it above")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_disk_that_fills_up_keeps_the_last_checkpoint(golden: tuple[object, ...], tmp_path: Path) -> None:
    spec = apply_settings(suites.spec("toy", "dqn", "CartPole-v1"), [parse(change) for change in SMALL])
    with mounted(tmp_path / "small", 4 * 2**20) as results:
        store = locked(spec, results, environment(**threads()))
        records, other = run(spec, Runtime(device="cpu", threads=1), store, Stop()), results / "other"
        while not isinstance(record := next(records), Epoch) or record.number < 1:
            pass
        with pytest.raises(OSError, match="No space left"):
            other.write_bytes(b"x" * 2**23)
        with pytest.raises(ResourceExhausted, match="No space left on device"):
            list(records)
        store.release()
        assert [epoch.number for epoch in read_record(store.folder).epochs] in ([0, 1], [0, 1, 2])
        assert (store.folder / "checkpoint" / "resume").is_dir()
        other.unlink()
        assert main(words(results, "--quiet")) == 0
        assert ending(only_run(results)) == golden


@pytest.mark.slow
def test_a_sweep_names_the_reason_of_a_halted_run(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr("rlbench.sweep.scheduler.RETRIES", 0)
    folder = folder_of(apply_settings(suites.spec("toy", "dqn", "CartPole-v1"), list(map(parse, SMALL))), tmp_path)
    folder.parent.mkdir(parents=True)
    with mounted(folder, 40_000):
        assert main(words(tmp_path, "--jobs", "1", "--quiet")) == 5
    assert "free some space and run the same command again: it resumes) at 0 steps" in capsys.readouterr().out


@contextmanager
def closed(folder: Path) -> Iterator[Path]:
    """A folder that cannot be written, by root neither."""
    if os.geteuid() == 0:
        with mounted(folder, 2**20):
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            yield folder
    else:
        folder.mkdir(mode=0o500)
        try:
            yield folder
        finally:
            folder.chmod(0o700)


def test_unwritable_folder_is_refused_before_the_run(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    with closed(tmp_path / "closed") as folder:
        assert f"{folder / 'results'}: cannot be written" in stderr_of(words(folder / "results"))
        monkeypatch.setenv("RLBENCH_DATASETS", str(folder))
        assert "cannot be written" in stderr_of(["data", "generate", *HOPPER, "--steps", "20"])
        monkeypatch.setenv("D4RL_DATASET_DIR", str(folder))
        assert main(["data", "download", "hopper-medium-v2"]) in {2, 5}
        assert "Traceback" not in (message := capsys.readouterr().err)
        assert str(folder) in message


def test_folder_made_unwritable_in_mid_run_halts_it(
    golden: tuple[object, ...], tmp_path: Path, monkeypatch: Patch
) -> None:
    appended = disk.open_append

    def refuse(path: Path) -> object:
        if path.name == "epochs.jsonl":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return appended(path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open_append", refuse)
        assert main(words(tmp_path)) == 5
    assert main(words(tmp_path, "--quiet")) == 0
    assert ending(only_run(tmp_path)) == golden


def free(monkeypatch: Patch, count: int) -> None:
    usage = shutil.disk_usage(Path.cwd())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=count))


@pytest.mark.parametrize(
    ("cell", "remedy"),
    [
        ("toy dqn CartPole-v1", r"--results, or lower algo\.replay\.capacity"),
        ("toy npg CartPole-v1", r"--results, or lower algo\.rollout_length"),
        ("offline il Hopper-v4 --smoke", r"--results$"),
    ],
)
def test_refused_checkpoints_have_a_remedy_of_their_experience(
    cell: str, remedy: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    free(monkeypatch, 1000)
    assert re.search(remedy, stderr_of(f"run {cell} --results {tmp_path / 'results'}".split()).strip())


def test_run_whose_checkpoints_do_not_fit_is_refused_with_the_number(tmp_path: Path, monkeypatch: Patch) -> None:
    need = footprint(suites.spec("atari", "dqn", "PongNoFrameskip-v4")).disk
    assert need >= 2 * 700_000_000, "two of a hundred thousand frames"
    free(monkeypatch, need - 1)
    arguments = ["run", "atari", "dqn", "--task", "Pong*", "--device", "cpu", "--results", str(tmp_path / "results")]
    message = stderr_of(arguments)
    assert f"{need / 1e9:.2f} GB of disk are needed" in message
    assert "--results" in message
    assert not (tmp_path / "results").exists()


ROLLOUT = ("algo.rollout_length=1000", "budget.steps=1000", "budget.epoch=500", "protocol.stop=null")


@pytest.mark.parametrize(("algorithm", "settings"), [("dqn", SMALL), ("npg", ROLLOUT), ("ppo", ROLLOUT)])
def test_checkpoint_is_at_most_as_large_as_estimated(algorithm: str, settings: Sequence[str], tmp_path: Path) -> None:
    """The free bytes that the check asks for are those with which the run ends; activations are not among them."""
    spec = apply_settings(suites.spec("toy", algorithm, "CartPole-v1"), [parse(change) for change in settings])
    most = [0]
    for record in run(spec, Runtime(device="cpu", threads=1), store := locked(spec, tmp_path), Stop()):
        del record
        most[0] = max(most[0], sum(path.stat().st_size for path in store.folder.glob("checkpoint/*/*")))
    store.release()
    overhead = 60_000  # of small files, which no bound on arrays knows
    assert 2 * most[0] <= footprint(spec).disk + overhead < 2_000_000


def test_data_that_do_not_fit_are_refused_before_generation_or_download(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path / "own"))
    free(monkeypatch, 100_000)
    command = ["data", "generate", *HOPPER, "--steps", "1000"]  # 11 + 11 + 3 + 1 numbers and two flags: 106 bytes
    assert "rlb-some: 0.1 MB of disk are needed" in stderr_of(command)
    monkeypatch.setattr("rlbench.records.machine.available_memory", lambda: 4 * 106_000)
    assert "rlb-some: 0.5 MB of memory are needed" in stderr_of(command)
    assert not list(tmp_path.rglob("*.hdf5*"))


def test_disk_without_fsync_of_folders_records_runs(tmp_path: Path, monkeypatch: Patch) -> None:
    """The system answers EINVAL for a folder; for a file that is a fault of the disk."""
    fsync = os.fsync

    def refuse(handle: int) -> None:
        if refuses_files or stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(handle)

    refuses_files = False
    monkeypatch.setattr(os, "fsync", refuse)
    assert main(words(tmp_path, "--quiet")) == 0
    refuses_files = True
    with pytest.raises(OSError, match="Invalid argument"):
        disk.sync(only_run(tmp_path) / "spec.json")


def test_folder_of_a_containers_image_that_cannot_be_renamed_is_named(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """overlayfs answers EXDEV."""
    assert main(words(tmp_path, "--until", "1", "--quiet")) == 0
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.is_dir() and not path.name.endswith(".tmp"):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    assert main(words(tmp_path, "--quiet")) == 5
    assert "checkpoint/resume: Invalid cross-device link; a container's image holds it" in capsys.readouterr().out


def test_full_disk_leaves_the_reports_of_a_check_as_they_were(tmp_path: Path, capsys: Capture) -> None:
    for option in ("--junit", "--summary"):
        (path := tmp_path / option).write_text("a report of before\n")
        with no_file_beyond(50):
            assert main(["check", "toy", option, str(path)]) == 5
        assert path.read_text() == "a report of before\n"
        assert "and run the same command again\n" in capsys.readouterr().err
    assert main(["check", "toy", "--junit", str(tmp_path / ("x" * 255))]) == 2


GENERATED = """
import resource, sys
from rlbench.cli.app import main
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_full_disk_ends_data_generation_with_one_line(tmp_path: Path) -> None:
    """HDF5 writing to a full disk ended with a segmentation fault."""
    command = [sys.executable, "-c", GENERATED, "data", "generate", *HOPPER, "--steps", "1000", "--quiet"]
    done = run_process(command, RLBENCH_DATASETS=str(tmp_path))
    assert done.returncode == 5, done.stderr
    assert done.stderr.count("\n") == 1
    assert "File too large; raise `ulimit -f` and run the same command again" in done.stderr
    assert list(tmp_path.iterdir()) == []
